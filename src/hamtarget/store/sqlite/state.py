"""The one row that says how far a store has come, with a checksum of its own."""

from __future__ import annotations

import sqlite3
import zlib
from typing import NamedTuple

from hamtarget.errors import CorruptFileError


class State(NamedTuple):
    """The state of a store."""

    sequence: int
    """Number of the last change."""
    next_row: int
    """Row number of the next item whose id is not its own."""
    forgotten: int
    """Traces of deleted items up to this change have been removed."""
    snapshot: str | None = None
    """Name of the file with the saved index."""
    snapshot_sequence: int | None = None
    """The last change that the saved index knows of."""

    @property
    def checksum(self) -> int:
        """CRC-32 of all of it."""
        return zlib.crc32(repr(tuple(self)).encode())


def read_state(connection: sqlite3.Connection) -> State:
    """Return the state that the connection sees.

    Raises:
        CorruptFileError: it is damaged.
    """
    found = connection.execute(
        "SELECT sequence, next_row, forgotten, snapshot, snapshot_sequence, checksum FROM state"
    ).fetchone()
    if found is None or State(*found[:5]).checksum != found[5]:
        raise CorruptFileError("the store's state is damaged: its checksum is wrong; restore the folder from a copy")
    return State(*found[:5])


def write_state(connection: sqlite3.Connection, state: State) -> None:
    """Write the state."""
    connection.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?, ?)", (*state, state.checksum))
