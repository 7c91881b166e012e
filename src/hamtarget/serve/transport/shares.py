"""How many connections each process of a service has, in memory that all of them share."""

from __future__ import annotations

import mmap
from pathlib import Path

_BYTES = 8
# Fewer are no reason to leave a connection to another process.
_MUCH_MORE = 2


def create_shares(path: Path, n_processes: int) -> None:
    """Create the file that the processes share."""
    path.write_bytes(bytes(_BYTES * n_processes))


class Shares:
    """The numbers of connections of all processes.

    Whoever is quickest accepts a connection, and keeps it for long: without more, one process may get three times as
    many as another.

    Args:
        path: the file that the processes share.
        number: place of this process.
    """

    def __init__(self, path: Path, number: int) -> None:
        with open(path, "r+b") as file:
            self._counts = memoryview(mmap.mmap(file.fileno(), 0)).cast("q")
        self._number = number
        self.tell(0)

    def tell(self, n_connections: int) -> None:
        """Tell the other processes how many connections this one has."""
        self._counts[self._number] = n_connections

    @property
    def is_ahead(self) -> bool:
        """True if this process has more connections than another one."""
        return self._counts[self._number] >= min(self._counts) + _MUCH_MORE
