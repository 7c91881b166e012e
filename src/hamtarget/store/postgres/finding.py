"""Searches in PostgreSQL: the rows that are near, and these as hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import MAX_BITS, Codes
from hamtarget.filters import Filter
from hamtarget.items import Id
from hamtarget.search.requests import Request
from hamtarget.search.results import BatchHits, Hit, Hits
from hamtarget.store.ids import FIRST_NAMED_ROW
from hamtarget.store.postgres.filters import where
from hamtarget.store.postgres.one_code import OneCodeSearch
from hamtarget.store.postgres.rows import bit_strings, id_of
from hamtarget.store.postgres.statements import count_sql, flips_of, is_scan_faster, look_ups, nearest_sql, radius_sql
from hamtarget.store.settings import Settings

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

_BIG_ENDIAN = np.dtype(">i8")
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
        ids: of those rows that are not their own ids.
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

    def hits(self, n_queries: int, limit: int | None) -> BatchHits:
        """Return hits of a batch of queries, nearest first."""
        order = self._order(n_queries)
        counts = np.bincount(self.queries, minlength=n_queries)
        if limit is not None:
            starts = np.cumsum(counts) - counts
            order = order[np.arange(len(order)) - np.repeat(starts, counts) < limit]
            counts = np.minimum(counts, limit)
        offsets = np.concatenate(([0], np.cumsum(counts)))
        names = self.names if self.ids else None
        return BatchHits(offsets, self.rows[order], self.distances[order].astype(np.uint16), names=names)

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

    def near_one(self, connection: Connection, code: Codes, radius: int, limit: int | None) -> Hits | None:
        """Return hits of one query, the fastest way; None where the server refuses it, and `find` must ask."""
        if radius >= self._settings.substrings:
            return None
        has_names = self._has_names
        found = self._one_code_search(radius, has_names).near(connection, code)
        if found and not has_names and max(map(_row, found)) >= FIRST_NAMED_ROW:
            self._has_names = has_names = True
            found = self._one_code_search(radius, has_names).near(connection, code)
        if found is None:
            return None
        # Three times as fast as Hit(...).
        new = tuple.__new__
        if not has_names:
            return Hits([new(Hit, (row, distance, None)) for distance, row, _ in found[:limit]])
        return Hits([new(Hit, (id_of(row, name), distance, None)) for distance, row, name in found[:limit]])

    def _one_code_search(self, radius: int, has_names: bool) -> OneCodeSearch:
        search = self._searches.get((radius, has_names))
        if search is None:
            kept = self._settings
            search = OneCodeSearch(kept.n_bits, kept.substrings, radius, has_names=has_names)
            # Two threads may have made one each; whose connections are ready is what one of them knows.
            search = self._searches.setdefault((radius, has_names), search)
        return search

    def find(self, connection: Connection, request: Request, filter: Filter | None, *, cost: bool) -> Found:
        """Return everything that a request leads to, and perhaps more than its limit.

        Args:
            connection: in a transaction, if the nearest are wanted or work is counted.
            request: for all within a radius, or for the nearest.
            filter: that payloads must pass.
            cost: if True, the work is counted, which takes a statement of its own.
        """
        work = WorkCount(len(request.codes)) if cost else None
        if request.is_nearest:
            found = self._nearest(connection, request.codes, request.limit or 1, filter, work)
        else:
            numbers = np.arange(len(request.codes))
            found = self._within(connection, request.codes, request.radius, filter, work, numbers)
        return found if work is None else replace(found, work=work)

    def _within(
        self,
        connection: Connection,
        codes: Codes,
        radius: int,
        filter: Filter | None,
        work: WorkCount | None,
        numbers: NDArray[np.int64],
    ) -> Found:
        """Return everything within the radius; `numbers` are those of the queries, by which work is counted."""
        kind = self._settings.n_bits, self._settings.substrings, radius
        # One look-up for each substring is what a store is made for: nothing to weigh.
        has_flips = look_ups(*kind) > self._settings.substrings
        by_scan = has_flips and is_scan_faster(*kind, read_n_items(connection))
        parameters: list[Any] = [_array(codes), *(flips_of(*kind) if has_flips and not by_scan else ())]
        if work is not None and by_scan:
            work.add_scan(numbers, read_n_items(connection))
        elif work is not None:
            counted = connection.execute(count_sql(*kind), parameters, prepare=True).fetchall()
            work.add_look_ups(numbers, look_ups(*kind), np.array([rows for _, rows in sorted(counted)], dtype=np.int64))
        condition, wanted = where(filter, len(parameters) + 1) if filter else (None, [])
        return self._fetch(
            connection,
            lambda has_names: radius_sql(*kind, by_scan=by_scan, condition=condition, has_names=has_names),
            parameters + wanted,
        )

    def _nearest(
        self, connection: Connection, codes: Codes, k: int, filter: Filter | None, work: WorkCount | None
    ) -> Found:
        """Return the k nearest of each query, and perhaps some more.

        The radius grows as long as looking rows up is faster than reading all of them.
        """
        n_items = read_n_items(connection)
        done: list[Found] = []
        left = np.arange(len(codes))
        radius = min(self._settings.radius, self._settings.n_bits - 1)
        while len(left) and radius < self._settings.n_bits:
            if is_scan_faster(self._settings.n_bits, self._settings.substrings, radius, n_items):
                break
            found = self._within(connection, codes[left], radius, filter, work, left)
            enough = np.bincount(found.queries, minlength=len(left)) >= k
            done.append(found.of(left, enough))
            left = left[~enough]
            radius += self._settings.substrings
        if len(left):
            if work is not None:
                work.add_scan(left, n_items)
            condition, wanted = where(filter, 3) if filter else (None, [])
            found = self._fetch(
                connection,
                lambda has_names: nearest_sql(self._settings.n_bits, condition=condition, has_names=has_names),
                [_array(codes[left]), k, *wanted],
            )
            done.append(found.of(left, np.ones(len(left), dtype=bool)))
        return _all_of(done)

    def _fetch(self, connection: Connection, sql: Callable[[bool], str], parameters: Sequence[Any]) -> Found:
        has_names = self._has_names
        found = _unpacked(connection.execute(sql(has_names), parameters, prepare=True, binary=True).fetchall())
        if not has_names and len(found.rows) and found.rows.max() >= FIRST_NAMED_ROW:
            self._has_names = True
            return self._fetch(connection, sql, parameters)
        return found


def id_array(ids: dict[int, Id], rows: NDArray[np.int64]) -> NDArray[Any]:
    """Return the ids of rows: the rows themselves, or an array of objects if any of them has a name in `ids`."""
    if not len(rows) or rows.max() < FIRST_NAMED_ROW:
        return rows
    found = np.empty(len(rows), dtype=object)
    found[:] = [row if row < FIRST_NAMED_ROW else ids[row] for row in rows.tolist()]
    return found


def read_n_items(connection: Connection) -> int:
    """Return the number of items."""
    found = connection.execute("SELECT n_items FROM state", prepare=True).fetchone()
    return int(found[0]) if found else 0


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
        ids = {row: id_of(row, name) for row, name in zip(rows.tolist(), names, strict=True) if row >= FIRST_NAMED_ROW}
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
