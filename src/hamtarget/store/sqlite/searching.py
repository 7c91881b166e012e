"""Searches with a filter: by checking hits, or by searching only what passes; whichever reads less, both exact."""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import NDArray

from hamtarget.filters import Filter
from hamtarget.search.multi import MultiIndex
from hamtarget.search.requests import Request
from hamtarget.search.results import BatchHits
from hamtarget.store.sqlite.filters import where
from hamtarget.store.sqlite.rows import look_up

Rows = NDArray[np.int64]

# Looking up a row by its number takes about so many times as long as reading it in order.
_LOOK_UP_COST = 4
# For the nearest, so many times as many rows as wanted are looked at first, and more when too few of them pass.
_FIRST_FACTOR = 4
_FACTOR = 8


def find_passing(
    connection: sqlite3.Connection, index: MultiIndex, filter: Filter, request: Request, *, threads: int, cost: bool
) -> BatchHits:
    """Return the hits of a request that pass a filter; what finding the passing rows took is counted as well."""
    found, rows = (_look_for_nearest if request.is_nearest else _look)(connection, index, filter, request)
    hits = index.find_batch(request._replace(ids=rows), threads=threads, cost=cost)
    for before in found:
        if hits.costs is not None and before.costs is not None:
            hits = hits.with_costs(hits.costs + before.costs)
    return hits


def _look(
    connection: sqlite3.Connection, index: MultiIndex, filter: Filter, request: Request
) -> tuple[list[BatchHits], Rows]:
    """Return the searches that were made, and rows that pass: among them all of those that the request leads to."""
    found = index.find_batch(_unranked(request), cost=True)
    rows = np.unique(found.rows)
    if _LOOK_UP_COST * len(rows) >= len(index):
        return [found], _passing(connection, filter)
    return [found], _passing_of(connection, rows, filter)


def _look_for_nearest(
    connection: sqlite3.Connection, index: MultiIndex, filter: Filter, request: Request
) -> tuple[list[BatchHits], Rows]:
    """Return the same for the nearest rows: among those that pass are the nearest of them for each query."""
    wanted = request.limit or len(index)
    n_looked_at = _FIRST_FACTOR * wanted
    found = []
    while _LOOK_UP_COST * n_looked_at < len(index):
        hits = index.find_batch(_unranked(request)._replace(limit=n_looked_at), cost=True)
        found.append(hits)
        rows = np.unique(hits.rows)
        if _LOOK_UP_COST * len(rows) >= len(index):
            break
        passing = _passing_of(connection, rows, filter)
        before = np.concatenate(([0], np.cumsum(np.isin(hits.rows, passing))))
        if bool((np.diff(before[hits.offsets]) >= wanted).all()):
            return found, passing
        n_looked_at *= _FACTOR
    return found, _passing(connection, filter)


def _unranked(request: Request) -> Request:
    """Return the request for all rows that are looked at before some of them are chosen."""
    return request._replace(limit=None, rerank=0, embedding=None, comparisons=None)


def _passing(connection: sqlite3.Connection, filter: Filter) -> Rows:
    """Return all rows that pass, ascending."""
    condition, parameters = where(filter)
    rows = connection.execute(f"SELECT row FROM items WHERE {condition} ORDER BY row", parameters)
    return np.fromiter((row for (row,) in rows), np.int64)


def _passing_of(connection: sqlite3.Connection, rows: Rows, filter: Filter) -> Rows:
    """Return those of the rows that pass, ascending."""
    condition, parameters = where(filter)
    passing = look_up(
        connection, f"SELECT row FROM items WHERE row IN ({{}}) AND {condition}", rows.tolist(), parameters
    )
    return np.unique(np.fromiter((row for (row,) in passing), np.int64))
