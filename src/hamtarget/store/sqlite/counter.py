"""The number of the last change, where readers of other processes see it without asking SQLite."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Sequence
from pathlib import Path

COUNTER_NAME = "changes"
_NUMBER = struct.Struct("=q")


class ChangeCounter:
    """A file of 8 bytes that the writer writes after each commit and readers map into their memory.

    It is a hint: a reader that finds another number than its own looks into the database, and every now and then it
    looks without. A commit is answered after the file is written, so that whoever hears of a change finds it.

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
                os.pwrite(self._handle, _NUMBER.pack(sequence), 0)

    def close(self) -> None:
        """Close the file. A map goes with its last reference: another thread may be reading it."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
