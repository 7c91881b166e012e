"""Searches with a filter: by checking hits, or by searching only what passes; whichever reads less, both exact."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hamtarget.search import Hits
from hamtarget.store.filters import Filter, where
from hamtarget.store.rows import look_up

Rows = NDArray[np.int64]

# Looking up a row by its number takes about so many times as long as reading it in order.
_LOOK_UP_COST = 4
# `nearest` looks at so many times k rows at first, and at more when too few of them pass.
_FIRST_FACTOR = 4
_FACTOR = 8


def rows_for_search(connection: sqlite3.Connection, n_rows: int, filter: Filter, *, search: Callable[[], Hits]) -> Rows:
    """Rows that pass, among them all that a search within a radius finds; `search` gives its hits without a limit."""
    found = np.unique(search().ids)
    if _LOOK_UP_COST * len(found) >= n_rows:
        return passing_rows(connection, filter)
    return _passing_of(connection, found, filter)


def rows_for_nearest(
    connection: sqlite3.Connection, n_rows: int, filter: Filter, k: int, *, nearest: Callable[[int], Hits]
) -> Rows:
    """Rows that pass, among them the k nearest of each query; `nearest` gives as many rows as it is asked for."""
    asked = _FIRST_FACTOR * k
    while _LOOK_UP_COST * asked < n_rows:
        hits = nearest(asked)
        found = np.unique(hits.ids)
        if _LOOK_UP_COST * len(found) >= n_rows:
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


def _passing_of(connection: sqlite3.Connection, rows: Rows, filter: Filter) -> Rows:
    """Those of the rows that pass."""
    condition, parameters = where(filter)
    passing = look_up(
        connection, f"SELECT row FROM items WHERE row IN ({{}}) AND {condition}", rows.tolist(), parameters
    )
    return np.fromiter((row for (row,) in passing), np.int64)
