"""One writer at a time: a lock that the operating system takes back when its holder dies."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from hamtarget.errors import FileError, LockedError, ReadOnlyError

TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
# Two connections, each with the database, its log and the log's index, and some room.
_NEEDED_FILES = 8


def too_many_files(path: Path) -> FileError:
    """Return the error for a file that cannot be opened because this process, or the system, has too many open."""
    return FileError(
        f"{path} cannot be opened: too many files are open; close some, or allow more (`ulimit -n` shows the limit)"
    )


def is_out_of_files(path: Path) -> bool:
    """Return True if fewer files can be opened than a store needs: SQLite does not say why it cannot open one."""
    handles = []
    try:
        for _ in range(_NEEDED_FILES):
            handles.append(os.open(path.parent, os.O_RDONLY))
    except OSError as error:
        return error.errno in TOO_MANY_FILES
    finally:
        for handle in handles:
            os.close(handle)
    return False


class WriterLock:
    """A lock that is held from the moment it is made until `release`, or the death of the process."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            LockedError: another writer holds it; names its process.
            FileError: too many files are open.
            ReadOnlyError: the folder cannot be written.
        """
        try:
            import fcntl
        except ImportError as error:
            raise FileError(f"{path}: this system has no file locks; open the store with read_only=True") from error
        try:
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            if error.errno in TOO_MANY_FILES:
                raise too_many_files(path) from error
            raise ReadOnlyError(f"{path} cannot be written ({error.strerror}); open it with read_only=True") from error
        try:
            # flock, not lockf: it belongs to this open file, so that a second writer in this process is seen too.
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 20, 0).decode("ascii", "replace").strip() or "unknown"
            os.close(self._handle)
            raise LockedError(
                f"{path.parent} is being written by process {holder}; there is one writer at a time: "
                "wait for it, or open the store with read_only=True"
            ) from error
        # For people and for the message above; on a full disk the lock holds without it.
        with contextlib.suppress(OSError):
            os.pwrite(self._handle, f"{os.getpid():<20}".encode(), 0)

    def release(self) -> None:
        """Let another writer come, even while a forked process still has the file open."""
        import fcntl

        fcntl.flock(self._handle, fcntl.LOCK_UN)
        os.close(self._handle)

    def leave(self) -> None:
        """Close the file in a forked process, to which the lock does not belong."""
        os.close(self._handle)
