"""Row numbers of hits as ids: most are their own id, the others are looked up once and remembered."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget.search import Hits
from hamtarget.store.items import FIRST_NAMED_ROW
from hamtarget.store.results import StoreHit, StoreHits, StoreQueryHits
from hamtarget.store.rows import find_ids


class _Table(NamedTuple):
    """Ids of consecutive rows."""

    first: int
    """The first row."""
    ids: NDArray[np.object_]
    is_known: NDArray[np.bool_]
    """Whether a row's id is in `ids`; set after it is."""

    def find(self, rows: NDArray[np.int64]) -> NDArray[np.object_] | None:
        """Ids of the rows, if all of them are known."""
        places = rows - self.first
        if places.min() < 0 or places.max() >= len(self.ids) or not self.is_known[places].all():
            return None
        return self.ids[places]

    def name(self, hits: StoreQueryHits) -> StoreQueryHits | None:
        """The hits of one query with ids in place of row numbers, if all of them are known; for few of them."""
        first, ids, is_known = self
        named = []
        for hit in hits:
            place = hit[0] - first  # type: ignore[operator]
            if place < 0:
                # Below the first row are integers that are their own ids, and perhaps rows that are not known.
                if hit[0] >= FIRST_NAMED_ROW:  # type: ignore[operator]
                    return None
                named.append(hit)
            elif place < len(ids) and is_known[place]:
                named.append(StoreHit(ids[place], hit[1], hit[2]))
            else:
                return None
        return StoreQueryHits(named)

    def covering(self, low: int, high: int) -> _Table:
        """A table that reaches from `low` to `high`, too; with room to spare, so that it rarely grows again."""
        past = self.first + len(self.ids)
        if self.first <= low and high < past:
            return self
        spare = (max(high, past) - min(low, self.first)) // 2
        first = self.first if self.first <= low else max(FIRST_NAMED_ROW, low - spare)
        past = past if high < past else high + 1 + spare
        grown = _Table(first, np.empty(past - first, dtype=object), np.zeros(past - first, dtype=bool))
        here = slice(self.first - first, self.first - first + len(self.ids))
        grown.ids[here], grown.is_known[here] = self.ids, self.is_known
        return grown


class Names:
    """Ids of rows. A row number is never given to a second id, so that what is remembered stays true."""

    def __init__(self, connect: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._table: _Table | None = None

    def resolve(
        self, hits: StoreQueryHits | Hits, connection: sqlite3.Connection | None = None
    ) -> StoreQueryHits | StoreHits | None:
        """Hits with ids in place of row numbers; None where a row was deleted meanwhile."""
        if isinstance(hits, Hits):
            ids = self.of(hits.ids, connection)
            return None if ids is None else StoreHits(hits.offsets, ids, hits.distances, hits.embedding_distances)
        named = None if self._table is None else self._table.name(hits)
        if named is not None:
            return named
        ids = self.of(np.array([hit[0] for hit in hits], dtype=np.int64), connection)
        if ids is None:
            return None
        return StoreQueryHits(StoreHit(id, hit[1], hit[2]) for id, hit in zip(ids.tolist(), hits, strict=True))

    def of(self, rows: NDArray[np.int64], connection: sqlite3.Connection | None = None) -> NDArray[Any] | None:
        """Ids of the rows, which `connection` is asked for; None where one of them was deleted meanwhile."""
        if not len(rows) or rows.max() < FIRST_NAMED_ROW:
            return rows
        if rows.min() >= FIRST_NAMED_ROW:
            return self._of_named(rows, connection)
        has_name = rows >= FIRST_NAMED_ROW
        named = self._of_named(rows[has_name], connection)
        if named is None:
            return None
        ids = rows.astype(object)
        ids[has_name] = named
        return ids

    def _of_named(self, rows: NDArray[np.int64], connection: sqlite3.Connection | None) -> NDArray[Any] | None:
        table = self._table
        ids = None if table is None else table.find(rows)
        if ids is not None:
            return ids
        if connection is not None:
            return self._learn(rows, connection).find(rows)
        with self._connect() as own:
            return self._learn(rows, own).find(rows)

    def _learn(self, rows: NDArray[np.int64], connection: sqlite3.Connection) -> _Table:
        with self._lock:
            low, high = int(rows.min()), int(rows.max())
            table = self._table or _Table(low, np.empty(0, dtype=object), np.empty(0, dtype=bool))
            table = table.covering(low, high)
            unknown = np.unique(rows[~table.is_known[rows - table.first]]).tolist()
            for row, id in find_ids(connection, unknown).items():
                table.ids[row - table.first] = id
                table.is_known[row - table.first] = True
            self._table = table
            return table


def plain(hits: StoreQueryHits | Hits) -> StoreQueryHits | StoreHits:
    """Hits whose row numbers are their ids."""
    if isinstance(hits, Hits):
        return StoreHits(hits.offsets, hits.ids, hits.distances, hits.embedding_distances)
    return hits
