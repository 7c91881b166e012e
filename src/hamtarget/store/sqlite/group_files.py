"""Groups that a folder keeps: a file for each kind of them, which follows the store when it is asked."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np

from hamtarget._core import _native
from hamtarget._files import make_folders
from hamtarget.codes import Codes
from hamtarget.errors import FileError
from hamtarget.items import Id
from hamtarget.query import Asked, Query, Work
from hamtarget.search.multi import MultiIndex
from hamtarget.search.pairs import hits_in_blocks, present
from hamtarget.store.groups.kept import ReadGroups, ask_kept
from hamtarget.store.groups.pages import IdsOf
from hamtarget.store.groups.source import Near, Rows, Source, near_of
from hamtarget.store.groups.sql import SqliteGroups, is_damage
from hamtarget.store.groups.tables import DamagedGroupsError, Kind
from hamtarget.store.settings import Durability
from hamtarget.store.sqlite.tables.database import (
    APPLICATION_ID,
    bounded,
    connect,
    set_durability,
    transaction,
    translated,
)
from hamtarget.store.sqlite.tables.rows import changed_rows, find_all_ids, read_deleted
from hamtarget.store.sqlite.tables.state import read_state

T = TypeVar("T")
U = TypeVar("U")

KnownIds = Callable[[Rows], dict[int, Id]]

FOLDER_NAME = "groups"
_VERSION = 1
_TURN_SECONDS = 0.05
_ROWS_AT_ONCE = 16_384
# Kinds of groups that a reader holds in memory.
_MOST_IN_MEMORY = 4


class ReadFolder(Protocol):
    """Reads a folder's store at one change."""

    def __call__(self, do: Callable[[sqlite3.Connection, MultiIndex], T]) -> T:
        """Return what `do` returns, which sees the database and the index at the same change."""
        ...


class FolderSource:
    """A folder's store at one change, as groups read it."""

    def __init__(self, connection: sqlite3.Connection, index: MultiIndex, known_ids: KnownIds) -> None:
        """Read a store whose database and index are at the same change, which stays for the time being.

        Args:
            connection: to the database.
            index: at the same change.
            known_ids: gives ids by row, perhaps without those of rows that have been deleted since.
        """
        self._known_ids = known_ids
        self._connection = connection
        self._index = index
        state = read_state(connection)
        self.sequence = state.sequence
        self._forgotten = state.forgotten

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._index)

    def everything(self) -> tuple[Rows, Codes]:
        """Return all rows, ascending, and their codes."""
        return self._present(np.sort(self._index.ids()))

    def n_changed(self, after: int, most: int) -> int:
        """Return how many rows were written after a change; `most` at most."""
        sql = "SELECT count(*) FROM (SELECT 1 FROM items WHERE changed > ? LIMIT ?)"
        return int(self._connection.execute(sql, (after, most)).fetchone()[0])

    def changed(self, after: int) -> tuple[Rows, Codes]:
        """Return rows that were written after a change, and their codes."""
        return self._present(np.fromiter(changed_rows(self._connection, after=after), np.int64))

    def deleted(self, after: int) -> list[int] | None:
        """Return rows that were deleted after a change; None if that is not known any more."""
        return None if self._forgotten > after else read_deleted(self._connection, after=after)

    def missing(self, rows: Rows) -> list[int]:
        """Return those of the rows that are not there."""
        missing: list[int] = rows[~np.isin(rows, self._index.ids())].tolist()
        return missing

    def are_shared(self, codes: Codes, work: Work) -> list[bool]:
        """Return for each of the codes if several rows have it."""
        if not len(codes):
            return []
        hits = self._index.answer(Asked(codes), Query(0, limit=2), work)
        shared: list[bool] = (np.diff(hits.offsets) > 1).tolist()
        return shared

    def near(self, codes: Codes, radius: int, work: Work) -> Iterator[list[Near]]:
        """Yield for each of the codes what is within the radius of it, in blocks."""
        for _, hits in hits_in_blocks(
            self._index,
            radius,
            np.arange(len(codes)),
            lambda block: (block, codes[block[0] : block[-1] + 1]),
            replace(work, progress=None),
        ):
            yield near_of(hits, self._present(hits.rows)[1])

    def _present(self, rows: Rows) -> tuple[Rows, Codes]:
        """Return rows and their codes; an index with embeddings gives both, which need not all fit into memory."""
        parts = [present(self._index, rows[start : start + _ROWS_AT_ONCE]) for start in _starts(len(rows))]
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])

    def ids_of(self, rows: Sequence[int]) -> list[Id]:
        """Return the ids of rows, all of which are there."""
        known = self._known_ids(np.array(rows, dtype=np.int64))
        # Some may have been deleted since.
        unknown = [row for row in rows if row not in known]
        known.update(zip(unknown, find_all_ids(self._connection, unknown), strict=True))
        return [known[row] for row in rows]


class GroupFiles:
    """All kinds of groups of an open folder.

    Who writes to the folder writes to the files as well. A store that was opened for reading takes them into memory,
    and lets them follow there.
    """

    def __init__(
        self, folder: Path, read: ReadFolder, known_ids: KnownIds, durability: Durability, *, read_only: bool
    ) -> None:
        """Find the files of a folder.

        Args:
            folder: of the store.
            read: calls something with database and index at the same change.
            known_ids: gives ids by row, without those of rows that were deleted meanwhile.
            durability: that of the store.
            read_only: True if the store was opened for reading only.
        """
        self._folder = folder / FOLDER_NAME
        self._read = read
        self._known_ids = known_ids
        self._durability: Durability = durability
        self._read_only = read_only
        self._opened: dict[Kind, SqliteGroups] = {}
        # Files that a reader found to be damaged.
        self._refused: set[Kind] = set()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            while self._opened:
                self._opened.popitem()[1].connection.close()

    def take_back(self, sequence: int) -> None:
        """Let groups that know of a later change than the store be made anew: the store was brought back from a copy.

        It has to be called before the store is changed: later, the numbers of changes would not tell.
        """
        for path in self._folder.glob("*.db"):
            with contextlib.suppress(sqlite3.Error, DamagedGroupsError):
                connection = connect(path, "rw")
                try:
                    tables = SqliteGroups(connection).tables
                    if (kept := tables.read_state()).sequence > sequence:
                        tables.write_state(kept._replace(sequence=0))
                finally:
                    connection.close()

    def ask(self, kind: Kind, answer: ReadGroups[T], work: Work) -> T:
        """Bring groups to the last change of the store, and return what `answer` reads of them."""
        limits = work.limits

        def read_store(do: Callable[[Source, IdsOf], U]) -> U:
            def at_one_change(connection: sqlite3.Connection, index: MultiIndex) -> U:
                source = FolderSource(connection, index, self._known_ids)
                return do(source, source.ids_of)

            return self._read(at_one_change)

        def ask() -> T:
            groups = self._open(kind)
            try:
                with translated(self._path(kind)), bounded(groups.connection, limits):
                    return ask_kept(groups, read_store, kind, answer, work)
            finally:
                groups.undo()

        with self._turn(limits):
            try:
                return ask()
            except DamagedGroupsError:
                # What can be made again need not be mended.
                self._remove(kind)
                return ask()

    @contextmanager
    def _turn(self, limits: _native.Limits | None) -> Iterator[None]:
        """Wait until nobody else asks for groups, or until the time is over."""
        if limits is not None:
            while not self._lock.acquire(timeout=_TURN_SECONDS):
                limits.check()
        else:
            self._lock.acquire()
        try:
            yield
        finally:
            self._lock.release()

    def _path(self, kind: Kind) -> Path:
        return self._folder / f"{kind.radius}-{kind.linkage}.db"

    def _open(self, kind: Kind) -> SqliteGroups:
        """Return the tables of a kind: those of the file, or in memory."""
        path, opened = self._path(kind), self._opened.get(kind)
        if not self._read_only:
            if opened is None:
                with translated(path):
                    opened = self._opened[kind] = _open_file(path, self._durability)
            return opened
        kept = None
        if kind not in self._refused:
            kept = _read_file(path, 0 if opened is None else opened.tables.read_state().sequence)
        if kept is None and opened is None:
            kept = SqliteGroups.in_memory()
        if kept is not None:
            if opened is not None:
                self._opened.pop(kind).connection.close()
            while len(self._opened) >= _MOST_IN_MEMORY:
                self._opened.pop(next(iter(self._opened))).connection.close()
            self._opened[kind] = kept
        return self._opened[kind]

    def _remove(self, kind: Kind) -> None:
        """Forget tables that are damaged."""
        if kind in self._opened:
            self._opened.pop(kind).connection.close()
        self._refused.add(kind)
        if not self._read_only:
            _remove_file(self._path(kind))


def _open_file(path: Path, durability: Durability) -> SqliteGroups:
    """Return the groups in a file; it is made where there is none, or one that is damaged."""
    make_folders(path.parent)
    for _ in range(2):
        connection = connect(path, "rwc")
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                _create(connection)
            if _is_whole(connection):
                set_durability(connection, durability)
                return SqliteGroups(connection)
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                connection.close()
                raise
        connection.close()
        _remove_file(path)
    raise FileError(f"{path} cannot be made; see whether the folder and its files may be written")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode = WAL")
    with transaction(connection):
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {_VERSION}")
        SqliteGroups(connection).tables.create()


def _is_whole(connection: sqlite3.Connection) -> bool:
    """Return True if a file is one of groups of this version, and as it was written.

    Every column is in a table and in an index, which SQLite compares. Nothing but these is there, such as a trigger,
    which would run by itself.
    """
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        return False
    if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
        return False
    if _schema(connection) != _expected_schema():
        return False
    return [line for (line,) in connection.execute("PRAGMA integrity_check(1)")] == ["ok"]


def _schema(connection: sqlite3.Connection) -> set[tuple[object, ...]]:
    return set(connection.execute("SELECT type, name, sql FROM sqlite_schema"))


@cache
def _expected_schema() -> set[tuple[object, ...]]:
    with contextlib.closing(SqliteGroups.in_memory().connection) as connection:
        return _schema(connection)


def _read_file(path: Path, after: int) -> SqliteGroups | None:
    """Return a copy of the groups in a file; None if it is damaged, or not later than a change."""
    if not path.is_file():
        return None
    with contextlib.suppress(sqlite3.Error, DamagedGroupsError), contextlib.closing(connect(path, "ro")) as connection:
        groups = SqliteGroups(connection)
        if groups.tables.read_state().sequence <= after:
            return None
        copy = groups.copied_to_memory()
        if _is_whole(copy.connection):
            return copy
        copy.connection.close()
    return None


def _starts(n_rows: int) -> range:
    # One part at least, so that there is an array of the right shape.
    return range(0, max(1, n_rows), _ROWS_AT_ONCE)


def _remove_file(path: Path) -> None:
    for each in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
        each.unlink(missing_ok=True)
