"""Row numbers of hits as ids: most are their own id, the others are looked up once and remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget.search import Hits
from hamtarget.store.items import FIRST_NAMED_ROW
from hamtarget.store.results import Id, StoreHit, StoreHits, StoreQueryHits
from hamtarget.store.rows import find_ids


class _Table(NamedTuple):
    """Ids of consecutive rows."""

    first: int
    """The first row."""
    ids: NDArray[np.object_]
    """None where none is known."""
    is_known: NDArray[np.bool_]
    """Whether a row's id is in `ids`; set after it is."""

    def knows(self, rows: NDArray[np.int64]) -> bool:
        """Whether the ids of all of the rows, all from `FIRST_NAMED_ROW` up, are known."""
        places = rows - self.first
        return bool(places.min() >= 0 and places.max() < len(self.ids) and self.is_known[places].all())

    def name(self, hits: StoreQueryHits) -> StoreQueryHits | None:
        """The hits of one query with ids in place of row numbers, if all of them are known."""
        first, ids, _ = self
        n_ids, new = len(ids), tuple.__new__
        named = []
        for row, distance, closeness in hits:
            place = row - first  # type: ignore[operator]
            if 0 <= place < n_ids:
                row = ids[place]
                if row is None:
                    return None
            elif row >= FIRST_NAMED_ROW:  # type: ignore[operator]
                return None
            # Three times as fast as StoreHit(...).
            named.append(new(StoreHit, (row, distance, closeness)))
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

    def __init__(
        self,
        connect: Callable[[], AbstractContextManager[Any]],
        find: Callable[[Any, Sequence[int]], dict[int, Id]] = find_ids,
    ) -> None:
        """No names yet.

        Args:
            connect: gives a connection to the database.
            find: gives, with such a connection, ids of those rows that are there.
        """
        self._connect = connect
        self._find = find
        self._lock = threading.Lock()
        self._table = _Table(FIRST_NAMED_ROW, np.empty(0, dtype=object), np.empty(0, dtype=bool))

    def resolve(self, hits: StoreQueryHits | Hits, connection: Any = None) -> StoreQueryHits | StoreHits | None:
        """Hits with ids in place of row numbers; None where a row was deleted before its id was known."""
        if isinstance(hits, Hits):
            if not self._remember(hits.ids, connection):
                return None
            return StoreHits(hits.offsets, hits.ids, hits.distances, hits.embedding_distances, self.of)
        named = self._table.name(hits)
        if named is None and self._remember(np.array([hit[0] for hit in hits], dtype=np.int64), connection):
            named = self._table.name(hits)
        return named

    def of(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Ids of rows that are remembered."""
        if not len(rows) or rows.max() < FIRST_NAMED_ROW:
            return rows
        table = self._table
        if rows.min() >= FIRST_NAMED_ROW:
            return table.ids[rows - table.first]
        ids = rows.astype(object)
        has_name = rows >= FIRST_NAMED_ROW
        ids[has_name] = table.ids[rows[has_name] - table.first]
        return ids

    def of_present(self, rows: NDArray[np.int64]) -> dict[int, Id]:
        """Ids by row, without those of rows that were deleted before their ids were known."""
        rows = np.unique(rows)
        if not self._remember(rows, None):
            # They lie within the table, and all that can be learned of them has been.
            known = rows < FIRST_NAMED_ROW
            known[~known] = self._table.is_known[rows[~known] - self._table.first]
            rows = rows[known]
        return dict(zip(rows.tolist(), self.of(rows).tolist(), strict=True))

    def _remember(self, rows: NDArray[np.int64], connection: Any) -> bool:
        """Whether the ids of all of the rows are known now; `connection` is asked for those that were not."""
        if not len(rows) or rows.max() < FIRST_NAMED_ROW:
            return True
        if rows.min() < FIRST_NAMED_ROW:
            rows = rows[rows >= FIRST_NAMED_ROW]
        if self._table.knows(rows):
            return True
        if connection is not None:
            self._learn(rows, connection)
        else:
            with self._connect() as own:
                self._learn(rows, own)
        return self._table.knows(rows)

    def _learn(self, rows: NDArray[np.int64], connection: Any) -> None:
        with self._lock:
            table = self._table.covering(int(rows.min()), int(rows.max()))
            unknown = np.unique(rows[~table.is_known[rows - table.first]]).tolist()
            for row, id in self._find(connection, unknown).items():
                table.ids[row - table.first] = id
                table.is_known[row - table.first] = True
            self._table = table


def plain(hits: StoreQueryHits | Hits) -> StoreQueryHits | StoreHits:
    """Hits whose row numbers are their ids."""
    if isinstance(hits, Hits):
        return StoreHits(hits.offsets, hits.ids, hits.distances, hits.embedding_distances)
    return hits
