"""Row numbers of hits as ids: most are their own id, the others are looked up once and remembered."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.search import Hits
from hamtarget.store.items import FIRST_NAMED_ROW
from hamtarget.store.results import Id, StoreHit, StoreHits, StoreQueryHits
from hamtarget.store.rows import find_ids


class Names:
    """Ids of rows. A row number is never given to a second id, so that what is remembered stays true."""

    def __init__(self, connect: Callable[[], AbstractContextManager[sqlite3.Connection]]) -> None:
        self._connect = connect
        self._known: dict[int, Id] = {}

    def resolve(
        self, hits: StoreQueryHits | Hits, connection: sqlite3.Connection | None = None
    ) -> StoreQueryHits | StoreHits | None:
        """Hits with ids in place of row numbers; None where a row was deleted meanwhile."""
        if isinstance(hits, Hits):
            ids = self.of(hits.ids, connection)
            return None if ids is None else StoreHits(hits.offsets, ids, hits.distances, hits.embedding_distances)
        ids = self.of(np.array([hit[0] for hit in hits], dtype=np.int64), connection)
        if ids is None:
            return None
        return StoreQueryHits(StoreHit(id, hit[1], hit[2]) for id, hit in zip(ids.tolist(), hits, strict=True))

    def of(self, rows: NDArray[np.int64], connection: sqlite3.Connection | None = None) -> NDArray[Any] | None:
        """Ids of the rows; None where one of them was deleted meanwhile."""
        if not len(rows) or rows.max() < FIRST_NAMED_ROW:
            return rows
        numbers = rows.tolist()
        missing = [row for row in numbers if row >= FIRST_NAMED_ROW and row not in self._known]
        if missing and connection is not None:
            self._known.update(find_ids(connection, missing))
        elif missing:
            with self._connect() as own:
                self._known.update(find_ids(own, missing))
        try:
            ids = [row if row < FIRST_NAMED_ROW else self._known[row] for row in numbers]
        except KeyError:
            return None
        result = np.empty(len(ids), dtype=object)
        result[:] = ids
        return result


def plain(hits: StoreQueryHits | Hits) -> StoreQueryHits | StoreHits:
    """Hits whose row numbers are their ids."""
    if isinstance(hits, Hits):
        return StoreHits(hits.offsets, hits.ids, hits.distances, hits.embedding_distances)
    return hits
