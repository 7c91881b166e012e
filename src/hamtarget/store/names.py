"""Row numbers of hits as ids: most are their own id, the others are looked up once and remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.search import Hits
from hamtarget.search.row_names import RowNames
from hamtarget.store.results import Id, StoreHit, StoreHits, StoreQueryHits
from hamtarget.store.sqlite.rows import find_ids


class Names:
    """Ids of rows. A row number is never given to a second id, so that what is remembered stays true."""

    def __init__(
        self,
        remembered: RowNames,
        connect: Callable[[], AbstractContextManager[Any]],
        find: Callable[[Any, Sequence[int]], dict[int, Id]] = find_ids,
    ) -> None:
        """Names that are looked up in a database, unless they are remembered.

        Args:
            remembered: those of the index, whose hits have names where all of them are known.
            connect: gives a connection to the database.
            find: gives, with such a connection, ids of those rows that are there.
        """
        self._remembered = remembered
        self._connect = connect
        self._find = find
        self._lock = threading.Lock()

    def resolve(self, hits: tuple[StoreHit, ...] | Hits, connection: Any = None) -> StoreQueryHits | StoreHits | None:
        """Hits with ids in place of row numbers; None where a row was deleted before its id was known."""
        if isinstance(hits, StoreQueryHits):
            return hits
        rows = hits.ids if isinstance(hits, Hits) else np.array([hit.id for hit in hits], dtype=np.int64)
        if not self._remember(rows, connection):
            return None
        if isinstance(hits, Hits):
            return StoreHits(hits.offsets, rows, hits.distances, hits.embedding_distances, self._remembered.of)
        ids = self._remembered.of(rows).tolist()
        return StoreQueryHits(hit._replace(id=id) for hit, id in zip(hits, ids, strict=True))

    def of_present(self, rows: NDArray[np.int64]) -> dict[int, Id]:
        """Ids by row, without those of rows that were deleted before their ids were known."""
        rows = np.unique(rows)
        if not self._remember(rows, None):
            rows = rows[self._remembered.are_known(rows)]
        return dict(zip(rows.tolist(), self._remembered.of(rows).tolist(), strict=True))

    def _remember(self, rows: NDArray[np.int64], connection: Any) -> bool:
        """Whether the ids of all of the rows are known now; `connection` is asked for those that were not."""
        if self._remembered.know(rows):
            return True
        if connection is not None:
            self._learn(rows, connection)
        else:
            with self._connect() as own:
                self._learn(rows, own)
        return self._remembered.know(rows)

    def _learn(self, rows: NDArray[np.int64], connection: Any) -> None:
        with self._lock:
            unknown = np.unique(rows[~self._remembered.are_known(rows)]).tolist()
            self._remembered.add(self._find(connection, unknown))


def plain(hits: StoreQueryHits | Hits) -> StoreQueryHits | StoreHits:
    """Hits whose row numbers are their ids."""
    if isinstance(hits, Hits):
        return StoreHits(hits.offsets, hits.ids, hits.distances, hits.embedding_distances)
    return hits
