"""Ids of rows that are not their own numbers, which hits show in place of the numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._checks import contiguous
from hamtarget._core import _native

Rows = NDArray[np.int64]


class RowNames:
    """Ids, strings or integers, of rows from `first_named` up, as far as they are known; other rows are their own ids.

    Once known, an id stays: hits may ask for it later. Any number of threads may ask while one adds.

    Attributes:
        core: the same for the native core, which puts the ids into hits.
    """

    def __init__(self, first_named: int) -> None:
        """Begin without any id."""
        self._first_named = first_named
        self.core = _native.RowNames(first_named)

    def __len__(self) -> int:
        """Return how many ids are remembered."""
        return len(self.core)

    def know(self, rows: Rows) -> bool:
        """Return True if the ids of all of the rows are known."""
        return bool(self.core.are_known(contiguous(rows, np.int64)).all())

    def are_known(self, rows: Rows) -> NDArray[np.bool_]:
        """Return, for each row, if its id is known."""
        return self.core.are_known(contiguous(rows, np.int64)).view(np.bool_)

    def add(self, ids: dict[int, Any]) -> None:
        """Remember these ids, by row."""
        self.core.add(ids)

    def of(self, rows: Rows) -> NDArray[Any]:
        """Return ids of rows, all of which are known: the rows themselves, or an array of objects if any has a name."""
        if not len(rows) or rows.max() < self._first_named:
            return rows
        ids = np.empty(len(rows), dtype=object)
        ids[:] = self.core.of(contiguous(rows, np.int64))
        return ids
