"""An open store: the database, the index that follows it, and reads that see both at the same change."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import ClosedError, CorruptFileError, FileError, InputError, ReadOnlyError
from hamtarget.progress import Progress
from hamtarget.store.forks import tell_of_forks
from hamtarget.store.names import Names, plain
from hamtarget.store.results import Id, StoreHits, StoreQueryHits
from hamtarget.store.settings import read_settings
from hamtarget.store.sqlite.counter import COUNTER_NAME, ChangeCounter
from hamtarget.store.sqlite.database import (
    DATABASE_NAME,
    Readers,
    empty_log,
    open_database,
    set_durability,
    transaction,
    translated,
)
from hamtarget.store.sqlite.live import StoreIndex
from hamtarget.store.sqlite.lock import WriterLock
from hamtarget.store.sqlite.snapshot import catch_up, open_index, save_index
from hamtarget.store.sqlite.state import read_state
from hamtarget.store.sqlite.writing import Writing

T = TypeVar("T")
Asked = tuple[Any, ...]
"""What a search is for, as the function that does it wants it."""

LOCK_NAME = "lock"
# The index is saved again when so many rows, and so large a share of all, have changed since: opening stays quick.
_UNSAVED_ROWS = 200_000
_UNSAVED_SHARE = 0.5
# What saw the index in the middle of a change is done again; at last while nothing may change.
_FREE_TRIES = 3
_LOOK_SECONDS = 0.05


class Engine:
    """The files of one store, held open.

    Attributes:
        path: the folder.
        read_only: whether it was opened for reading only.
        file: the database.
        settings: what the store was made for.
    """

    def __init__(self, path: Path, *, read_only: bool, progress: Progress | None) -> None:
        self.path = path
        self.read_only = read_only
        self.file = path / DATABASE_NAME
        self._unusable = ""
        self._next_look = 0.0
        self._writing: Writing | None = None
        self._write_lock = threading.RLock()
        if not self.file.is_file():
            what = f"it has no {DATABASE_NAME}" if path.is_dir() else "there is no such folder"
            raise FileError(f"{path} is no store: {what}; make one with Store.create")
        with contextlib.ExitStack() as undo:
            if not read_only:
                self._lock = WriterLock(path / LOCK_NAME)
                undo.callback(self._lock.release)
            with translated(self.file):
                self._connection = open_database(self.file, read_only=read_only)
                undo.callback(self._connection.close)
                self.settings = read_settings(self._connection)
                if not read_only:
                    set_durability(self._connection, self.settings.durability)
                self._live = open_index(self._connection, path, self.settings, progress=progress)
                self._counter = ChangeCounter(path / COUNTER_NAME, read_only=read_only)
                self._counter.write(self._live.sequence)
            undo.pop_all()
        self._readers = Readers(self.file)
        self._names = Names(self._live.index.names, self._readers.one)
        self._unsaved_rows = 0
        tell_of_forks(self)
        if not read_only and self._live.is_rebuilt and len(self._live.index):
            # So that the next opening need not do it again.
            self._try_to_save()

    def close(self) -> None:
        """Nothing; the index is saved if it has changed, and another process may write."""
        if self._unusable:
            return
        with self._write_lock, self._live.lock:
            self._check_between_transactions("close")
            self._readers.close()
            try:
                if not self.read_only and not self._live.is_saved and self._live.sequence:
                    self._try_to_save()
            finally:
                self._unusable = "was closed; open the store again"
                self._connection.close()
                self._counter.close()
                if not self.read_only:
                    self._lock.release()

    @property
    def index(self) -> StoreIndex:
        """The index, with every change that was committed before the call."""
        self.check_open()
        if self.read_only:
            self._look()
        if self._live.version & 1:
            self.read(_nothing)
        return self._live.index

    def ids_of(self, rows: NDArray[np.int64]) -> dict[int, Id]:
        """Ids by row, without those of rows that were deleted meanwhile."""
        self.check_open()
        with translated(self.file):
            return self._names.of_present(rows)

    @property
    def sequence(self) -> int:
        """Number of the last change."""
        return self.read(lambda connection, _: read_state(connection).sequence)

    def check_open(self) -> None:
        """Nothing, if the store is open and was opened by this process.

        Raises:
            ClosedError: it is not.
        """
        if self._unusable:
            raise ClosedError(f"{self.path} {self._unusable}")

    def search(self, look: Callable[[StoreIndex, Asked], Any], asked: Asked) -> StoreQueryHits | StoreHits:
        """What `look` finds in the index: never while a transaction is half in it, and with ids for rows."""
        # A search for one code takes a few microseconds: this is written for few steps, without a closure.
        live = self._live
        if self._unusable:
            self.check_open()
        if self.read_only and (self._counter.numbers[0] != live.sequence or monotonic() >= self._next_look):
            self._look()
        version = live.version
        hits = look(live.index, asked)
        if live.version == version and not version & 1:
            # All of them have their ids.
            if type(hits) is StoreQueryHits:
                return hits
            if not live.has_names:
                return plain(hits)
            named = self._names.resolve(hits)
            # A hit without a name has been deleted since.
            if named is not None:
                return named
        return self.search_in_step(partial(_in_index, look, asked))

    def search_in_step(self, look: Callable[[sqlite3.Connection, StoreIndex], Any]) -> StoreQueryHits | StoreHits:
        """The same for a search that reads the database, too: both are at the same change."""

        def named(connection: sqlite3.Connection, index: StoreIndex) -> StoreQueryHits | StoreHits:
            hits = self._names.resolve(look(connection, index), connection)
            if hits is None:
                raise CorruptFileError(f"{self.file}: a row has no name; restore the folder from a copy")
            return hits

        return self.read(named)

    def read(self, work: Callable[[sqlite3.Connection, StoreIndex], T]) -> T:
        """What `work` gives, which sees the database and the index at the same change."""
        self.check_open()
        with translated(self.file), self._readers.one() as connection:
            live = self._live
            for _ in range(_FREE_TRIES):
                with transaction(connection, kind="DEFERRED"):
                    sequence = self._follow(connection)
                    version = live.version
                    if live.sequence == sequence and not version & 1:
                        result = work(connection, live.index)
                        if live.version == version:
                            return result
            with self._live.lock, transaction(connection, kind="DEFERRED"):
                self._follow(connection)
                return work(connection, self._live.index)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection in a transaction of its own: what it reads stays as it is, whatever is written meanwhile."""
        self.check_open()
        with translated(self.file), self._readers.one() as connection, transaction(connection, kind="DEFERRED"):
            yield connection

    @contextmanager
    def write(self) -> Iterator[Writing]:
        """A transaction, or the one in which this thread is already: all of it is committed at the end, or nothing."""
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
        """Nothing; see `Store.compact`."""
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
        """Nothing; the index is saved as it is."""
        with self._write_lock:
            save_index(self._connection, self.path, self._live)
            self._unsaved_rows = 0

    def _try_to_save(self) -> None:
        # What was put is safe without: a full disk makes the next opening slower, nothing else.
        with contextlib.suppress(OSError, FileError, sqlite3.Error):
            self.save()

    def _look(self) -> None:
        """Nothing; if another process has committed something, a reader's index has followed."""
        now = monotonic()
        # The writer may have died between a commit and the counter: now and then, the database is asked anyway.
        if self._counter.numbers[0] != self._live.sequence or now >= self._next_look:
            self._next_look = now + _LOOK_SECONDS
            self.read(_nothing)

    def _follow(self, connection: sqlite3.Connection) -> int:
        """The change that the connection's transaction sees; the index is there as well, or will be in a moment."""
        sequence = read_state(connection).sequence
        live = self._live
        if live.sequence != sequence or live.version & 1:
            # Who changes the index holds the lock: what is unfinished now has been interrupted.
            with live.lock:
                if live.sequence < sequence or live.is_torn:
                    catch_up(live, connection, self.path, self.settings)
                live.settle()
        return sequence

    def after_fork(self) -> None:
        """Nothing; in a process that was forked from this one, the store cannot be used, and its lock is not held."""
        if self._unusable:
            return
        self._unusable = "was opened by the process that this one was forked from; open the store again"
        if not self.read_only:
            self._lock.leave()


_SIZES = ("freelist_count", "page_count")


def _nothing(_connection: sqlite3.Connection, _index: StoreIndex) -> None:
    """To be read where only the index is to follow."""


def _in_index(
    look: Callable[[StoreIndex, Asked], Any], asked: Asked, _connection: sqlite3.Connection, index: StoreIndex
) -> Any:
    """For `search_in_step`: a search that does not read the database."""
    return look(index, asked)
