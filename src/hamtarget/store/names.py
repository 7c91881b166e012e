"""Row numbers of hits as ids: most are their own id, the others are looked up once and remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hamtarget.items import Id
from hamtarget.search.distinct import distinct
from hamtarget.search.results import BatchHits
from hamtarget.search.row_names import RowNames

Connection = TypeVar("Connection")


class Names(Generic[Connection]):
    """Ids of rows. A row number is never given to a second id, so that what is remembered stays true."""

    def __init__(
        self,
        remembered: RowNames,
        connect: Callable[[], AbstractContextManager[Connection]],
        find: Callable[[Connection, Sequence[int]], dict[int, Id]],
    ) -> None:
        """Look names up in a database, unless they are remembered.

        Args:
            remembered: those that are known.
            connect: gives a connection to the database.
            find: gives, with such a connection, ids of those rows that are there.
        """
        self._remembered = remembered
        self._connect = connect
        self._find = find
        self._lock = threading.Lock()

    def name(self, hits: BatchHits, connection: Connection | None = None) -> BatchHits | None:
        """Return hits that have ids; None where a row was deleted before its id was known.

        Args:
            hits: of rows.
            connection: is asked for ids that are not known; one of its own by default.
        """
        return hits.with_names(self._remembered.of) if self._remember(hits.rows, connection) else None

    def of_present(self, rows: NDArray[np.int64]) -> dict[int, Id]:
        """Return ids by row, without those of rows that were deleted before their ids were known."""
        rows = distinct(rows)
        if not self._remember(rows, None):
            rows = rows[self._remembered.are_known(rows)]
        return dict(zip(rows.tolist(), self._remembered.of(rows).tolist(), strict=True))

    def _remember(self, rows: NDArray[np.int64], connection: Connection | None) -> bool:
        """Return True if the ids of all of the rows are known now; the database is asked for those that were not."""
        if self._remembered.know(rows):
            return True
        if connection is not None:
            self._learn(rows, connection)
        else:
            with self._connect() as own:
                self._learn(rows, own)
        return self._remembered.know(rows)

    def _learn(self, rows: NDArray[np.int64], connection: Connection) -> None:
        with self._lock:
            unknown = distinct(rows[~self._remembered.are_known(rows)]).tolist()
            self._remembered.add(self._find(connection, unknown))
