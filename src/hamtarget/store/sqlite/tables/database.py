"""The SQLite file of a store: its tables, its connections, their limits, and its errors in this package's words."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from urllib.parse import quote

from hamtarget._core import _native
from hamtarget.errors import (
    ClosedError,
    CorruptFileError,
    FileError,
    LimitError,
    LockedError,
    ReadOnlyError,
    UnsupportedFileError,
    WriteError,
)
from hamtarget.store.settings import Durability, Settings, settings_of
from hamtarget.store.sqlite.lock import TOO_MANY_FILES, is_out_of_files, too_many_files
from hamtarget.store.sqlite.tables.filters import passes
from hamtarget.store.sqlite.tables.state import State, read_state, write_state

DATABASE_NAME = "store.db"
# "HAMT", where `file` and other tools look for it.
APPLICATION_ID = 0x48414D54
SCHEMA_VERSION = 1

_SYNCHRONOUS: dict[Durability, str] = {"full": "FULL", "os": "NORMAL"}

# `->` of JSON came with 3.38; STRICT tables are one version older.
_OLDEST_SQLITE = (3, 38, 0)
# Before it, two connections that write or copy the log at the same moment can, rarely, damage the database.
_SAFE_SQLITE = (3, 51, 3)
_WAIT_SECONDS = 30.0
_WAIT_FOR_READERS_MS = 200
_STATEMENTS = 64
# Steps of SQLite's machine between two looks at the limits: a few dozen rows, of which a large payload may take a
# millisecond each.
_STEPS = 200
# The log is copied into the database when it has so many pages (of 4 KiB): larger is faster for many puts.
_LOG_PAGES = 16_384
_WRITER_CACHE_KIB = 64 * 1024

# `row` is the number by which the index knows an item. `changed` is the number of the transaction that wrote the row.
# A row of `deleted` says that the item was removed in transaction `changed`, unless it is in `items` again.
# `state.forgotten`: rows of `deleted` up to this transaction have been removed. `tuning` has what was measured for a
# number of neighbours, with its own checksum, where the store keeps vectors.
_TABLES = """
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE state (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    sequence INTEGER NOT NULL,
    next_row INTEGER NOT NULL,
    forgotten INTEGER NOT NULL,
    snapshot TEXT,
    snapshot_sequence INTEGER,
    checksum INTEGER NOT NULL
) STRICT;
CREATE TABLE items (
    row INTEGER PRIMARY KEY,
    code BLOB NOT NULL,
    embedding BLOB,
    payload TEXT,
    changed INTEGER NOT NULL,
    checksum INTEGER NOT NULL
) STRICT;
CREATE INDEX items_by_change ON items (changed);
CREATE TABLE names (row INTEGER PRIMARY KEY, id ANY NOT NULL UNIQUE, checksum INTEGER NOT NULL) STRICT;
CREATE TABLE deleted (row INTEGER PRIMARY KEY, changed INTEGER NOT NULL, checksum INTEGER NOT NULL) STRICT;
CREATE INDEX deleted_by_change ON deleted (changed);
CREATE TABLE tuning (k INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""


def sqlite_in_words() -> str:
    """Return the version of SQLite that Python was built with, and what a user should know of it, in one line."""
    if sqlite3.sqlite_version_info >= _SAFE_SQLITE:
        return sqlite3.sqlite_version
    return (
        f"{sqlite3.sqlite_version}: before {'.'.join(map(str, _SAFE_SQLITE))}, two writing connections at once can "
        "damage a database; a store has one, so let no other program write to store.db"
    )


def create_database(path: Path, settings: dict[str, str], next_row: int) -> None:
    """Create the database of an empty store, on disk."""
    connection = connect(path, "rwc")
    try:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.executescript(
            f"BEGIN; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION};{_TABLES} COMMIT;"
        )
        with transaction(connection):
            connection.executemany("INSERT INTO settings VALUES (?, ?)", settings.items())
            write_state(connection, State(0, next_row, 0))
    finally:
        connection.close()


def open_database(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """Open a connection to a store's database.

    Args:
        path: the file.
        read_only: if True, the connection can write nothing.

    Raises:
        CorruptFileError: it is something else, or damaged.
        UnsupportedFileError: it has another version, or this SQLite is too old.
    """
    if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
        wanted = ".".join(map(str, _OLDEST_SQLITE))
        raise UnsupportedFileError(f"Python's SQLite is {sqlite3.sqlite_version}; a store needs {wanted} or later")
    connection = _open_any(path, read_only=read_only)
    try:
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if application != APPLICATION_ID:
            raise CorruptFileError(f"{path} is an SQLite file, but not a store's; restore it from a copy")
        if version != SCHEMA_VERSION:
            raise UnsupportedFileError(
                f"{path} has version {version}; this hamtarget reads version {SCHEMA_VERSION}: install the hamtarget "
                "that wrote it"
            )
        if wrong := wrong_tables(connection):
            raise CorruptFileError(f"{path}: {wrong[0]} is not as a store has it; restore the folder from a copy")
        read_state(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def wrong_tables(connection: sqlite3.Connection) -> list[str]:
    """Return the names of the tables and indexes that are not those of a store, or would run by themselves."""
    found = {(kind, name): sql for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_schema")}
    wrong = [name for (kind, name), sql in _expected_tables().items() if found.get((kind, name)) != sql]
    return wrong + [str(name) for kind, name in found if kind in ("trigger", "view")]


@cache
def _expected_tables() -> dict[tuple[str, str], str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_TABLES)
        rows = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {(kind, name): sql for kind, name, sql in rows}


def set_durability(connection: sqlite3.Connection, durability: Durability) -> None:
    """Let commits of this connection wait for the disk, or for the operating system only."""
    connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[durability]}")
    # Else macOS leaves data in the disk's own cache; other systems ignore it.
    connection.execute("PRAGMA fullfsync = ON")
    connection.execute("PRAGMA checkpoint_fullfsync = ON")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_PAGES * 4096}")
    connection.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB}")


def empty_log(connection: sqlite3.Connection) -> None:
    """Copy the log into the database and empty it, unless readers are in the way: then later."""
    connection.execute(f"PRAGMA busy_timeout = {_WAIT_FOR_READERS_MS}")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {int(1000 * _WAIT_SECONDS)}")


def _open_any(path: Path, *, read_only: bool) -> sqlite3.Connection:
    if not read_only:
        return connect(path, "rw")
    connection = connect(path, "ro")
    try:
        connection.execute("SELECT 1 FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        unwritable = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY)
        if not unwritable or os.access(path.parent, os.W_OK):
            raise
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:
            raise FileError(
                f"{path} cannot be read where nobody can write, because some changes are still in {log.name}: "
                "open the store once for writing, and close it"
            ) from error
        # A folder that cannot be written, and no log: the file is all there is, and nobody changes it.
        connection = connect(path, "ro&immutable=1")
    return connection


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """Return a connection to a file of a store; `mode` is that of an SQLite URI, such as rw."""
    connection = sqlite3.connect(
        f"file:{quote(str(path.resolve()))}?mode={mode}",
        uri=True,
        timeout=_WAIT_SECONDS,
        isolation_level=None,
        # Connections go from thread to thread, one at a time.
        check_same_thread=False,
        cached_statements=_STATEMENTS,
    )
    # What a damaged or forged file says shall not be believed.
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.create_function("hamtarget_passes", 2, passes, deterministic=True)
    return connection


def read_settings(connection: sqlite3.Connection) -> Settings:
    """Return the settings of the store that a database is.

    Raises:
        CorruptFileError: they are not those of a store.
    """
    try:
        texts = dict(connection.execute("SELECT name, value FROM settings"))
    except (TypeError, ValueError) as error:
        raise CorruptFileError(
            f"the settings of the store are damaged ({error}); restore the folder from a copy"
        ) from error
    return settings_of(texts)


@contextmanager
def transaction(connection: sqlite3.Connection, *, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Begin a transaction: it is committed at the end, or rolled back if anything is raised, also by the commit."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After some failures, as that of a full disk, SQLite has rolled back by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of the system within the block into those of `hamtarget.errors`."""
    try:
        yield
    except OSError as error:
        raise _of_system(path, error) from error
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None:
            if "closed database" in str(error):
                raise ClosedError(f"{path} was closed; open the store again") from error
            if "decode" in str(error):
                raise CorruptFileError(f"{path}: {error}; restore the folder from a copy") from error
            raise
        what = f"{path}: {error}"
        if code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or code == sqlite3.SQLITE_IOERR_SHORT_READ:
            raise CorruptFileError(f"{what}; restore the folder from a copy") from error
        if code & 0xFF in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise WriteError(f"{what}; nothing was changed: make room, or look after the disk") from error
        if code & 0xFF == sqlite3.SQLITE_READONLY:
            raise ReadOnlyError(f"{what}; open it with read_only=True") from error
        if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise LockedError(f"{what}: something else than a store holds it; end that and try again") from error
        if code & 0xFF == sqlite3.SQLITE_CANTOPEN and is_out_of_files(path):
            raise too_many_files(path) from error
        if code & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            raise FileError(f"{what}; see whether the folder and its files may be read") from error
        raise CorruptFileError(f"{what}; its tables are not those of a store") from error


def _of_system(path: Path, error: OSError) -> FileError:
    what = f"{error.filename or path}: {error.strerror or error}"
    if error.errno in TOO_MANY_FILES:
        return too_many_files(path)
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
        return WriteError(f"{what}; nothing was changed: make room, or look after the disk")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnlyError(f"{what}; open it with read_only=True")
    return FileError(f"{what}; see whether the folder and its files may be read")


class Readers:
    """Connections that only read: as many as there are threads reading at a time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._free: deque[sqlite3.Connection] = deque()
        self._closed = False

    @contextmanager
    def one(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection that nobody else uses meanwhile."""
        if self._closed:
            raise ClosedError(f"{self._path.parent} was closed; open the store again")
        try:
            connection = self._free.pop()
        except IndexError:
            connection = open_database(self._path, read_only=True)
        try:
            yield connection
        finally:
            self._take_back(connection)

    def _take_back(self, connection: sqlite3.Connection) -> None:
        self._free.append(connection)
        if self._closed:
            self.close()

    def close(self) -> None:
        """Close the connections; those in use are closed when they come back."""
        self._closed = True
        while self._free:
            self._free.pop().close()


@contextmanager
def bounded(connection: sqlite3.Connection, limits: _native.Limits | None) -> Iterator[None]:
    """End what the connection does within the block when the deadline is past, or the work was cancelled.

    Raises:
        LimitError: it was interrupted.
    """
    if limits is None:
        yield
        return
    limits.check()
    connection.set_progress_handler(lambda: _is_over(limits), _STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            limits.check()
        raise
    finally:
        connection.set_progress_handler(None, _STEPS)


def _is_over(limits: _native.Limits) -> bool:
    try:
        limits.check()
    except LimitError:
        return True
    return False
