"""An open store: the database, the index that follows it, and reads that see both at the same change."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import ClosedError, CorruptFileError, FileError, InputError, ReadOnlyError
from hamtarget.protocol import Progress
from hamtarget.store.counter import COUNTER_NAME, ChangeCounter
from hamtarget.store.database import (
    DATABASE_NAME,
    Readers,
    open_database,
    set_durability,
    transaction,
    translated,
)
from hamtarget.store.live import StoreIndex
from hamtarget.store.lock import WriterLock
from hamtarget.store.names import Names, plain
from hamtarget.store.results import StoreHits, StoreQueryHits
from hamtarget.store.settings import read_settings
from hamtarget.store.snapshot import catch_up, open_index, save_index
from hamtarget.store.writing import Writing

T = TypeVar("T")

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
        saved_sequence: the last change that the saved index knows of.
    """

    def __init__(self, path: Path, *, read_only: bool, progress: Progress | None) -> None:
        self.path = path
        self.read_only = read_only
        self.file = path / DATABASE_NAME
        self._unusable = ""
        self._writing: Writing | None = None
        self._write_lock = threading.RLock()
        self._watch_lock = threading.Lock()
        if not path.is_dir():
            raise FileError(f"{path} is no store: there is no such folder; make one with Store.create")
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
                self._seen, self._next_look = self._data_version(), 0.0
                self._live = open_index(self._connection, path, self.settings, progress=progress)
                self._counter = ChangeCounter(path / COUNTER_NAME, read_only=read_only)
                self._counter.write(self._live.sequence)
                (self.saved_sequence,) = self._connection.execute("SELECT snapshot_sequence FROM state").fetchone()
            undo.pop_all()
        self._readers = Readers(self.file)
        self._names = Names(self._readers.one)
        _tell_of_forks(self)
        self._unsaved_rows = 0

    def close(self) -> None:
        """Nothing; the index is saved if it has changed, and another process may write."""
        if self._unusable:
            return
        with self._write_lock, self._live.lock:
            self._readers.close()
            try:
                if not self.read_only and self.saved_sequence != self._live.sequence:
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
        if self.read_only and self._changed():
            self.read(_nothing)
        return self._live.index

    def ids_of(self, rows: NDArray[np.int64]) -> NDArray[Any] | None:
        """Ids of rows; None where one of them was deleted meanwhile."""
        return self._names.of(rows)

    @property
    def sequence(self) -> int:
        """Number of the last change."""
        return self.read(lambda connection, _: int(connection.execute("SELECT sequence FROM state").fetchone()[0]))

    def check_open(self) -> None:
        """Nothing, if the store is open and was opened by this process.

        Raises:
            ClosedError: it is not.
        """
        if self._unusable:
            raise ClosedError(f"{self.path} {self._unusable}")

    def search(self, look: Callable[[StoreIndex], Any]) -> StoreQueryHits | StoreHits:
        """What `look` finds in the index: never while a transaction is half in it, and with ids for rows."""
        # A search for one code takes a few microseconds: this is written for few steps.
        live = self._live
        for _ in range(_FREE_TRIES):
            if self._unusable:
                self.check_open()
            if self.read_only and self._changed():
                self.read(_nothing)
            version = live.version
            hits = look(live.index)
            if live.version == version and not version & 1:
                if not live.has_names:
                    return hits if type(hits) is StoreQueryHits else plain(hits)
                named = self._names.resolve(hits)
                # A hit without a name has been deleted since.
                if named is not None:
                    return named
        return self.search_in_step(lambda _, index: look(index))

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
            for _ in range(_FREE_TRIES):
                with transaction(connection, kind="DEFERRED"):
                    if self._follow(connection):
                        live = self._live
                        version = live.version
                        result = work(connection, live.index)
                        if live.version == version and version % 2 == 0:
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
        self.check_open()
        if self.read_only:
            raise ReadOnlyError(f"{self.path} was opened for reading only; open it without read_only=True")
        with self._write_lock:
            self.check_open()
            if self._writing is not None:
                with translated(self.file), self._writing.part():
                    yield self._writing
                return
            with translated(self.file), contextlib.ExitStack() as held:
                try:
                    with transaction(self._connection):
                        writing = self._writing = Writing(self._connection)
                        yield writing
                        writing.finish()
                        # Held over the commit: nobody sees the database ahead of the index.
                        held.enter_context(self._live.lock)
                    if writing.changes:
                        self._live.apply(writing.changes, writing.sequence)
                        self._counter.write(writing.sequence)
                except BaseException:
                    # An interrupt may come between the commit and the index.
                    self._repair()
                    raise
                finally:
                    self._writing = None
            self._unsaved_rows += sum(len(change.rows) for change in writing.changes)
            if self._unsaved_rows > max(_UNSAVED_ROWS, _UNSAVED_SHARE * len(self._live.index)):
                self._try_to_save()

    def compact(self) -> None:
        """Nothing; see `Store.compact`."""
        with self.write() as writing:
            if writing.changes:
                raise InputError("compact is called within a transaction; call it after its end")
        with self._write_lock, translated(self.file):
            with self._live.lock:
                self._live.index.compact()
            self.save()
            free, pages = (self._connection.execute(f"PRAGMA {name}").fetchone()[0] for name in _SIZES)
            if free > pages // 4:
                self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def save(self) -> None:
        """Nothing; the index is saved as it is."""
        with self._write_lock:
            self.saved_sequence = save_index(self._connection, self.path, self._live)
            self._unsaved_rows = 0

    def _try_to_save(self) -> None:
        # What was put is safe without: a full disk makes the next opening slower, nothing else.
        with contextlib.suppress(OSError, FileError, sqlite3.Error):
            self.save()

    def _changed(self) -> bool:
        """Whether another process may have committed something since the last call."""
        now = time.monotonic()
        if self._counter.read() == self._live.sequence and now < self._next_look:
            return False
        # The writer may have died between a commit and the counter: SQLite itself knows.
        with self._watch_lock, translated(self.file):
            self._next_look = now + _LOOK_SECONDS
            before, self._seen = self._seen, self._data_version()
            return before != self._seen

    def _data_version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def _follow(self, connection: sqlite3.Connection) -> bool:
        """Whether the index is at the change that the connection's transaction sees; a reader's is brought there."""
        (sequence,) = connection.execute("SELECT sequence FROM state").fetchone()
        if self._live.sequence == sequence:
            return True
        if not self.read_only:
            # This process commits and follows under the lock: by the next transaction, it has.
            with self._live.lock:
                return False
        with self._live.lock:
            if self._live.sequence < sequence:
                catch_up(self._live, connection, self.path, self.settings)
            return bool(self._live.sequence == sequence)

    def after_fork(self) -> None:
        """Nothing; in a process that was forked from this one, the store cannot be used, and its lock is not held."""
        self._unusable = "was opened by the process that this one was forked from; open the store again"
        if not self.read_only:
            self._lock.release()

    def _repair(self) -> None:
        """Nothing; the index is at the database's change, whatever interrupted it on the way."""
        with self._live.lock:
            (sequence,) = self._connection.execute("SELECT sequence FROM state").fetchone()
            if sequence != self._live.sequence or self._live.is_torn:
                self._live.replace(open_index(self._connection, self.path, self.settings))


_SIZES = ("freelist_count", "page_count")


def _nothing(_connection: sqlite3.Connection, _index: StoreIndex) -> None:
    """To be read where only the index is to follow."""


_open_engines: WeakSet[Engine] = WeakSet()
_are_forks_told: list[bool] = []


def _tell_of_forks(engine: Engine) -> None:
    """Nothing; `engine.after_fork` will be called in processes that are forked from this one.

    SQLite's connections and locks do not survive a fork; a copy that is used nevertheless can destroy the database.
    """
    _open_engines.add(engine)
    if not _are_forks_told and hasattr(os, "register_at_fork"):
        _are_forks_told.append(True)
        os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    for engine in list(_open_engines):
        engine.after_fork()
