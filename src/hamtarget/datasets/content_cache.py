"""A cache of slow work on files, such as codes or features of pictures, by the content of the file.

A renamed or copied file is found again; an altered one is not. The cache is never needed: where it cannot be read or
written, the work is done again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from hamtarget._reading import reason_of
from hamtarget.errors import FileError, InputError

Result = TypeVar("Result")

# Part of the name of every file. A change of its tables or checksums needs a new version.
_VERSION = 1
DIGEST_BYTES = 20
"""Bytes of a digest."""
_CHECKSUM_BYTES = 8
# Every SQLite takes so many parameters of a statement.
_DIGESTS_AT_ONCE = 900
# Another process writes for a moment only.
_WAIT_SECONDS = 10.0
# Errors of SQLite that mean damage, or a file of another kind: CORRUPT, NOTADB, and ERROR (a table that is not there).
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)
_PRIMARY_CODE = 0xFF


def cache_folder() -> Path:
    """Return the folder for files that have no better place: HAMTARGET_CACHE, or ~/.cache/hamtarget.

    Raises:
        RuntimeError: neither the variable nor a home folder is there.
    """
    chosen = os.environ.get("HAMTARGET_CACHE")
    return Path(chosen) if chosen else Path.home() / ".cache" / "hamtarget"


def content_digest(path: str | os.PathLike[str]) -> bytes:
    """Return the digest of a file's content, the key of a `ContentCache`.

    Raises:
        FileError: the file cannot be read.
    """
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, _new_digest).digest()
    except OSError as error:
        raise FileError(f"{os.fspath(path)}: {reason_of(error)}; expected a file that can be read") from error


def digest_of(content: bytes) -> bytes:
    """Return the digest of bytes: that of a file which holds them."""
    digest = _new_digest()
    digest.update(content)
    return digest.digest()


class ContentCache:
    """Values of one length, kept in a file under the digest of the content that they were computed from.

    Any number of processes may use one cache at once. A damaged file is set aside and made anew. A value comes back as
    it was put, or not at all: each has a checksum. Where the file cannot be made or written, as on a full disk, nothing
    is kept and nothing fails.

    Args:
        maker: names all that a value depends on besides the content: the fingerprint of an encoder, the size that
            pictures are read in. Each maker has a file of its own.
        value_bytes: bytes of a value.
        folder: where the file is; by default the folder that HAMTARGET_CACHE names, or ~/.cache/hamtarget.

    Raises:
        InputError: `value_bytes` is below 1.

    Example:
        >>> cache = ContentCache("length of a text", value_bytes=1, folder=Path("cache"))
        >>> key = digest_of(b"some text")
        >>> cache.put({key: bytes([9])})
        >>> cache.get([key, digest_of(b"another")]) == {key: bytes([9])}
        True
        >>> cache.close()
    """

    def __init__(self, maker: str, *, value_bytes: int, folder: Path | None = None) -> None:
        if value_bytes < 1:
            raise InputError(f"value_bytes is {value_bytes}; expected 1 or more")
        self.maker = maker
        self.value_bytes = value_bytes
        self._seal = f"{_VERSION} {value_bytes} {maker}".encode()
        self._path = _file_of(self._seal, folder)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._process = os.getpid()
        self._given_up = self._path is None
        self._full = False

    @property
    def path(self) -> Path | None:
        """The file of this cache; None where there is no folder for it."""
        return self._path

    def __repr__(self) -> str:
        """Return maker, bytes of a value and file."""
        return f"ContentCache({self.maker!r}, value_bytes={self.value_bytes}, path={str(self._path)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. The cache may be used again, which opens it again."""
        with self._lock:
            self._close()

    def get(self, digests: Iterable[bytes]) -> dict[bytes, bytes]:
        """Return the values that are kept, by digest; digests without a value are not in the result."""
        found: dict[bytes, bytes] = {}
        wanted = iter(dict.fromkeys(digests))
        while some := list(islice(wanted, _DIGESTS_AT_ONCE)):
            found.update(self._get(some))
        return found

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Keep values by digest, on disk when the call returns; or, where that cannot be, keep none.

        Raises:
            InputError: a value has another length than `value_bytes`.
        """
        for value in values.values():
            if len(value) != self.value_bytes:
                raise InputError(f"a value has {len(value)} bytes; this cache keeps values of {self.value_bytes}")
        if self._full or not values:
            return
        rows = [(digest, value, self._checksum(digest, value)) for digest, value in values.items()]

        def insert(connection: sqlite3.Connection) -> None:
            # All of them or none.
            with connection:
                connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", rows)

        self._attempt(insert)

    def _get(self, digests: list[bytes]) -> dict[bytes, bytes]:
        marks = ",".join("?" * len(digests))
        statement = f"SELECT digest, value, checksum FROM kept WHERE digest IN ({marks})"
        rows = self._attempt(lambda connection: connection.execute(statement, digests).fetchall())
        return {digest: value for digest, value, checksum in rows or [] if self._is_intact(digest, value, checksum)}

    def _is_intact(self, digest: object, value: object, checksum: object) -> bool:
        if not isinstance(digest, bytes) or not isinstance(value, bytes) or len(value) != self.value_bytes:
            return False
        return checksum == self._checksum(digest, value)

    def _checksum(self, digest: bytes, value: bytes) -> bytes:
        # With the maker, so that a file under another's name holds nothing of use.
        return hashlib.blake2b(self._seal + b"\0" + digest + value, digest_size=_CHECKSUM_BYTES).digest()

    def _attempt(self, work: Callable[[sqlite3.Connection], Result]) -> Result | None:
        """Return the result of work on the file; None where the file cannot be used."""
        with self._lock:
            try:
                connection = self._open()
                return None if connection is None else work(connection)
            except sqlite3.Error as error:
                code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & _PRIMARY_CODE
                if code in _DAMAGE:
                    self._set_aside()
                elif code == sqlite3.SQLITE_FULL:
                    # What is kept already can still be read.
                    self._full = True
                elif code not in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    self._close()
                    self._given_up = True
            except OSError:
                self._given_up = True
            return None

    def _open(self) -> sqlite3.Connection | None:
        if self._process != os.getpid():
            # A connection must not be used by a process that was forked, nor be closed by it.
            self._connection, self._process = None, os.getpid()
        if self._connection is None and not self._given_up and self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._path, timeout=_WAIT_SECONDS, check_same_thread=False)
            try:
                # Damaged text must not fail to decode.
                connection.text_factory = bytes
                connection.execute("PRAGMA synchronous=NORMAL")
                connection.execute(
                    "CREATE TABLE IF NOT EXISTS kept (digest BLOB PRIMARY KEY, value BLOB, checksum BLOB) WITHOUT ROWID"
                )
            except sqlite3.Error:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _close(self) -> None:
        if self._connection is not None and self._process == os.getpid():
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        self._connection = None

    def _set_aside(self) -> None:
        """Move a damaged file out of the way; the next call makes a new one."""
        self._close()
        if self._path is None:
            return
        # The journal goes first: a new file must never meet the journal of the old one.
        for name in (f"{self._path}-journal", str(self._path)):
            try:
                os.replace(name, f"{name}.damaged")
            except FileNotFoundError:
                continue
            except OSError:
                self._given_up = True


def _new_digest() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=DIGEST_BYTES)


def _file_of(seal: bytes, folder: Path | None) -> Path | None:
    try:
        chosen = cache_folder() if folder is None else folder
    except RuntimeError:
        # No home folder.
        return None
    return chosen / f"content-{hashlib.sha256(seal).hexdigest()[:32]}.db"
