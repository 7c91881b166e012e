"""The number of the last change, where readers of other processes see it without asking SQLite."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

COUNTER_NAME = "changes"
_NUMBER = struct.Struct("=q")
# The number comes first and alone in 8 bytes, which a reader's map sees change at once.
_CHECKED = struct.Struct("=qQ")
# A writer may be between the number and its checksum.
_TRIES = 3


class ChangeCounter:
    """A file with the number of the last change, which the writer writes after each commit and readers map.

    To readers it is a hint: a reader that finds another number than its own looks into the database, and every now and
    then it looks without. A commit is answered after the file is written, so that whoever hears of a change finds it.
    After a crash it is a witness: a number above that of the database tells of changes that were lost.

    Attributes:
        numbers: the number, alone, as the file is now; -1 where there is none.
    """

    def __init__(self, path: Path, *, read_only: bool) -> None:
        self.numbers: Sequence[int] = (-1,)
        self._handle: int | None = None
        if not read_only:
            # On a full disk, a store can be opened without.
            with contextlib.suppress(OSError):
                self._handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            return
        # A store on a disk that cannot be written may come without it.
        with contextlib.suppress(OSError, ValueError), open(path, "rb") as file:
            self.numbers = memoryview(mmap.mmap(file.fileno(), _NUMBER.size, access=mmap.ACCESS_READ)).cast("q")

    def write(self, sequence: int) -> None:
        """Write the number, so that readers see it."""
        if self._handle is not None:
            # On a full disk, readers learn of the change a moment later.
            with contextlib.suppress(OSError):
                os.pwrite(self._handle, _CHECKED.pack(sequence, _checksum(sequence)), 0)

    def close(self) -> None:
        """Close the file. A map goes with its last reference: another thread may be reading it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def read_counter(path: Path) -> int | None:
    """Return the number in the file; None where there is none, or one that does not have its checksum."""
    for _ in range(_TRIES):
        try:
            with open(path, "rb") as file:
                content = file.read(_CHECKED.size)
        except OSError:
            return None
        if len(content) == _CHECKED.size:
            number, checksum = _CHECKED.unpack(content)
            if checksum == _checksum(number):
                return int(number)
    return None


def _checksum(number: int) -> int:
    return zlib.crc32(_NUMBER.pack(number))
