"""Row numbers of hits as ids: most are their own id, the others are looked up once and remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from hamtarget.answer import Answer
from hamtarget.items import Id
from hamtarget.search.distinct import distinct
from hamtarget.search.row_names import RowNames

Connection = TypeVar("Connection")


class Names(Generic[Connection]):
    """Ids of rows. A row number is never given to a second id, so that what is remembered stays true."""

    def __init__(
        self,
        remembered: Callable[[], RowNames],
        connect: Callable[[], AbstractContextManager[Connection]],
        find: Callable[[Connection, Sequence[int]], dict[int, Id]],
    ) -> None:
        """Look names up in a database, unless they are remembered.

        Args:
            remembered: gives those that are known now; they may be begun anew at any time.
            connect: gives a connection to the database.
            find: gives, with such a connection, ids of those rows that are there.
        """
        self._remembered = remembered
        self._connect = connect
        self._find = find
        self._lock = threading.Lock()

    def name(self, hits: Answer, connection: Connection | None = None) -> Answer | None:
        """Return hits that have ids; None where a row was deleted before its id was known.

        Args:
            hits: of rows.
            connection: is asked for ids that are not known; one of its own by default.
        """
        names = self._remember(hits.rows, connection)
        return hits.with_names(names.of) if names.know(hits.rows) else None

    def of_present(self, rows: NDArray[np.int64]) -> dict[int, Id]:
        """Return ids by row, without those of rows that were deleted before their ids were known."""
        rows = distinct(rows)
        names = self._remember(rows, None)
        rows = rows[names.are_known(rows)]
        return dict(zip(rows.tolist(), names.of(rows).tolist(), strict=True))

    def _remember(self, rows: NDArray[np.int64], connection: Connection | None) -> RowNames:
        """Return names that know all of the rows that there are; the database is asked for those it did not know."""
        names = self._remembered()
        if not names.know(rows):
            if connection is not None:
                self._learn(names, rows, connection)
            else:
                with self._connect() as own:
                    self._learn(names, rows, own)
        return names

    def _learn(self, names: RowNames, rows: NDArray[np.int64], connection: Connection) -> None:
        with self._lock:
            unknown = distinct(rows[~names.are_known(rows)]).tolist()
            names.add(self._find(connection, unknown))
