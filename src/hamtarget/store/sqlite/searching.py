"""Searches with a filter: by checking hits, or by searching only what passes; whichever reads less, both exact."""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.search import Hits, MultiIndex
from hamtarget.store.filters import Filter, where
from hamtarget.store.sqlite.rows import look_up

Rows = NDArray[np.int64]

# Looking up a row by its number takes about so many times as long as reading it in order.
_LOOK_UP_COST = 4
# `nearest` looks at so many times k rows at first, and at more when too few of them pass.
_FIRST_FACTOR = 4
_FACTOR = 8


def rows_for_search(
    connection: sqlite3.Connection, index: MultiIndex, filter: Filter, codes: ArrayLike, radius: int | None
) -> Rows:
    """Rows that pass, among them all of those that are within the radius of one of the codes."""
    found = np.unique(_batch(index.search(np.atleast_2d(codes), radius)).ids)
    if _LOOK_UP_COST * len(found) >= len(index):
        return passing_rows(connection, filter)
    return _passing_of(connection, found, filter)


def rows_for_nearest(
    connection: sqlite3.Connection, index: MultiIndex, filter: Filter, codes: ArrayLike, k: int
) -> Rows:
    """Rows that pass, among them the k of them that are nearest to each of the codes."""
    asked = _FIRST_FACTOR * k
    while _LOOK_UP_COST * asked < len(index):
        hits = _batch(index.nearest(np.atleast_2d(codes), asked))
        found = np.unique(hits.ids)
        if _LOOK_UP_COST * len(found) >= len(index):
            break
        passing = _passing_of(connection, found, filter)
        before = np.concatenate(([0], np.cumsum(np.isin(hits.ids, passing))))
        if bool((np.diff(before[hits.offsets]) >= k).all()):
            return passing
        asked *= _FACTOR
    return passing_rows(connection, filter)


def passing_rows(connection: sqlite3.Connection, filter: Filter) -> Rows:
    """All rows that pass, ascending."""
    condition, parameters = where(filter)
    rows = connection.execute(f"SELECT row FROM items WHERE {condition} ORDER BY row", parameters)
    return np.fromiter((row for (row,) in rows), np.int64)


def _batch(hits: object) -> Hits:
    if not isinstance(hits, Hits):
        raise TypeError("a batch of codes gives a batch of hits")
    return hits


def _passing_of(connection: sqlite3.Connection, rows: Rows, filter: Filter) -> Rows:
    """Those of the rows that pass."""
    condition, parameters = where(filter)
    passing = look_up(
        connection, f"SELECT row FROM items WHERE row IN ({{}}) AND {condition}", rows.tolist(), parameters
    )
    return np.fromiter((row for (row,) in passing), np.int64)
