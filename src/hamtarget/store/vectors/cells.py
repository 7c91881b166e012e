"""Cells: a `NeighborIndex` of a store's vectors, which follows their changes and can be built again at any time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.answer import Answer
from hamtarget.codes import Codes
from hamtarget.errors import HamtargetError, InputError
from hamtarget.query import Work
from hamtarget.search.distinct import distinct
from hamtarget.search.multi import MultiIndex
from hamtarget.search.neighbor_index import NeighborIndex
from hamtarget.store.vectors.kept_vectors import restored_vectors

Rows = NDArray[np.int64]

# Rows that are brought up to date at a time: some MB of vectors.
_ROWS_AT_ONCE = 10_000


class Cells:
    """The cells of an open store, if it has any, and what has changed while others are being made.

    Whoever calls `follow`, `begin`, `take`, `end` and `drop` holds the lock of the index; searches need none.

    Attributes:
        index: the vectors, by row; None while there are no cells.
    """

    def __init__(self) -> None:
        self.index: NeighborIndex | None = None
        # Rows that have changed since `begin`; None where nobody wants to know, or where it is not known.
        self._changed: list[Rows] | None = None

    @property
    def memory(self) -> int:
        """Bytes that the cells take."""
        return 0 if self.index is None else self.index.memory

    def follow(self, rows: Rows, vectors: NDArray[Any] | None) -> None:
        """Bring a change of the store into the cells.

        Args:
            rows: that have changed.
            vectors: of these rows; None if the rows are gone.
        """
        if self._changed is not None:
            self._changed.append(rows)
        if self.index is not None:
            try:
                _put(self.index, rows, vectors)
            except HamtargetError:
                # These vectors are of another kind than those that the cells were made for.
                self.index = None

    def begin(self) -> None:
        """Begin to note which rows change, until `take`."""
        self._changed = []

    def take(self, made: NeighborIndex, rows: Rows, index: MultiIndex) -> bool:
        """Put cells in the place of those that are there, and bring them up to date.

        Args:
            made: the cells, of the store as it was at `begin` or before.
            rows: that have changed from then to `begin`.
            index: of the store, as it is now.

        Returns:
            False if they cannot be brought up to date.
        """
        changed, self._changed = self._changed, None
        if changed is None:
            return False
        rows = distinct(np.concatenate([rows, *changed]))
        try:
            for start in range(0, len(rows), _ROWS_AT_ONCE):
                block = rows[start : start + _ROWS_AT_ONCE]
                there = np.fromiter((row in index for row in block.tolist()), bool, len(block))
                _put(made, block[~there], None)
                if there.any():
                    _put(made, block[there], vectors_of(index, block[there]))
        except HamtargetError:
            return False
        if len(made) != len(index):
            return False
        self.index = made
        return True

    def end(self) -> None:
        """Stop noting which rows change."""
        self._changed = None

    def drop(self) -> None:
        """Forget everything: the rows of the store were read anew."""
        self.index = self._changed = None


def vectors_of(index: MultiIndex, rows: Rows) -> NDArray[Any]:
    """Return the vectors of rows, as they are kept.

    Raises:
        InputError: a row is not in the index.
    """
    return _codes_and_vectors(index, rows)[1]


def present_vectors(index: MultiIndex, rows: Rows) -> tuple[Rows, NDArray[Any]]:
    """Return those of the rows that are in the index still, and their vectors."""
    while True:
        try:
            return rows, vectors_of(index, rows)
        except InputError:
            rows = rows[np.fromiter((row in index for row in rows.tolist()), bool, len(rows))]


def find_in_cells(
    cells: NeighborIndex,
    index: MultiIndex,
    codes: Codes,
    queries: NDArray[Any],
    k: int,
    recall: float,
    work: Work,
) -> Answer | None:
    """Return the nearest rows of each query; None if one of them was deleted during the search.

    The distances are those of vectors and codes as the store keeps them, whatever the cells have rounded.

    Args:
        cells: find the rows.
        index: has their codes and vectors.
        codes: of the queries.
        queries: as they are compared with kept vectors.
        k: most rows for a query.
        recall: share of the true nearest to find.
        work: threads, bounds, and costs.
    """
    kind = index.embeddings
    if kind is None:
        raise TypeError("a store of vectors has an index without them")
    asked = restored_vectors(queries, kind)
    found = cells.nearest_batch(asked, min(k, len(cells)), recall=recall, work=work)
    n_queries, n_found = found.ids.shape
    rows = found.ids.ravel()
    try:
        row_codes, vectors = _codes_and_vectors(index, rows)
    except InputError:
        return None
    kept = restored_vectors(vectors, kind).reshape(n_queries, n_found, -1)
    if kind.metric == "l2":
        apart = kept - asked[:, None]
        exact = np.sqrt(np.einsum("qkd,qkd->qk", apart, apart))
    else:
        exact = -np.einsum("qkd,qd->qk", kept, asked)
    if kind.metric == "cosine":
        exact = np.maximum(exact + np.float32(1), np.float32(0))
    differ = row_codes.reshape(n_queries, n_found, -1) ^ codes[:, None]
    distances = _ONES[differ].sum(axis=2, dtype=np.uint16)
    offsets = np.arange(n_queries + 1, dtype=np.int64) * n_found
    order = (np.lexsort((found.ids, exact), axis=1) + offsets[:-1, None]).ravel()
    return Answer(
        offsets,
        rows[order],
        distances.ravel()[order],
        exact.ravel()[order],
        costs=found.costs,
    )


# Ones among the bits of a byte.
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def _put(cells: NeighborIndex, rows: Rows, vectors: NDArray[Any] | None) -> None:
    """Put vectors in the place of those of the same rows; None deletes them."""
    if not len(rows):
        return
    known = cells.has(rows)
    if known.any():
        cells.delete(distinct(rows[known]))
    if vectors is not None:
        cells.add(rows, vectors)


def _codes_and_vectors(index: MultiIndex, rows: Rows) -> tuple[Codes, NDArray[Any]]:
    found = index.get(rows)
    if not isinstance(found, tuple):
        raise TypeError("a store of vectors has an index without them")
    return found
