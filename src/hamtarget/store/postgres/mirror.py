"""A store of PostgreSQL in memory: searched there, and kept at the database's last change."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from hamtarget.errors import ClosedError, CorruptFileError, InputError
from hamtarget.items import Match
from hamtarget.progress import Progress
from hamtarget.search.limits import Limits
from hamtarget.search.multi import MultiIndex
from hamtarget.search.requests import (
    Request,
    Requests,
    many_codes,
    many_rows_of_logits,
    one_code,
    one_embedding,
    one_row_of_logits,
)
from hamtarget.search.results import BatchHits, Hits
from hamtarget.store.forks import tell_of_forks
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW
from hamtarget.store.items.item_hits import FindCodes, find_items
from hamtarget.store.items.matching import Matched, check_threshold, match_items, query_codes
from hamtarget.store.items.names import Names
from hamtarget.store.live import Change, DeleteRows, LiveIndex
from hamtarget.store.postgres.address import parse_address
from hamtarget.store.postgres.connections import Connections, snapshot
from hamtarget.store.postgres.rows import copy_out, find_names, only_row
from hamtarget.store.postgres.schema import open_tables

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

T = TypeVar("T")

_AGE = 0.05
# A search that meets changes is done again; at last while nothing may change.
_FREE_TRIES = 3
# Replaying a change takes up to this many times as long as reading a row in order.
_REPLAY_COST = 2
_ALWAYS_REPLAYED = 1000


class Mirror:
    """An index in this process's memory that follows a store in PostgreSQL.

    It answers `search`, `nearest` and `probe` as a `MultiIndex` does, with the ids of the store's items. Any number of
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
            self._requests = Requests(kept.n_bits, kept.radius, kept.embeddings)
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

    def search(
        self,
        code: ArrayLike,
        radius: int | None = None,
        *,
        limit: int | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> Hits:
        """Find every item within `radius` bits of a code, nearest first; see `Store.search`."""
        wanted = one_code(code, self._requests.n_bits, instead="search_batch")
        request = self._requests.search(
            wanted, radius, limit=limit, rerank=rerank, embedding=one_embedding(embedding), limits=limits
        )
        return self._find_one(request, cost=cost)

    def search_batch(
        self,
        codes: ArrayLike,
        radius: int | None = None,
        *,
        limit: int | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        threads: int = 1,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> BatchHits:
        """Find every item within `radius` bits of each of a batch of codes; see `Store.search_batch`."""
        wanted = many_codes(codes, self._requests.n_bits, instead="search")
        request = self._requests.search(wanted, radius, limit=limit, rerank=rerank, embedding=embedding, limits=limits)
        return self._find_batch(request, threads=threads, cost=cost)

    def match(
        self,
        codes: ArrayLike,
        radius: int | None = None,
        *,
        at_least: int = 1,
        limit: int | None = None,
        threads: int = 1,
        limits: Limits | None = None,
    ) -> tuple[Match, ...]:
        """Find the items that match a query of several codes; see `Store.match`."""
        wanted = query_codes(codes, self._requests.n_bits)
        threshold = check_threshold(at_least, limit, len(wanted))
        request = self._requests.search(wanted, radius, limit=None, rerank=None, embedding=None, limits=limits)

        def choose(find: FindCodes) -> tuple[BatchHits, Matched]:
            matched = match_items(find(request), threshold)
            return matched.hits, matched

        hits, matched = self._find(choose, threads=threads, cost=False)
        return matched.named(hits.ids.tolist())

    def nearest(
        self,
        code: ArrayLike,
        k: int = 10,
        *,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> Hits:
        """Find the `k` nearest items exactly; see `Store.nearest`."""
        wanted = one_code(code, self._requests.n_bits, instead="nearest_batch")
        request = self._requests.nearest(wanted, k, rerank=rerank, embedding=one_embedding(embedding), limits=limits)
        return self._find_one(request, cost=cost)

    def nearest_batch(
        self,
        codes: ArrayLike,
        k: int = 10,
        *,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        threads: int = 1,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> BatchHits:
        """Find the `k` nearest items of each of a batch of codes; see `Store.nearest_batch`."""
        wanted = many_codes(codes, self._requests.n_bits, instead="nearest")
        request = self._requests.nearest(wanted, k, rerank=rerank, embedding=embedding, limits=limits)
        return self._find_batch(request, threads=threads, cost=cost)

    def probe(
        self,
        logits: ArrayLike,
        budget: int,
        *,
        radius: int | None = None,
        limit: int | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        comparisons: int | None = None,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> Hits:
        """Search approximately: read at most `budget` rows, the most likely first; see `MultiIndex.probe`."""
        request = self._requests.probe(
            one_row_of_logits(logits, self._requests.n_bits),
            budget,
            radius=radius,
            limit=limit,
            rerank=rerank,
            embedding=one_embedding(embedding),
            comparisons=comparisons,
            limits=limits,
        )
        return self._find_one(request, cost=cost)

    def probe_batch(
        self,
        logits: ArrayLike,
        budget: int,
        *,
        radius: int | None = None,
        limit: int | None = None,
        rerank: int | None = None,
        embedding: ArrayLike | None = None,
        comparisons: int | None = None,
        threads: int = 1,
        cost: bool = False,
        limits: Limits | None = None,
    ) -> BatchHits:
        """Search approximately for a batch of queries; see `MultiIndex.probe_batch`."""
        request = self._requests.probe(
            many_rows_of_logits(logits, self._requests.n_bits),
            budget,
            radius=radius,
            limit=limit,
            rerank=rerank,
            embedding=embedding,
            comparisons=comparisons,
            limits=limits,
        )
        return self._find_batch(request, threads=threads, cost=cost)

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

    def _find_one(self, request: Request, *, cost: bool) -> Hits:
        self._look()
        live = self._live
        version = live.version
        if not version & 1 and not live.n_further:
            hits = live.index.find_one_named(request, live.names, cost=cost)
            if hits is not None and live.version == version:
                return hits
        return self._find_batch(request, threads=1, cost=cost)[0]

    def _find_batch(self, request: Request, *, threads: int, cost: bool) -> BatchHits:
        return self._find(lambda find: (find_items(find, request), None), threads=threads, cost=cost)[0]

    def _find(
        self, choose: Callable[[FindCodes], tuple[BatchHits, T]], *, threads: int, cost: bool
    ) -> tuple[BatchHits, T]:
        """Return hits of items, with their ids, that `choose` chooses from what it finds, all at the same change."""
        self._look()
        live = self._live

        def find(request: Request) -> BatchHits:
            return live.index.find_batch(request, threads=threads, cost=cost)

        for _ in range(_FREE_TRIES):
            version = live.version
            if not version & 1:
                hits, more = choose(find)
                if live.version == version and (named := self._named(hits)) is not None:
                    return named, more
            # A hit without a name has been deleted since, or the index was about to change.
            self.refresh()
        with live.lock:
            self.refresh()
            hits, more = choose(find)
            named = self._named(hits)
        if named is None:
            raise CorruptFileError(f"{self._address}: a row has no name; restore the database from a copy")
        return named, more

    def _named(self, hits: BatchHits) -> BatchHits | None:
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
