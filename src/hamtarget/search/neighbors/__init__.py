"""Parts of `NeighborIndex`: metrics and spaces, exact scans, training, cells, tuning, and the file.

`KeptRows` is what the index asks of its rows. They are scanned (`scan.ScannedRows`) or in cells (`cells.RowsInCells`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from hamtarget.query import Work
    from hamtarget.search.neighbors.tuning import Setting, Tuned

    Floats = NDArray[np.float32]
    Rows = NDArray[np.int64]


class KeptRows(Protocol):
    """Rows of a space, with ids, that are searched and changed. Searches go on while one thread changes them."""

    @property
    def way(self) -> str:
        """How rows are found: "scan" or "cells"."""
        ...

    @property
    def tuned(self) -> Tuned:
        """How rows are kept, and what was measured."""
        ...

    @property
    def n_rows_at_fit(self) -> int:
        """Number of rows when everything was chosen."""
        ...

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def ids(self) -> Rows:
        """Return all ids, ascending."""
        ...

    def has(self, ids: Rows) -> NDArray[np.bool_]:
        """Return True for each of some ids that is there."""
        ...

    def get(self, ids: Rows) -> Floats:
        """Return the rows of ids, as they are kept; an unknown id is an InputError."""
        ...

    def with_rows(self, ids: Rows, rows: Floats) -> Self:
        """Return these rows and others, whose ids are new: the same object where rows change in place."""
        ...

    def without(self, ids: Rows) -> Self:
        """Return these rows without some that are there: the same object where rows change in place."""
        ...

    def plan(self, k: int, recall: float, budget: int | None, comparisons: int | None) -> Setting:
        """Return how much a search reads; an InputError where it cannot reach the recall, or k was not tuned."""
        ...

    def find(
        self, queries: Floats, k: int, setting: Setting, work: Work
    ) -> tuple[Rows, NDArray[Any], NDArray[np.int64]]:
        """Return ids and distances, (queries, k), nearest first, and counts of candidates and comparisons."""
        ...

    def why(self, k: int, recall: float) -> str:
        """Return the reason for this way."""
        ...

    def advice(self) -> str:
        """Return when to fit again."""
        ...

    def bytes(self) -> dict[str, int]:
        """Return the bytes of each part."""
        ...

    def to_file(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a file says of the rows, and its arrays."""
        ...
