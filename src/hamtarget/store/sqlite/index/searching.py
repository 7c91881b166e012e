"""Searches with a filter: by checking hits, or by searching only what passes; whichever reads less, both exact."""

from __future__ import annotations

import sqlite3

import numpy as np
from numpy.typing import NDArray

from hamtarget.answer import Answer, Costs
from hamtarget.filters import Filter
from hamtarget.search.distinct import distinct
from hamtarget.search.multi import MultiIndex
from hamtarget.search.requests import Request
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW, item_rows
from hamtarget.store.sqlite.tables.database import bounded
from hamtarget.store.sqlite.tables.filters import where
from hamtarget.store.sqlite.tables.rows import look_up

Rows = NDArray[np.int64]

# Looking up a row by its number takes about so many times as long as reading it in order.
_LOOK_UP_COST = 4
# For the nearest, so many times as many rows as wanted are looked at first, and more when too few of them pass.
_FIRST_FACTOR = 4
_FACTOR = 8
# Hits that are held at a time while queries are looked at: memory does not grow with rows x queries.
_MOST_HITS = 2_000_000


def find_passing(connection: sqlite3.Connection, index: MultiIndex, filter: Filter, request: Request) -> Answer:
    """Return the hits of a request that pass a filter; what finding the passing rows took is counted as well."""
    look = _look_for_nearest if request.is_nearest else _look
    took = _no_costs(len(request.codes))
    with bounded(connection, request.limits):
        rows = look(connection, index, filter, _unranked(request), took)
    hits = index.find(request._replace(ids=rows))
    return hits if hits.costs is None else hits.with_costs(hits.costs + took)


def _look(connection: sqlite3.Connection, index: MultiIndex, filter: Filter, request: Request, took: Costs) -> Rows:
    """Return rows that pass: among them all of those that the request leads to. Add what was read to `took`.

    Queries are looked at in blocks. As soon as they lead to a large part of all rows, those that pass are read instead.
    """
    rows = np.empty(0, dtype=np.int64)
    start, size = 0, 1
    while start < len(request.codes):
        found = index.find(request.part(start, start + size))
        _count(took, slice(start, start + len(found)), found)
        rows = distinct(np.concatenate((rows, found.rows)))
        if _LOOK_UP_COST * len(rows) >= len(index):
            return _passing(connection, index, filter, request)
        start += size
        size = max(1, min(2 * size, size * _MOST_HITS // max(1, len(found.rows))))
    return _passing_of(connection, rows, filter, request)


def _look_for_nearest(
    connection: sqlite3.Connection, index: MultiIndex, filter: Filter, request: Request, took: Costs
) -> Rows:
    """Return the same for the nearest rows: among those that pass are the nearest of them for each query."""
    wanted = len(index) if request.limit is None else request.limit
    n_looked_at = _FIRST_FACTOR * wanted
    while _LOOK_UP_COST * n_looked_at < len(index) and n_looked_at * len(request.codes) <= _MOST_HITS:
        hits = index.find(request._replace(limit=n_looked_at))
        _count(took, slice(None), hits)
        rows = distinct(hits.rows)
        if _LOOK_UP_COST * len(rows) >= len(index):
            break
        passing = _passing_of(connection, rows, filter, request)
        before = np.concatenate(([0], np.cumsum(np.isin(hits.rows, passing))))
        if bool((np.diff(before[hits.offsets]) >= wanted).all()):
            return passing
        n_looked_at *= _FACTOR
        # As many of the next ones will pass: if that is too few again, they need not be looked at.
        if n_looked_at * len(passing) < 2 * wanted * len(rows):
            break
    return _passing(connection, index, filter, request)


def _no_costs(n_queries: int) -> Costs:
    return Costs(*(np.zeros(n_queries, dtype=np.int64) for _ in range(3)))


def _count(took: Costs, queries: slice, hits: Answer) -> None:
    """Add the costs of hits to those of their queries."""
    if hits.costs is None:
        raise TypeError("a search that was asked to count did not")
    took.buckets[queries] += hits.costs.buckets
    took.candidates[queries] += hits.costs.candidates
    took.comparisons[queries] += hits.costs.comparisons


def _unranked(request: Request) -> Request:
    """Return the request for all rows that are looked at before some of them are chosen, by the limit among others."""
    limit = request.limit if request.is_nearest else None
    # What is found here are no hits of the request yet.
    limits = None if request.limits is None else request.limits.without_hits()
    return request._replace(
        limit=limit, rerank=0, embedding=None, comparisons=None, limits=limits, threads=1, costs=True
    )


def _passing(connection: sqlite3.Connection, index: MultiIndex, filter: Filter, request: Request) -> Rows:
    """Return all rows that pass, ascending."""
    condition, parameters = where(filter)
    _take_rows(request, len(index))
    found = connection.execute(f"SELECT row FROM items WHERE {condition} ORDER BY row", parameters)
    rows = np.fromiter((row for (row,) in found), np.int64)
    if not len(rows) or rows[-1] < FIRST_SEVERAL_ROW:
        return rows
    return _codes_of(index.ids(), rows)


def _passing_of(connection: sqlite3.Connection, rows: Rows, filter: Filter, request: Request) -> Rows:
    """Return those of the rows that pass, ascending."""
    condition, parameters = where(filter)
    items = distinct(item_rows(rows))
    _take_rows(request, len(items))
    found = look_up(
        connection, f"SELECT row FROM items WHERE row IN ({{}}) AND {condition}", items.tolist(), parameters
    )
    passing = distinct(np.fromiter((row for (row,) in found), np.int64))
    return _codes_of(rows, passing)


def _codes_of(rows: Rows, items: Rows) -> Rows:
    """Return those of the rows, ascending, that are codes of the items, which are known by their first rows."""
    return rows[np.isin(item_rows(rows), items)]


def _take_rows(request: Request, n_rows: int) -> None:
    """Count rows whose payloads the filter looks at."""
    if request.limits is not None:
        request.limits.take(rows=n_rows)
