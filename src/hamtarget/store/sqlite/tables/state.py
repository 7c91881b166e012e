"""The one row that says how far a store has come, with a checksum of its own."""

from __future__ import annotations

import sqlite3
import zlib
from typing import NamedTuple

from hamtarget.errors import CorruptFileError
from hamtarget.store.items.ids import FIRST_NAMED_ROW

# Far more than there can be, and far from what SQLite cannot hold.
_MOST_CHANGES = 2**62
_PAST_ROWS = 2**63 - 2**40


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

    @property
    def is_possible(self) -> bool:
        """True if a store can be in it; a forged one has the right checksum and any value."""
        return (
            all(type(number) is int and 0 <= number < _MOST_CHANGES for number in (self.sequence, self.forgotten))
            and type(self.next_row) is int
            and FIRST_NAMED_ROW <= self.next_row < _PAST_ROWS
            and (self.snapshot is None or (type(self.snapshot) is str and "\0" not in self.snapshot))
            and (self.snapshot_sequence is None or type(self.snapshot_sequence) is int)
        )


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
    state = State(*found[:5])
    if not state.is_possible:
        raise CorruptFileError(f"the store's state is {state}, which no store has; restore the folder from a copy")
    return state


def write_state(connection: sqlite3.Connection, state: State) -> None:
    """Write the state."""
    connection.execute("INSERT OR REPLACE INTO state VALUES (1, ?, ?, ?, ?, ?, ?)", (*state, state.checksum))
