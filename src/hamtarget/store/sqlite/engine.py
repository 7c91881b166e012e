"""An open store: the database, the index that follows it, and reads that see both at the same change."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._core import _native
from hamtarget.answer import Answer, Hit, Hits
from hamtarget.codes import Codes
from hamtarget.encoders import open_encoder
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import ClosedError, CorruptFileError, FileError, InputError, ReadOnlyError
from hamtarget.filters import Filter
from hamtarget.items import Id, Item
from hamtarget.progress import Progress
from hamtarget.query import Work
from hamtarget.search.multi import MultiIndex
from hamtarget.search.neighbor_index import NeighborIndex
from hamtarget.search.pairs import pairs_within, present
from hamtarget.search.requests import Request
from hamtarget.store.backend import FindInCells
from hamtarget.store.forks import tell_of_forks
from hamtarget.store.groups.kept import ReadGroups
from hamtarget.store.groups.tables import Kind
from hamtarget.store.items.code_rows import are_further
from hamtarget.store.items.item_hits import find_items, name_items
from hamtarget.store.items.item_pairs import name_pairs, pairs_of_items
from hamtarget.store.items.names import Names
from hamtarget.store.reports import BackupReport, Pair, StoreReport, StoreStats
from hamtarget.store.sqlite.backup import Verify, back_up, restore
from hamtarget.store.sqlite.counter import COUNTER_NAME, ChangeCounter
from hamtarget.store.sqlite.folders import ENCODER_NAME, moved_aside
from hamtarget.store.sqlite.group_files import GroupFiles
from hamtarget.store.sqlite.index.kept_cells import KeptCells
from hamtarget.store.sqlite.index.searching import find_passing
from hamtarget.store.sqlite.index.snapshot import catch_up, open_index, save_index
from hamtarget.store.sqlite.inspection import store_stats, verify_store
from hamtarget.store.sqlite.lock import WriterLock
from hamtarget.store.sqlite.losses import check_for_loss, noted_changes, warn_of_loss
from hamtarget.store.sqlite.tables.database import (
    DATABASE_NAME,
    Readers,
    bounded,
    empty_log,
    open_database,
    read_settings,
    set_durability,
    transaction,
    translated,
)
from hamtarget.store.sqlite.tables.reading import count_items, get_items, scan_items
from hamtarget.store.sqlite.tables.rows import find_ids
from hamtarget.store.sqlite.tables.state import read_state
from hamtarget.store.sqlite.tables.writing import Writing

T = TypeVar("T")

LOCK_NAME = "lock"
# The index is saved again when so many rows, and so large a share of all, have changed since: opening stays quick.
_UNSAVED_ROWS = 200_000
_UNSAVED_SHARE = 0.5
# What saw the index in the middle of a change is done again; at last while nothing may change.
_FREE_TRIES = 3
_LOOK_SECONDS = 0.05


class FolderEngine:
    """A store in a folder, held open: items by SQLite, searches by the index in memory that follows it.

    Attributes:
        path: the folder.
        read_only: True if it was opened for reading only.
        file: the database.
        settings: those that the store was created with.
    """

    def __init__(
        self, path: Path, *, read_only: bool, progress: Progress | None = None, accept_loss: bool = False
    ) -> None:
        self.path = path
        self.read_only = read_only
        self.file = path / DATABASE_NAME
        self._unusable = ""
        self._next_look = 0.0
        self._writing: Writing | None = None
        self._write_lock = threading.RLock()
        if not self.file.is_file():
            missing = "it is a file" if path.exists() else "there is no such folder"
            what = f"it has no {DATABASE_NAME}" if path.is_dir() else missing
            if aside := moved_aside(path):
                raise FileError(f"{path} was being replaced, and that was interrupted; it is in {aside}: rename it")
            raise FileError(f"{path} is no store: {what}; make one with Store.create or `hamtarget add`")
        with contextlib.ExitStack() as undo:
            if not read_only:
                self._lock = WriterLock(path / LOCK_NAME)
                undo.callback(self._lock.release)
            noted = noted_changes(path)
            with translated(self.file), contextlib.ExitStack() as looking:
                reader = open_database(self.file, read_only=True)
                (undo if read_only else looking).callback(reader.close)
                self.settings = read_settings(reader)
                if read_only:
                    self._connection = reader
                else:
                    is_lossy = check_for_loss(
                        reader, self.file, noted, self.settings.durability, accept_loss=accept_loss
                    )
                    self._connection = open_database(self.file, read_only=False)
                    undo.callback(self._connection.close)
                    set_durability(self._connection, self.settings.durability)
                    if is_lossy:
                        # Behind new changes, the log must not go on with those that were given up.
                        empty_log(self._connection)
                self._live = open_index(self._connection, path, self.settings, progress=progress)
                self._counter = ChangeCounter(path / COUNTER_NAME, read_only=read_only)
                self._counter.write(self._live.sequence)
            undo.pop_all()
        self._readers = Readers(self.file)
        self._names = Names(lambda: self._live.names, self._readers.one, find_ids)
        self._unsaved_rows = 0
        self._kept_cells = KeptCells(path, self._live, self.reading) if self.settings.keeps_vectors else None
        self._group_files = GroupFiles(path, self.read, self.ids_of, self.settings.durability, read_only=read_only)
        if not read_only:
            self._group_files.take_back(self._live.sequence)
        tell_of_forks(self)
        if read_only and noted > self._live.sequence:
            warn_of_loss(path, noted - self._live.sequence)
        if not read_only and self._live.is_rebuilt and len(self._live.index):
            # So that the next opening need not do it again.
            self._try_to_save()

    def close(self) -> None:
        """Close the files; the index is saved if it has changed, and another process may write."""
        if self._unusable:
            return
        with self._write_lock:
            self._check_between_transactions("close")
            try:
                if not self.read_only and not self._live.is_saved and self._live.sequence:
                    self._try_to_save()
            finally:
                self._group_files.close()
                with self._live.lock:
                    self._unusable = "was closed; open the store again"
                    self._readers.close()
                    self._connection.close()
                    self._counter.close()
                    if not self.read_only:
                        self._lock.release()

    @property
    def index(self) -> MultiIndex:
        """The index, with every change that was committed before the call."""
        self.check_open()
        if self.read_only:
            self._look()
        if self._live.version & 1:
            self.read(_nothing)
        return self._live.index

    @property
    def substrings(self) -> int:
        """Number of substrings by which codes are looked up now; an index may choose it by its rows."""
        return self._live.index.substrings

    @property
    def has_several(self) -> bool:
        """True if an item has several codes."""
        return self._live.n_further > 0

    @property
    def memory(self) -> int:
        """Bytes that the index and the cells take."""
        return self.index.memory + self._live.cells.memory

    def ids_of(self, rows: NDArray[np.int64]) -> dict[int, Id]:
        """Return ids by row, without those of rows that were deleted meanwhile."""
        self.check_open()
        with translated(self.file):
            return self._names.of_present(rows)

    @property
    def sequence(self) -> int:
        """Number of the last change."""
        return self.read(lambda connection, _: read_state(connection).sequence)

    @property
    def is_settled(self) -> bool:
        """True if a search would wait for nothing: there is no change to follow, and none is being made."""
        live = self._live
        if self._unusable or live.version & 1:
            return False
        return not self.read_only or (self._counter.numbers[0] == live.sequence and monotonic() < self._next_look)

    def check_open(self) -> None:
        """Check that the store is open and was opened by this process.

        Raises:
            ClosedError: it is not.
        """
        if self._unusable:
            raise ClosedError(f"{self.path} {self._unusable}")

    def answer_code(self, code: ArrayLike, radius: int | None, limit: int | None, is_nearest: bool) -> Hits | None:
        """Return the hits of one code, never of an index that a transaction is half in; None: look at it closely."""
        # A search for one code takes about a microsecond: this is written for few steps, without a closure.
        live = self._live
        if self._unusable:
            self.check_open()
        if self.read_only and (self._counter.numbers[0] != live.sequence or monotonic() >= self._next_look):
            self._look()
        version = live.version
        if live.n_further or version & 1:
            return None
        hits = live.index.core.search_code(code, radius, limit, is_nearest, Hits, Hit, live.names.core)
        return hits if live.version == version else None

    def find_one(self, request: Request, filter: Filter | None) -> Hits:
        """Return the hits of a request for one query, never of an index that a transaction is half in."""
        self.check_open()
        if self.read_only:
            self._look()
        live = self._live
        version = live.version
        if not filter and not version & 1:
            hits: Hits | None = None
            if not live.n_further:
                hits = live.index.find_one_named(request, live.names)
            elif request.limit is None and not request.rerank:
                hits = name_items(live.index.find_one(request), live.names)
            if hits is not None and live.version == version:
                return hits
        return self.find(request, filter)[0]

    def find(self, request: Request, filter: Filter | None) -> Answer:
        """Return hits of items, with their ids, all at the same change."""
        self.check_open()
        if self.read_only:
            self._look()
        if not filter:
            live = self._live
            version = live.version
            named = self._named_at(version, find_items(live.index.find, request))
            if named is not None:
                return named
        return self.read(lambda connection, index: self._find_in_step(connection, index, request, filter))

    def _named_at(self, version: int, hits: Answer) -> Answer | None:
        """Return hits with ids; None if the index has changed since `version`, or one of them was deleted."""
        live = self._live
        if live.version != version or version & 1:
            return None
        if not live.has_names:
            return hits
        with translated(self.file):
            return self._names.name(hits)

    def _find_in_step(
        self, connection: sqlite3.Connection, index: MultiIndex, request: Request, filter: Filter | None
    ) -> Answer:
        """Return the same where database and index are at the same change."""

        def find(codes: Request) -> Answer:
            return find_passing(connection, index, filter, codes) if filter else index.find(codes)

        named = self._names.name(find_items(find, request), connection)
        if named is None:
            raise CorruptFileError(f"{self.file}: a row has no name; restore the folder from a copy")
        return named

    def read(self, do: Callable[[sqlite3.Connection, MultiIndex], T]) -> T:
        """Return what `do` returns, which sees the database and the index at the same change."""
        self.check_open()
        with translated(self.file), self._readers.one() as connection:
            live = self._live
            for _ in range(_FREE_TRIES):
                with transaction(connection, kind="DEFERRED"):
                    sequence = self._follow(connection)
                    version = live.version
                    if live.sequence == sequence and not version & 1:
                        try:
                            result = do(connection, live.index)
                        except Exception:
                            # It may have failed because the index changed under it.
                            if live.version == version:
                                raise
                            continue
                        if live.version == version:
                            return result
            with self._live.lock, transaction(connection, kind="DEFERRED"):
                self._follow(connection)
                return do(connection, self._live.index)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection in a transaction: what it reads stays as it is, whatever is written meanwhile."""
        self.check_open()
        with translated(self.file), self._readers.one() as connection, transaction(connection, kind="DEFERRED"):
            yield connection

    @contextmanager
    def write(self) -> Iterator[Writing]:
        """Begin a transaction, or join that of this thread; at the end all of it is committed, or nothing."""
        self._check_writable()
        with self._write_lock:
            self.check_open()
            if self._writing is not None:
                with self._writing.part():
                    yield self._writing
                return
            try:
                with translated(self.file):
                    self._connection.execute("BEGIN IMMEDIATE")
                    self._follow(self._connection)
                    writing = self._writing = Writing(self._connection, self.file)
                yield writing
                with translated(self.file):
                    self._commit(writing)
            except BaseException:
                with translated(self.file):
                    self._undo()
                raise
            finally:
                self._writing = None
            self._unsaved_rows += sum(len(change.rows) for change in writing.changes)
            if self._unsaved_rows > max(_UNSAVED_ROWS, _UNSAVED_SHARE * len(self._live.index)):
                self._try_to_save()

    def _check_writable(self) -> None:
        self.check_open()
        if self.read_only:
            raise ReadOnlyError(f"{self.path} was opened for reading only; open it without read_only=True")

    def _check_between_transactions(self, verb: str) -> None:
        if self._writing is not None:
            raise InputError(f"{verb} is called within a transaction; call it after its end")

    def _commit(self, writing: Writing) -> None:
        writing.finish()
        # Held over the commit: nobody sees the database ahead of the index.
        with self._live.lock:
            self._live.begin()
            self._connection.execute("COMMIT")
            if writing.changes:
                self._live.apply(writing.changes, writing.sequence)
                self._counter.write(writing.sequence)
            self._live.settle()

    def _undo(self) -> None:
        # After some failures, as that of a full disk, SQLite has rolled back by itself.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")
        # An interrupt may have come after the commit, but before the index had followed.
        with transaction(self._connection, kind="DEFERRED"):
            self._follow(self._connection)
        self._counter.write(self._live.sequence)

    def compact(self) -> None:
        """Save the index as one piece, and give the space of deleted items back; see `Store.compact`."""
        self._check_writable()
        with self._write_lock, translated(self.file):
            self._check_between_transactions("compact")
            self.save()
            free, pages = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _SIZES)
            if free > pages // 4:
                self._connection.execute("VACUUM")
            # Readers may keep the log from being emptied; it is then done another time.
            empty_log(self._connection)

    def save(self) -> None:
        """Save the index as it is."""
        with self._write_lock:
            if self._kept_cells is not None:
                # Those that are on disk only would be lost with the index that they belong to.
                self._kept_cells.load()
            save_index(self._connection, self.path, self._live)
            self._unsaved_rows = 0

    def _try_to_save(self) -> None:
        # What was put is safe without: a full disk makes the next opening slower, nothing else.
        with contextlib.suppress(OSError, FileError, sqlite3.Error):
            self.save()

    def _look(self) -> None:
        """Let a reader's index follow what another process has committed."""
        now = monotonic()
        # The writer may have died between a commit and the counter: now and then, the database is asked anyway.
        if self._counter.numbers[0] != self._live.sequence or now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            self.read(_nothing)

    def _follow(self, connection: sqlite3.Connection) -> int:
        """Return the change that the connection's transaction sees, and bring the index there."""
        sequence = read_state(connection).sequence
        live = self._live
        if live.sequence != sequence or live.version & 1:
            # Who changes the index holds the lock: what is unfinished now has been interrupted.
            with live.lock:
                if live.sequence < sequence or live.is_torn:
                    catch_up(live, connection, self.path, self.settings)
                live.settle()
        return sequence

    def open_encoder(self) -> Encoder:
        """Open the encoder that was saved with the store."""
        return open_encoder(self.path / ENCODER_NAME)

    def count(self, filter: Filter | None, limits: _native.Limits | None = None) -> int:
        """Return the number of items that pass."""
        if not filter:
            index = self.index
            return self.read(lambda _connection, _index: self._live.n_items) if self.has_several else len(index)

        def count_passing(connection: sqlite3.Connection, index: MultiIndex) -> int:
            if limits is not None:
                limits.take(rows=len(index))
            with bounded(connection, limits):
                return count_items(connection, filter)

        return self.read(count_passing)

    def get(self, ids: list[Id], limits: _native.Limits | None = None) -> list[Item | None]:
        """Return the items of these ids."""
        return self.read(lambda connection, _: get_items(connection, ids, self.settings.embeddings, limits))

    def scan(self, filter: Filter | None, limits: _native.Limits | None = None) -> Iterator[Item]:
        """Yield all items that pass."""
        with self.reading() as connection:
            yield from scan_items(connection, filter, self.settings.embeddings, limits)

    def sample_codes(self, n: int, seed: int) -> Codes:
        """Return codes of `n` items drawn at random, or of all."""
        index = self.index
        return present(index, _drawn(index.ids(), n, seed))[1]

    def sample_ids(self, n: int, seed: int) -> list[Id]:
        """Return ids of `n` items drawn at random, or of all."""
        rows = self.index.ids()
        return list(self.ids_of(_drawn(rows[~are_further(rows)], n, seed)).values())

    def whole_index(self) -> MultiIndex:
        """Return the index of all rows."""
        return self.index

    @property
    def has_cells(self) -> bool:
        """True: a folder can keep vectors in cells."""
        return True

    def cells(self) -> NeighborIndex | None:
        """Return the cells of the vectors, if there are any."""
        self.check_open()
        return None if self._kept_cells is None else self._kept_cells.now()

    def make_cells(self, asked: NeighborIndex, work: Work) -> None:
        """Fit cells to all vectors, and keep them beside the index."""
        if self._kept_cells is None:
            raise InputError(f"{self.path} keeps no vectors")
        if not self.read_only:
            with self._write_lock:
                self._check_between_transactions("tune")
        # All that was committed before this call is in them.
        self.read(_nothing)
        self._kept_cells.make(asked, work)
        if not self.read_only:
            with self._write_lock, translated(self.file):
                self.check_open()
                if not self._kept_cells.save(self._connection):
                    self._try_to_save()

    def find_in_cells(self, find: FindInCells) -> Answer | None:
        """Return what `find` finds in the cells and the index, both at the same change."""
        if self.read_only:
            self._look()
        if self.cells() is None:
            return None
        live = self._live
        version = live.version
        # Taken after the version: cells that were put aside before it follow no changes.
        cells = live.cells.index
        if cells is None:
            return None
        hits = find(cells, live.index)
        named = None if hits is None else self._named_at(version, hits)
        if named is not None:
            return named
        return self.read(lambda connection, index: self._find_in_cells_in_step(connection, index, find))

    def _find_in_cells_in_step(
        self, connection: sqlite3.Connection, index: MultiIndex, find: FindInCells
    ) -> Answer | None:
        cells = self._live.cells.index
        hits = None if cells is None else find(cells, index)
        return None if hits is None else self._names.name(hits, connection)

    @property
    def scanned_rows(self) -> int:
        """Most rows that are in no table of the index yet."""
        return self._live.index.scanned_rows

    def read_tunings(self) -> dict[int, str]:
        """Return what was measured, by `k`."""
        if not self.settings.keeps_vectors:
            return {}
        return self.read(lambda connection, _: dict(connection.execute("SELECT k, value FROM tuning").fetchall()))

    def write_tuning(self, k: int, text: str) -> None:
        """Keep what was measured."""
        self._check_writable()
        with self._write_lock:
            self._check_between_transactions("tune")
            with translated(self.file), transaction(self._connection):
                self._connection.execute("INSERT OR REPLACE INTO tuning VALUES (?, ?)", (k, text))

    def pairs(self, radius: int, work: Work) -> Iterator[Pair]:
        """Yield all pairs within the radius."""
        work = work.started()
        pairs = pairs_within(self.index, radius, work=work)
        yield from name_pairs(pairs_of_items(pairs), self.ids_of, work.limits)

    def ask_groups(self, kind: Kind, answer: ReadGroups[T], work: Work) -> T:
        """Bring groups to the last change, and return what `answer` reads of them."""
        self.check_open()
        return self._group_files.ask(kind, answer, work.started())

    def verify(self, *, progress: Progress | None) -> StoreReport:
        """Check the database by SQLite's own means, every row's checksum, and every row against the index."""
        noted = noted_changes(self.path)
        return self.read(
            lambda connection, index: verify_store(
                connection, index, self.path, self.settings, noted=noted, progress=progress
            )
        )

    def stats(self) -> StoreStats:
        """Return how much there is of everything."""
        return self.read(
            lambda connection, index: store_stats(connection, index, self._live.n_items, self.path, self.settings)
        )

    def backup(self, target: Path, verify: Verify, *, progress: Progress | None) -> BackupReport:
        """Copy the store as it is at this moment; whoever writes goes on."""
        noted = noted_changes(self.path)
        with self.reading() as connection:
            return back_up(connection, self.path, target, verify, noted=noted, progress=progress)

    def restore(self, target: Path, verify: Verify, *, replace: bool, progress: Progress | None) -> BackupReport:
        """Copy the store, which is a backup, to the place of another."""
        with self.reading() as connection:
            return restore(connection, self.path, target, verify, replace_target=replace, progress=progress)

    def after_fork(self) -> None:
        """Make the store unusable in a process that was forked from this one, and leave its lock."""
        if self._unusable:
            return
        self._unusable = "was opened by the process that this one was forked from; open the store again"
        if not self.read_only:
            self._lock.leave()


_SIZES = ("freelist_count", "page_count")


def _drawn(rows: NDArray[np.int64], n: int, seed: int) -> NDArray[np.int64]:
    """Return `n` of the rows drawn at random without repeats, or all of them."""
    return rows if len(rows) <= n else np.random.default_rng(seed).choice(rows, n, replace=False, shuffle=False)


def _nothing(_connection: sqlite3.Connection, _index: MultiIndex) -> None:
    """Do nothing: reading at all brings the index to the last change."""
