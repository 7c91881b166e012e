"""Searches in PostgreSQL: which rows are near, and what these are as hits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.store.filters import Filter
from hamtarget.store.items import FIRST_NAMED_ROW
from hamtarget.store.postgres.filters import where
from hamtarget.store.postgres.rows import bit_strings, id_of
from hamtarget.store.postgres.statements import flips_of, is_scan_faster, look_ups, nearest_sql, radius_sql
from hamtarget.store.results import Id, StoreHit, StoreHits, StoreQueryHits, same
from hamtarget.store.settings import Settings

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

Record = tuple[Any, ...]
"""Number of the query, from 1 on; row; distance; and name, where names were asked for."""

_place = itemgetter(2, 1)
_row = itemgetter(1)


class Finder:
    """Searches of one store."""

    def __init__(self, settings: Settings) -> None:
        """Searches of a store that was made for `settings`."""
        self._settings = settings
        # Once a hit has turned out to have a name, names are read with the hits.
        self._has_names = False

    def within(self, connection: Connection, codes: Codes, radius: int, filter: Filter | None) -> list[Record]:
        """Everything within the radius, in no order."""
        kind = self._settings.n_bits, self._settings.substrings, radius
        # One look-up for each substring is what a store is made for: nothing to weigh.
        has_flips = look_ups(*kind) > self._settings.substrings
        by_scan = has_flips and is_scan_faster(*kind, read_n_items(connection))
        one = len(codes) == 1
        wanted_codes = bit_strings(codes)[0] if one else _array(codes)
        parameters: list[Any] = [wanted_codes, radius, *(flips_of(*kind) if has_flips and not by_scan else ())]
        condition, wanted = where(filter, len(parameters) + 1) if filter else (None, [])
        return self._fetch(
            connection,
            lambda has_names: radius_sql(*kind, one=one, by_scan=by_scan, condition=condition, has_names=has_names),
            parameters + wanted,
        )

    def nearest(self, connection: Connection, codes: Codes, k: int, filter: Filter | None) -> list[Record]:
        """The k nearest of each query, and perhaps some more, in no order; the connection is in a transaction.

        The radius grows as long as looking rows up is faster than reading all of them.
        """
        n_items = read_n_items(connection)
        done: list[Record] = []
        left = np.arange(len(codes))
        radius = min(self._settings.radius, self._settings.n_bits - 1)
        while len(left) and radius < self._settings.n_bits:
            if is_scan_faster(self._settings.n_bits, self._settings.substrings, radius, n_items):
                break
            records = self.within(connection, codes[left], radius, filter)
            counts = np.bincount([record[0] - 1 for record in records], minlength=len(left))
            numbers = left.tolist()
            enough = counts >= k
            done += ((numbers[record[0] - 1] + 1, *record[1:]) for record in records if enough[record[0] - 1])
            left = left[~enough]
            radius += self._settings.substrings
        if len(left):
            condition, wanted = where(filter, 3) if filter else (None, [])
            records = self._fetch(
                connection,
                lambda has_names: nearest_sql(self._settings.n_bits, condition=condition, has_names=has_names),
                [_array(codes[left]), k, *wanted],
            )
            done += ((int(left[record[0] - 1]) + 1, *record[1:]) for record in records)
        return done

    def _fetch(self, connection: Connection, sql: Callable[[bool], str], parameters: Sequence[Any]) -> list[Record]:
        has_names = self._has_names
        records = connection.execute(sql(has_names), parameters, prepare=True, binary=True).fetchall()
        if not has_names and records and max(map(_row, records)) >= FIRST_NAMED_ROW:
            self._has_names = True
            return connection.execute(sql(True), parameters, prepare=True, binary=True).fetchall()
        return records


def read_n_items(connection: Connection) -> int:
    """Number of items."""
    found = connection.execute("SELECT n_items FROM state", prepare=True).fetchone()
    return int(found[0]) if found else 0


def one_query_hits(records: list[Record], limit: int | None) -> StoreQueryHits:
    """Hits of one query, nearest first."""
    ordered = sorted(records, key=_place)[:limit]
    if not ordered or len(ordered[0]) == 3:
        # Three times as fast as StoreHit(...); and ids, where no names were asked for, are rows.
        new = tuple.__new__
        return StoreQueryHits([new(StoreHit, (row, distance, None)) for _, row, distance in ordered])
    return StoreQueryHits([StoreHit(_id(record), record[2]) for record in ordered])


def batch_hits(records: list[Record], n_queries: int, limit: int | None) -> StoreHits:
    """Hits of a batch of queries, nearest first."""
    if records and len(records[0]) > 3:
        numbers = np.array([record[:3] for record in records], dtype=np.int64)
    else:
        numbers = np.array(records, dtype=np.int64).reshape(-1, 3)
    numbers = numbers[np.lexsort((numbers[:, 1], numbers[:, 2], numbers[:, 0]))]
    counts = np.bincount(numbers[:, 0] - 1, minlength=n_queries)
    if limit is not None:
        starts = np.cumsum(counts) - counts
        numbers = numbers[np.arange(len(numbers)) - starts[numbers[:, 0] - 1] < limit]
        counts = np.minimum(counts, limit)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    rows, distances = np.ascontiguousarray(numbers[:, 1]), numbers[:, 2].astype(np.uint16)
    return StoreHits(offsets, rows, distances, names=names_of(records))


def names_of(records: list[Record]) -> Callable[[NDArray[np.int64]], NDArray[Any]]:
    """What gives the ids of rows that are in the records."""
    ids = {record[1]: _id(record) for record in records if record[1] >= FIRST_NAMED_ROW}
    if not ids:
        return same

    def names(rows: NDArray[np.int64]) -> NDArray[Any]:
        if not len(rows) or rows.max() < FIRST_NAMED_ROW:
            return rows
        found = np.empty(len(rows), dtype=object)
        found[:] = [row if row < FIRST_NAMED_ROW else ids[row] for row in rows.tolist()]
        return found

    return names


def _id(record: Record) -> Id:
    return id_of(record[1], record[3] if len(record) > 3 else None)


def _array(codes: Codes) -> str:
    return "{" + ",".join(bit_strings(codes)) + "}"
