"""Search that reads every code: no tables, no tuning, the reference for every other index."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget import _native
from hamtarget.codes import check_codes, check_n_bits, check_radius
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.search.results import Hit, Hits

_MIN_CAPACITY = 64


class FlatIndex:
    """Codes of `n_bits` bits and their ids, in memory; every search reads all of them.

    One thread may add while others search: a search sees the codes that were there when it began.
    """

    def __init__(self, n_bits: int) -> None:
        self.n_bits = check_n_bits(n_bits)
        # The first len(self) rows are in use, the others are room to grow.
        self._codes = np.empty((0, self.n_bits // 8), dtype=np.uint8)
        self._ids = np.empty(0, dtype=np.int64)
        self._known: set[int] = set()

    def __len__(self) -> int:
        """Number of codes."""
        return len(self._known)

    def __contains__(self, id: object) -> bool:
        """Whether a code with this id was added."""
        return id in self._known

    def add(self, ids: ArrayLike, codes: ArrayLike) -> None:
        """Store codes, (rows, n_bits / 8) of packed uint8, under new ids, (rows,) of int64: all of them or none.

        Raises:
            InputError: an id is there twice, or is in the index already.
            DtypeError: the codes are not uint8, or the ids not integers that int64 holds.
            ShapeError: a code does not have `n_bits` bits, or there is not one id for each code.
        """
        codes = check_codes(codes, self.n_bits)
        ids = _check_ids(ids, n_rows=len(codes))
        new = set(ids.tolist())
        if len(new) < len(ids):
            values, counts = np.unique(ids, return_counts=True)
            raise InputError(f"ids hold {values[counts > 1][0]} more than once; expected each id once")
        if present := new & self._known:
            raise InputError(
                f"id {min(present)} is in this index already ({len(present):,} of {len(ids):,} ids are); "
                "expected new ids"
            )
        start, stop = len(self), len(self) + len(ids)
        self._reserve(stop)
        self._codes[start:stop] = codes
        self._ids[start:stop] = ids
        # The rows count from here on. Whatever stops this method earlier leaves the index as it was.
        self._known |= new

    def search(self, codes: ArrayLike, radius: int, *, limit: int | None = None) -> tuple[Hit, ...] | Hits:
        """Every stored code within `radius` bits, or the first `limit` of them, by distance and then id.

        Args:
            codes: queries, (rows, n_bits / 8) of packed uint8, or one of them, (n_bits / 8,).
            radius: from 0 to n_bits - 1; a code at exactly this distance is a hit.
            limit: most hits for each query; all of them by default.

        Returns:
            `Hits` for a batch of queries, the hits alone for one query.

        Raises:
            InputError: `radius` or `limit` is out of range.
            DtypeError: the codes are not uint8, or a number is not an integer.
            ShapeError: a query does not have `n_bits` bits.
        """
        radius = check_radius(radius, self.n_bits)
        return self._scan(codes, radius=radius, limit=None if limit is None else _check_count(limit, name="limit"))

    def nearest(self, codes: ArrayLike, k: int) -> tuple[Hit, ...] | Hits:
        """The `k` nearest stored codes, by distance and then id; all of them where there are fewer.

        Args:
            codes: queries, (rows, n_bits / 8) of packed uint8, or one of them, (n_bits / 8,).
            k: hits for each query, at least 1.

        Returns:
            `Hits` for a batch of queries, the hits alone for one query.

        Raises:
            InputError: `k` is below 1.
            DtypeError: the codes are not uint8, or `k` is not an integer.
            ShapeError: a query does not have `n_bits` bits.
        """
        return self._scan(codes, radius=self.n_bits, limit=_check_count(k, name="k"))

    def _scan(self, codes: ArrayLike, *, radius: int, limit: int | None) -> tuple[Hit, ...] | Hits:
        queries = check_codes(codes, self.n_bits)
        n_rows = len(self)
        limit = max(1, n_rows if limit is None else min(limit, n_rows))
        hits = Hits(*_native.scan(queries, self._codes[:n_rows], self._ids[:n_rows], radius, limit))
        return hits[0] if np.ndim(codes) == 1 else hits

    def _reserve(self, n_rows: int) -> None:
        """Room for `n_rows` codes. Capacity at least doubles: adding one by one costs constant time a code."""
        if n_rows <= len(self._ids):
            return
        capacity = max(n_rows, 2 * len(self._ids), _MIN_CAPACITY)
        codes = np.empty((capacity, self.n_bits // 8), dtype=np.uint8)
        ids = np.empty(capacity, dtype=np.int64)
        codes[: len(self)] = self._codes[: len(self)]
        ids[: len(self)] = self._ids[: len(self)]
        self._codes, self._ids = codes, ids


def _check_ids(ids: ArrayLike, *, n_rows: int) -> NDArray[np.int64]:
    """`ids` as an array of int64, one for each of `n_rows` codes."""
    array = np.asarray(ids)
    # An empty list has no integers to tell its type by; numpy calls it float64.
    if array.size and (array.dtype.kind not in "iu" or not np.can_cast(array.dtype, np.int64)):
        raise DtypeError(f"ids have dtype {array.dtype}; expected int64")
    if array.ndim != 1:
        raise ShapeError(f"ids have {array.ndim} dimensions; expected 1: (rows,)")
    if len(array) != n_rows:
        raise ShapeError(f"there are {len(array):,} ids for {n_rows:,} codes; expected one id for each code")
    return array.astype(np.int64, copy=False)


def _check_count(count: int, *, name: str) -> int:
    """`count` itself, if it is a whole number of at least 1."""
    if not isinstance(count, int | np.integer) or isinstance(count, bool):
        raise DtypeError(f"{name} is {count!r}; expected an integer")
    if count < 1:
        raise InputError(f"{name} is {count}; expected at least 1")
    return int(count)
