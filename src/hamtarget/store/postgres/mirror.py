"""A store of PostgreSQL in memory: searched there, and kept at the database's last change."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.answer import Answer, Hit, Hits
from hamtarget.errors import ClosedError, CorruptFileError, InputError
from hamtarget.progress import Progress
from hamtarget.query import Asked, Query, Work, check_question, check_work
from hamtarget.search.multi import MultiIndex
from hamtarget.search.requests import CodeKind, Request
from hamtarget.searchable import Searchable
from hamtarget.store.forks import tell_of_forks
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW
from hamtarget.store.items.item_hits import find_items
from hamtarget.store.items.names import Names
from hamtarget.store.live import Change, DeleteRows, LiveIndex
from hamtarget.store.postgres.address import parse_address
from hamtarget.store.postgres.connections import Connections, snapshot
from hamtarget.store.postgres.rows import copy_out, find_names, only_row
from hamtarget.store.postgres.schema import open_tables

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

_AGE = 0.05
# A search that meets changes is done again; at last while nothing may change.
_FREE_TRIES = 3
# Replaying a change takes up to this many times as long as reading a row in order.
_REPLAY_COST = 2
_ALWAYS_REPLAYED = 1000


class Mirror(Searchable):
    """An index in this process's memory that follows a store in PostgreSQL.

    It answers `search`, `nearest` and `match` as a `MultiIndex` does, with the ids of the store's items. Any number of
    processes on any number of machines may hold one. Each reads the whole table once, and later only what has changed
    since. A search costs the database nothing, and is as fast as one in a folder. Payloads stay in the database: a
    mirror does not filter, but `Store.payloads` reads those of its hits.
    """

    def __init__(self, address: str, *, age: float = _AGE, progress: Progress | None = None) -> None:
        """Read the store at an address, as it is now.

        Args:
            address: of the store, as for `Store.open`.
            age: most seconds that an answer may be behind the database; at 0, each search asks first.
            progress: called with rows done and all rows while they are read.

        Raises:
            As `Store.open`; InputError: `age` is negative.
        """
        if not age >= 0:
            raise InputError(f"age is {age}; expected seconds, 0 or more")
        self._age = age
        self._address = parse_address(address)
        self._unusable = ""
        self._connections = Connections(self._address, read_only=True, asynchronous=False)
        try:
            with self._connections.translated(), self._connections.one() as connection:
                self._settings = open_tables(connection, self._address)
            self._live = self._connections.read(lambda connection: self._read_all(connection, progress))
            kept = self._settings
            self.n_bits, self.radius = kept.n_bits, kept.radius
            self._kind = CodeKind(kept.n_bits, kept.embeddings)
            self._names = Names(lambda: self._live.names, self._connections.one, find_names)
        except BaseException:
            self._connections.close()
            raise
        self._looked = monotonic()
        self._looking = threading.Lock()
        tell_of_forks(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory and the connections back."""
        if not self._unusable:
            self._unusable = "was closed; open it again"
            self._connections.close()

    def after_fork(self) -> None:
        """Make the mirror unusable in a process that was forked from this one."""
        self._unusable = self._unusable or "was opened by the process that this one was forked from; open it again"

    def __len__(self) -> int:
        """Return the number of items."""
        self._look()
        with self._live.lock:
            return self._live.n_items

    @property
    def sequence(self) -> int:
        """Number of the last change that is in memory."""
        return self._live.sequence

    def answer(self, asked: Asked, query: Query, work: Work | None = None) -> Answer:
        """Answer a batch of queries; see `Searchable.answer`. A mirror does not filter."""
        return self._find(self._request(asked, query, check_work(work)))

    def answer_one(self, asked: Asked, query: Query, work: Work) -> Hits:
        """Answer one query, given as a batch of one."""
        request = self._request(asked, query, work)
        self._look()
        live = self._live
        version = live.version
        if not version & 1 and not live.n_further:
            hits = live.index.find_one_named(request, live.names)
            if hits is not None and live.version == version:
                return hits
        return self._find(request)[0]

    def answer_code(
        self,
        query: Any,
        code: ArrayLike | None,
        radius: int | None,
        limit: int | None,
        is_nearest: bool,
        mask: NDArray[Any] | None,
    ) -> Hits | None:
        """Answer a query for one code in one call of the core."""
        if code is None:
            code = query
        if mask is not None or type(code) is not np.ndarray or (query is not None and query is not code):
            return None
        self._look()
        live = self._live
        version = live.version
        if version & 1 or live.n_further:
            return None
        hits = live.index.core.search_code(code, radius, limit, is_nearest, Hits, Hit, live.names.core)
        return hits if live.version == version else None

    def _asked(self, query: Any, code: ArrayLike | None, wanted: Query, *, many: bool) -> Asked:
        return Asked(self._given(query, code, "codes" if many else "a code"))

    def _request(self, asked: Asked, query: Query, work: Work) -> Request:
        check_question(asked, query)
        if query.filter is not None:
            raise InputError("filter is given; payloads stay in the database: use Store.open")
        return self._kind.request(asked, query, work)

    def refresh(self) -> int:
        """Bring the mirror to the last change of the database now, and return its number.

        Raises:
            ServerError: the database cannot be asked; what is in memory stays.
        """
        self._check_open()
        now = monotonic()
        self._connections.read(self._follow)
        self._looked = now
        return self._live.sequence

    def _find(self, request: Request) -> Answer:
        """Return hits of items, with their ids, all at the same change."""
        self._look()
        live = self._live
        for _ in range(_FREE_TRIES):
            version = live.version
            if not version & 1:
                hits = find_items(live.index.find, request)
                if live.version == version and (named := self._named(hits)) is not None:
                    return named
            # A hit without a name has been deleted since, or the index was about to change.
            self.refresh()
        with live.lock:
            self.refresh()
            named = self._named(find_items(live.index.find, request))
        if named is None:
            raise CorruptFileError(f"{self._address}: a row has no name; restore the database from a copy")
        return named

    def _named(self, hits: Answer) -> Answer | None:
        if not self._live.has_names:
            return hits
        with self._connections.translated():
            return self._names.name(hits)

    def _look(self) -> None:
        self._check_open()
        # One thread asks, the others answer from what there is; unless nothing may be behind.
        if monotonic() - self._looked >= self._age and self._looking.acquire(blocking=self._age == 0):
            try:
                self.refresh()
            finally:
                self._looking.release()

    def _check_open(self) -> None:
        if self._unusable:
            raise ClosedError(f"the mirror of {self._address} {self._unusable}")

    def _follow(self, connection: Connection) -> None:
        """Bring the index to the last change of the database."""
        live = self._live
        (sequence,) = only_row(connection, "SELECT sequence FROM state")
        if sequence == live.sequence and not live.version & 1:
            return
        with live.lock, snapshot(connection):
            sequence, forgotten, n_items = _state(connection)
            if sequence < live.sequence or forgotten > live.sequence or live.is_torn:
                # The database was restored from a copy, or has gone on for too long.
                live.replace(self._read_rows(connection, None))
            elif sequence > live.sequence:
                self._replay(connection, sequence, n_items)
            live.settle()

    def _replay(self, connection: Connection, sequence: int, n_items: int) -> None:
        live = self._live
        most = max(_ALWAYS_REPLAYED, n_items // _REPLAY_COST)
        counted = "SELECT count(*) FROM (SELECT 1 FROM items WHERE changed > $1 LIMIT $2) AS c"
        if connection.execute(counted, [live.sequence, most + 1]).fetchall()[0][0] > most:
            live.replace(self._read_rows(connection, None))
            return
        sql = """
            SELECT row FROM deleted WHERE changed > $1
            AND NOT EXISTS (SELECT 1 FROM items WHERE items.row = deleted.row)
        """
        gone = [row for (row,) in connection.execute(sql, [live.sequence]) if row in live.index]
        changes: list[Change] = [DeleteRows(np.array(gone, dtype=np.int64))] if gone else []
        changes += copy_out(connection, self._settings, f"changed > {live.sequence:d}")
        live.apply(changes, sequence)

    def _read_all(self, connection: Connection, progress: Progress | None) -> LiveIndex:
        with snapshot(connection):
            return self._read_rows(connection, progress)

    def _read_rows(self, connection: Connection, progress: Progress | None) -> LiveIndex:
        kept = self._settings
        index = MultiIndex(kept.n_bits, kept.radius, substrings=kept.index_substrings, embeddings=kept.embeddings)
        sequence, _, n_items = _state(connection)
        for put in copy_out(connection, kept):
            index.add(put.rows, put.codes, put.embeddings)
            if progress:
                progress(len(index), n_items)
        index.compact()
        # The last name tells if there are any, and if items may have several codes.
        last = only_row(connection, "SELECT max(row) FROM names")[0]
        has_several = last is not None and last >= FIRST_SEVERAL_ROW
        return LiveIndex(index, sequence, has_names=last is not None, has_several=has_several)


def _state(connection: Connection) -> tuple[int, int, int]:
    sequence, forgotten, n_items = only_row(connection, "SELECT sequence, forgotten, n_items FROM state")
    return sequence, forgotten, n_items
