"""Searches in PostgreSQL: the rows that are near, and these as hits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.answer import Answer, Costs, Hit, Hits
from hamtarget.codes import MAX_BITS, Codes
from hamtarget.filters import Filter
from hamtarget.items import Id
from hamtarget.search.flat import FlatIndex
from hamtarget.search.requests import Request
from hamtarget.store.items.code_rows import item_rows
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.postgres.filters import where, where_item
from hamtarget.store.postgres.one_code import OneCodeSearch, once_each
from hamtarget.store.postgres.rows import bit_strings, codes_of, find_names, id_of, only_row
from hamtarget.store.postgres.schema import N_FURTHER_SQL
from hamtarget.store.postgres.statements import (
    FEW_QUERIES,
    block_sql,
    count_sql,
    flips_of,
    is_scan_faster,
    look_ups,
    radius_sql,
)
from hamtarget.store.settings import Settings

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

_BIG_ENDIAN = np.dtype(">i8")
# Hits that a statement returns at most for a query: with few of them, it is one of many queries at a time. A query
# that has more than many is compared with blocks of rows here.
_FEW_HITS = 4096
_MANY_HITS = 1 << 20
# Hits of one step, beside those that are kept; 16 bytes each.
_HITS_AT_ONCE = 1 << 22
_MOST_QUERIES = 1024
_BLOCK_ROWS = 65_536
_FIRST_ROW = -(2**63)
_row = itemgetter(1)


class WorkCount:
    """Work that the queries of a batch take, added up.

    Attributes:
        buckets: (queries,): values of substrings that were looked up.
        candidates: (queries,): rows that these led to, before their distances were computed.
    """

    def __init__(self, n_queries: int) -> None:
        """Begin with nothing."""
        self.buckets = np.zeros(n_queries, dtype=np.int64)
        self.candidates = np.zeros(n_queries, dtype=np.int64)

    def add_look_ups(self, queries: NDArray[np.int64], n_values: int, n_rows: NDArray[np.int64]) -> None:
        """Add look-ups of so many values for each of the queries, and the rows that they led to."""
        self.buckets[queries] += n_values
        self.candidates[queries] += n_rows

    def costs(self, comparisons: NDArray[np.int64] | None = None) -> Costs:
        """Return the work as that of a search, in which so many embeddings were compared."""
        return Costs(self.buckets, self.candidates, np.zeros_like(self.buckets) if comparisons is None else comparisons)

    def add_scan(self, queries: NDArray[np.int64], n_items: int) -> None:
        """Add a reading of all items for each of the queries."""
        self.candidates[queries] += n_items


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Rows that are near, in no order.

    Attributes:
        queries: (hits,): numbers of the queries, from 0 on.
        rows: (hits,).
        distances: (hits,).
        ids: of those items that are not their own ids, by their first rows.
        work: that finding them took, if it was counted.
    """

    queries: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.int64]
    ids: dict[int, Id]
    work: WorkCount | None = None

    def of(self, numbers: NDArray[np.int64], chosen: NDArray[np.bool_]) -> Found:
        """Return what was found for the chosen ones of the queries, whose true numbers are these."""
        here = chosen[self.queries]
        return Found(numbers[self.queries[here]], self.rows[here], self.distances[here], self.ids)

    def first(self, n_queries: int, limit: int) -> Found:
        """Return the nearest of each query, at most `limit`."""
        order, _ = self._nearest_first(n_queries, limit)
        return replace(self, queries=self.queries[order], rows=self.rows[order], distances=self.distances[order])

    def hits(self, n_queries: int, limit: int | None) -> Answer:
        """Return hits of a batch of queries, nearest first."""
        order, counts = self._nearest_first(n_queries, limit)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        names = self.names if self.ids else None
        return Answer(offsets, self.rows[order], self.distances[order].astype(np.uint16), names=names)

    def _nearest_first(self, n_queries: int, limit: int | None) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return places of the hits by query, nearest first, at most `limit` of each, and how many each query has."""
        order = self._order(n_queries)
        counts = np.bincount(self.queries, minlength=n_queries)
        if limit is not None:
            starts = np.cumsum(counts) - counts
            order = order[np.arange(len(order)) - np.repeat(starts, counts) < limit]
            counts = np.minimum(counts, limit)
        return order, counts

    def _order(self, n_queries: int) -> NDArray[np.int64]:
        """Return places of the hits in the order of queries, distances and rows."""
        if not len(self.rows):
            return np.empty(0, dtype=np.int64)
        first, last = int(self.rows.min()), int(self.rows.max())
        span = last - first + 1
        if n_queries * (MAX_BITS + 1) * span > np.iinfo(np.int64).max:
            return np.lexsort((self.rows, self.distances, self.queries))
        # One key is sorted in half of the time that three take.
        return np.argsort((self.queries * (MAX_BITS + 1) + self.distances) * span + (self.rows - first))

    def names(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return ids of rows that are among these."""
        return id_array(self.ids, rows)

    def total_work(self) -> tuple[int, int]:
        """Return buckets and candidates of all queries; 0 if they were not counted."""
        return (0, 0) if self.work is None else (int(self.work.buckets.sum()), int(self.work.candidates.sum()))


class Finder:
    """Searches of one store."""

    def __init__(self, settings: Settings) -> None:
        """Prepare searches of a store with these settings."""
        self._settings = settings
        self._searches: dict[tuple[int, bool], OneCodeSearch] = {}
        # Once a hit has turned out to have a name, names are read with the hits.
        self._has_names = False

    def near_one(self, connection: Connection, request: Request) -> Hits | None:
        """Return hits of one query, the fastest way; None where the server refuses it, and `find` must ask.

        The same if rows are to be counted, or there may be more hits than can be held before the limit counts.
        """
        code, radius, limit, limits = request.codes[0], request.radius, request.limit, request.limits
        if radius >= self._settings.substrings or (limits is not None and limits.bounds_rows):
            return None
        has_names = self._has_names
        found = self._one_code_search(radius, has_names).near(connection, code)
        if found and not has_names and max(map(_row, found)) >= FIRST_NAMED_ROW:
            self._has_names = has_names = True
            found = self._one_code_search(radius, has_names).near(connection, code)
        if found is None or len(found) > _FEW_HITS:
            return None
        found = once_each(found)[:limit]
        if limits is not None:
            limits.take(hits=len(found))
        # Three times as fast as Hit(...).
        new = tuple.__new__
        if not has_names:
            return Hits([new(Hit, (row, distance, None)) for distance, row, _ in found])
        return Hits([new(Hit, (id_of(row, name), distance, None)) for distance, row, name in found])

    def _one_code_search(self, radius: int, has_names: bool) -> OneCodeSearch:
        search = self._searches.get((radius, has_names))
        if search is None:
            kept = self._settings
            search = OneCodeSearch(kept.n_bits, kept.substrings, radius, most=_FEW_HITS + 1, has_names=has_names)
            # Two threads may have made one each; whose connections are ready is what one of them knows.
            search = self._searches.setdefault((radius, has_names), search)
        return search

    def find_at_once(self, connection: Connection, request: Request, filter: Filter | None) -> Found | None:
        """Return everything that a request leads to, by one statement; None where that may take more.

        Args:
            connection: outside of any transaction.
            request: as in `find`.
            filter: as in `find`.
        """
        kind = self._settings.n_bits, self._settings.substrings, request.radius
        task = _Task(connection, filter, request._replace(threads=1), None)
        n_queries = len(request.codes)
        if request.is_nearest or task.is_counted or n_queries > _MOST_QUERIES or look_ups(*kind) > kind[1]:
            return None
        found, has_more = self._ask(
            task, request.codes, slice(0, n_queries), request.radius, request.limit, _FEW_HITS, flips=[]
        )
        if has_more.any():
            return None
        task.take_hits(found)
        return found

    def find(self, connection: Connection, request: Request, filter: Filter | None) -> Found:
        """Return everything that a request leads to.

        What is held at a time, beside the answer, does not grow with rows x queries.

        Args:
            connection: in a transaction.
            request: for all within a radius, or for the nearest. Counting its work takes a statement of its own.
            filter: that payloads must pass.

        Raises:
            LimitError: it is more than the request's limits allow.
        """
        counted = WorkCount(len(request.codes)) if request.costs else None
        task = _Task(connection, filter, request, counted)
        if request.is_nearest:
            found = self._nearest(task, request.codes, request.limit or 1)
        else:
            found = self._within(task, request.codes, request.radius, request.limit)
        return found if counted is None else replace(found, work=counted)

    def _within(self, task: _Task, codes: Codes, radius: int, limit: int | None) -> Found:
        """Return everything within the radius, or the nearest of it."""
        left = np.arange(len(codes))
        if self._is_scan_faster(task, radius, len(codes)):
            return self._scan(task, codes, left, radius, limit)
        done: list[Found] = []
        # Few queries have many hits. Those that have are looked up again, and then compared with all rows.
        for most in (_FEW_HITS, _MANY_HITS):
            has_more = np.zeros(len(left), dtype=bool)
            for found, here in self._look_up(task, codes[left], left, radius, limit, most):
                task.take_hits(found)
                done.append(found.of(left, ~here))
                has_more |= here
            left = left[has_more]
        if len(left):
            done.append(self._read_all(task, codes[left], radius, limit).of(left, np.ones(len(left), dtype=bool)))
        return _all_of(done)

    def _nearest(self, task: _Task, codes: Codes, k: int) -> Found:
        """Return the k nearest of each query.

        The radius grows as long as looking rows up is faster than reading all of them.
        """
        done: list[Found] = []
        left = np.arange(len(codes))
        radius = min(self._settings.radius, self._settings.n_bits - 1)
        most = _FEW_HITS if k <= _FEW_HITS else _MANY_HITS
        while len(left) and k <= most and radius < self._settings.n_bits:
            if self._is_scan_faster(task, radius, len(left), always=True):
                break
            enough = np.zeros(len(left), dtype=bool)
            for found, _ in self._look_up(task, codes[left], left, radius, k, most):
                here = np.bincount(found.queries, minlength=len(left)) >= k
                kept = found.of(left, here)
                task.take_hits(kept)
                done.append(kept)
                enough |= here
            left = left[~enough]
            radius += self._settings.substrings
        if len(left):
            found = self._scan(task, codes[left], left, self._settings.n_bits, k)
            done.append(found.of(left, np.ones(len(left), dtype=bool)))
        return _all_of(done)

    def _is_scan_faster(self, task: _Task, radius: int, n_queries: int, *, always: bool = False) -> bool:
        """Return True if reading every row takes no longer than looking rows up.

        One look-up for each substring is what a store is made for: nothing to weigh, unless `always`.
        """
        kind = self._settings.n_bits, self._settings.substrings, radius
        if not always and look_ups(*kind) <= self._settings.substrings:
            return False
        return is_scan_faster(*kind, task.n_items, n_queries)

    def _look_up(
        self, task: _Task, codes: Codes, numbers: NDArray[np.int64], radius: int, limit: int | None, most: int
    ) -> Iterator[tuple[Found, NDArray[np.bool_]]]:
        """Yield what looking up some of the queries after others finds, and which of them have more than `most` hits.

        Of a query that has more, and may have, nothing is returned. `numbers` are those of the queries, by which work
        is counted.
        """
        kind = self._settings.n_bits, self._settings.substrings, radius
        flips = flips_of(*kind) if look_ups(*kind) > self._settings.substrings else []
        for here in _parts(len(codes), most if limit is None else min(limit, most)):
            if task.is_counted:
                counted = task.connection.execute(count_sql(*kind), [_array(codes[here]), *flips], prepare=True)
                n_rows = np.array([rows for _, rows in sorted(counted.fetchall())], dtype=np.int64)
                task.take_rows(int(n_rows.sum()))
                if task.work is not None:
                    task.work.add_look_ups(numbers[here], look_ups(*kind), n_rows)
            yield self._ask(task, codes, here, radius, limit, most, flips=flips)

    def _scan(self, task: _Task, codes: Codes, numbers: NDArray[np.int64], radius: int, limit: int | None) -> Found:
        """Return everything within the radius, or the nearest of it, by reading all rows.

        The server compares them with a few queries. With more, it takes less time to compare them here.
        """
        if task.work is not None:
            task.work.add_scan(numbers, task.n_items)
        if len(codes) > FEW_QUERIES:
            return self._read_all(task, codes, radius, limit)
        done: list[Found] = []
        for number in range(len(codes)):
            task.take_rows(task.n_items)
            found, has_more = self._ask(task, codes, slice(number, number + 1), radius, limit, _MANY_HITS, flips=None)
            if has_more.any():
                found = self._read_all(task, codes[[number]], radius, limit)
                found = found.of(np.array([number]), np.ones(1, dtype=bool))
            else:
                task.take_hits(found)
            done.append(found)
        return _all_of(done)

    def _ask(
        self,
        task: _Task,
        codes: Codes,
        here: slice,
        radius: int,
        limit: int | None,
        most: int,
        *,
        flips: list[str] | None,
    ) -> tuple[Found, NDArray[np.bool_]]:
        """Return what a statement finds for some of the queries, and which of them have more than `most` hits.

        Without flips, not even an empty list of them, it reads all rows.
        """
        is_sorted = limit is not None and limit <= most
        most = limit if limit is not None and is_sorted else most + 1
        parameters: list[Any] = [_array(codes[here]), most, *(flips or ())]
        condition, wanted = task.condition(len(parameters) + 1, by_scan=flips is None)
        found = self._fetch(
            task.connection,
            lambda has_names: radius_sql(
                self._settings.n_bits,
                self._settings.substrings,
                radius,
                by_scan=flips is None,
                condition=condition,
                has_names=has_names,
                is_sorted=is_sorted,
            ),
            parameters + wanted,
        )
        found = replace(found, queries=found.queries + here.start)
        has_more = np.zeros(len(codes), dtype=bool)
        if not is_sorted:
            has_more = np.bincount(found.queries, minlength=len(codes)) >= most
            if has_more.any():
                found = found.of(np.arange(len(codes)), ~has_more)
        return found, has_more

    def _fetch(self, connection: Connection, sql: Callable[[bool], str], parameters: Sequence[Any]) -> Found:
        has_names = self._has_names
        found = _unpacked(connection.execute(sql(has_names), parameters, prepare=True, binary=True).fetchall())
        if not has_names and len(found.rows) and found.rows.max() >= FIRST_NAMED_ROW:
            self._has_names = True
            return self._fetch(connection, sql, parameters)
        return found

    def _read_all(self, task: _Task, codes: Codes, radius: int, limit: int | None) -> Found:
        """Return everything within the radius, or the nearest of it, by reading blocks of rows, and comparing here."""
        done: list[Found] = []
        n_taken = 0
        for index in self._blocks(task):
            found: list[Found] = []
            for here in _parts(len(codes), min(len(index), limit or len(index))):
                task.take_rows(len(index) * len(codes[here]))
                hits = index.find(Request(codes[here], radius, limit, threads=task.threads))
                queries = np.repeat(np.arange(here.start, here.start + len(hits)), np.diff(hits.offsets))
                found.append(Found(queries, hits.rows, hits.distances.astype(np.int64), {}))
                if limit is None:
                    task.take_hits(found[-1])
            done += found
            if limit is not None:
                done = [_all_of(done).first(len(codes), limit)]
                n_taken += task.take_hits(done[0], but=n_taken)
        whole = _all_of(done)
        named = np.unique(item_rows(whole.rows[whole.rows >= FIRST_NAMED_ROW]))
        return replace(whole, ids=find_names(task.connection, named.tolist())) if len(named) else whole

    def _blocks(self, task: _Task) -> Iterator[FlatIndex]:
        """Yield all items that pass the filter, block by block."""
        condition, wanted = task.condition(3, by_scan=True)
        first = _FIRST_ROW
        while True:
            if task.filter:
                task.take_rows(min(_BLOCK_ROWS, task.n_items))
            record = task.connection.execute(
                block_sql(condition), [first, _BLOCK_ROWS, *wanted], prepare=True, binary=True
            ).fetchone()
            last, rows, codes = record or (None, None, None)
            if last is None:
                return
            index = FlatIndex(self._settings.n_bits)
            index.add(np.frombuffer(rows, _BIG_ENDIAN).astype(np.int64), codes_of(codes, self._settings.n_bits))
            yield index
            if len(index) < _BLOCK_ROWS:
                return
            first = last + 1


class _Task:
    """A search under way, for all of its steps.

    Attributes:
        connection: in a transaction.
        filter: that payloads must pass.
        threads: that compare codes.
        work: that is counted, if it is.
    """

    def __init__(
        self, connection: Connection, filter: Filter | None, request: Request, counted: WorkCount | None
    ) -> None:
        self.connection = connection
        self.filter = filter
        self.threads = request.threads
        self.work = counted
        self._limits = request.limits

    @cached_property
    def n_items(self) -> int:
        """Number of rows in the store, one for each code of an item."""
        return read_n_codes(self.connection)

    def condition(self, first: int, *, by_scan: bool) -> tuple[str | None, list[str]]:
        """Return the filter as a condition of SQL, with parameters from number `first` on, and the parameters.

        Args:
            first: number of the first parameter.
            by_scan: True if it is for any row of `items i`, False if it is for the first row of an item.
        """
        if not self.filter:
            return None, []
        # Only where it must be looked up whose fields count: an index of fields serves the plain condition.
        is_of_item = by_scan and read_has_several(self.connection)
        return where_item(self.filter, first) if is_of_item else where(self.filter, first)

    @property
    def is_counted(self) -> bool:
        """True if it must be known how many rows look-ups lead to."""
        return self.work is not None or (self._limits is not None and self._limits.bounds_rows)

    def take_rows(self, n_rows: int) -> None:
        """Count rows that are read."""
        if self._limits is not None:
            self._limits.take(rows=n_rows)
            self._limits.check()

    def take_hits(self, found: Found, *, but: int = 0) -> int:
        """Count hits but those that have been counted before, and return how many these are."""
        n_hits = len(found.rows) - but
        if self._limits is not None:
            self._limits.take(hits=n_hits)
        return n_hits


def _parts(n_queries: int, most: int) -> Iterator[slice]:
    """Yield parts of a batch whose hits, at most so many each, can be held."""
    step = min(_MOST_QUERIES, max(1, _HITS_AT_ONCE // most))
    for start in range(0, n_queries, step):
        yield slice(start, min(start + step, n_queries))


def id_array(ids: dict[int, Id], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the ids of rows: the rows themselves, or an array of objects if any of them has a name in `ids`."""
    if not len(rows) or rows.max() < FIRST_NAMED_ROW:
        return rows
    found = np.empty(len(rows), dtype=object)
    found[:] = [row if row < FIRST_NAMED_ROW else ids[row] for row in item_rows(rows).tolist()]
    return found


def read_n_items(connection: Connection) -> int:
    """Return the number of items."""
    n_codes, n_further = only_row(connection, f"SELECT n_items, {N_FURTHER_SQL} FROM state")
    return int(n_codes - (n_further or 0))


def read_n_codes(connection: Connection) -> int:
    """Return the number of codes, which is that of rows."""
    return int(only_row(connection, "SELECT n_items FROM state")[0])


def read_has_several(connection: Connection) -> bool:
    """Return True if an item has several codes."""
    return bool(only_row(connection, f"SELECT {N_FURTHER_SQL} FROM state")[0])


def _unpacked(records: Sequence[tuple[Any, ...]]) -> Found:
    """Return what a statement for a batch found: number of the query, from 1 on; rows; distances; perhaps names."""
    records = [record for record in records if record[1]]
    rows, distances = (
        np.frombuffer(b"".join([record[column] for record in records]), _BIG_ENDIAN).astype(np.int64)
        for column in (1, 2)
    )
    numbers = np.array([record[0] - 1 for record in records], dtype=np.int64)
    counts = np.array([len(record[1]) // _BIG_ENDIAN.itemsize for record in records], dtype=np.int64)
    ids: dict[int, Id] = {}
    if records and len(records[0]) > 3:
        names = [name for record in records for name in record[3]]
        named = zip(item_rows(rows).tolist(), names, strict=True)
        ids = {row: id_of(row, name) for row, name in named if row >= FIRST_NAMED_ROW}
    return Found(np.repeat(numbers, counts), rows, distances, ids)


def _all_of(parts: list[Found]) -> Found:
    if not parts:
        return _unpacked([])
    return Found(
        np.concatenate([part.queries for part in parts]),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.distances for part in parts]),
        {row: id for part in parts for row, id in part.ids.items()},
    )


def _array(codes: Codes) -> str:
    return "{" + ",".join(bit_strings(codes)) + "}"
