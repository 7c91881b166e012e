"""The index as a file beside the database: a cache that is checked, and made of the rows where it cannot be used."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._files import sync_folder
from hamtarget.errors import CorruptFileError, FileError
from hamtarget.progress import Progress
from hamtarget.search.multi import MultiIndex
from hamtarget.store.items.ids import Record
from hamtarget.store.live import Change, DeleteRows, LiveIndex, PutRows
from hamtarget.store.settings import Settings
from hamtarget.store.sqlite.index.kept_cells import remove_other_cells, save_cells
from hamtarget.store.sqlite.tables.database import transaction
from hamtarget.store.sqlite.tables.rows import changed_records, has_had_several, read_deleted, scan_records
from hamtarget.store.sqlite.tables.state import read_state, write_state

# Where the header of an index file keeps the checksum of all that it says, the checksums of its sections included:
# it tells one content from any other (docs/format.md).
_CHECKSUM = slice(56, 64)
# Replaying a change takes up to this many times as long as reading a row in order.
_REPLAY_COST = 2
_ALWAYS_REPLAYED = 1000
_TRIES = 5


def open_index(
    connection: sqlite3.Connection, folder: Path, settings: Settings, *, progress: Progress | None = None
) -> LiveIndex:
    """Return the index of all rows in the database: the saved one and what changed since, or a new one."""
    for _ in range(_TRIES):
        with transaction(connection, kind="DEFERRED"):
            live, is_missing = _from_file(connection, folder, settings)
            if live is not None:
                return live
            if not is_missing:
                break
    with transaction(connection, kind="DEFERRED"):
        return _from_rows(connection, settings, progress)


def catch_up(live: LiveIndex, connection: sqlite3.Connection, folder: Path, settings: Settings) -> None:
    """Bring the index to the change that the connection's transaction sees, by the shortest way."""
    state = read_state(connection)
    can_follow = state.forgotten <= live.sequence and not live.is_torn
    if can_follow and _replays_quickly(connection, live.sequence, len(live.index)):
        replay(live, connection, state.sequence)
        return
    fresh, _ = _from_file(connection, folder, settings)
    live.replace(_from_rows(connection, settings, None) if fresh is None else fresh)


def save_index(connection: sqlite3.Connection, folder: Path, live: LiveIndex) -> None:
    """Save the index in a file of its own, and note that in the database.

    The file's name holds the checksum of its content, and the database holds the name: whichever of the two is older,
    after a crash or in a copy, they do not fit each other by accident.

    Raises:
        OSError: the file cannot be written; the one before stays in use, and nothing is left of the new one.
    """
    fresh = folder / "index.ham.new"
    with live.lock:
        sequence = live.sequence
        # One piece is searched several times as fast as the pieces that many puts leave.
        live.index.compact()
        try:
            live.index.save(fresh)
            name = f"index-{_checksum(fresh)}.ham"
            os.replace(fresh, folder / name)
            # The database shall not name a file whose name a loss of power could still take away.
            sync_folder(folder)
        except BaseException:
            # What does not fit the disk leaves room to others.
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        save_cells(live.cells.index, folder, name)
        with transaction(connection):
            state = read_state(connection)
            write_state(connection, state._replace(snapshot=name, snapshot_sequence=sequence, forgotten=sequence))
            connection.execute("DELETE FROM deleted WHERE changed <= ?", (sequence,))
        live.is_saved = True
    # The one before, and what was left of a save that was killed.
    for other in folder.glob("*index*.ham*"):
        if other.name != name:
            with contextlib.suppress(OSError):
                other.unlink()
    remove_other_cells(folder, name)


def read_snapshot(path: Path, settings: Settings | None) -> MultiIndex | None:
    """Return the index in a file, if it is whole and fits the settings, where these are known."""
    try:
        index = MultiIndex.open(path)
        if path.name != f"index-{_checksum(path)}.ham":
            return None
    except (FileError, OSError):
        return None
    kind = (index.n_bits, index.radius, index.embeddings)
    return index if settings is None or kind == (settings.n_bits, settings.radius, settings.embeddings) else None


def _from_file(connection: sqlite3.Connection, folder: Path, settings: Settings) -> tuple[LiveIndex | None, bool]:
    """Return the saved index and what changed since, if it can be used; and True if its file is missing.

    A file that the database names is missing if a writer has just put another in its place: the database then names
    that one.
    """
    state = read_state(connection)
    if state.snapshot is None or state.snapshot_sequence is None:
        return None, False
    if Path(state.snapshot).name != state.snapshot:
        # A forged database does not lead out of the folder.
        return None, False
    path = folder / state.snapshot
    index = read_snapshot(path, settings)
    if index is None:
        return None, not path.exists()
    if not _replays_quickly(connection, state.snapshot_sequence, len(index)):
        return None, False
    live = LiveIndex(
        index,
        state.snapshot_sequence,
        has_names=_has_names(connection),
        has_several=has_had_several(connection),
        is_saved=True,
    )
    if state.sequence > state.snapshot_sequence:
        replay(live, connection, state.sequence)
    # A changed row whose number of change is damaged would have been overlooked.
    (n_rows,) = connection.execute("SELECT count(*) FROM items").fetchone()
    return (live if len(index) == n_rows else None), False


def _from_rows(connection: sqlite3.Connection, settings: Settings, progress: Progress | None) -> LiveIndex:
    index = build_index(connection, settings, progress=progress)
    sequence = read_state(connection).sequence
    return LiveIndex(index, sequence, has_names=_has_names(connection), has_several=has_had_several(connection))


def _has_names(connection: sqlite3.Connection) -> bool:
    return connection.execute("SELECT 1 FROM names LIMIT 1").fetchone() is not None


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return file.read(64)[_CHECKSUM].hex()


def _replays_quickly(connection: sqlite3.Connection, sequence: int, n_rows: int) -> bool:
    most = max(_ALWAYS_REPLAYED, n_rows // _REPLAY_COST)
    counted = connection.execute(
        "SELECT count(*) FROM (SELECT 1 FROM items WHERE changed > ? LIMIT ?)", (sequence, most + 1)
    ).fetchone()[0]
    return bool(counted <= most)


def replay(live: LiveIndex, connection: sqlite3.Connection, sequence: int) -> None:
    """Bring the index to change `sequence`, which is the last one that the connection's transaction sees."""
    with live.lock:
        gone = [row for row in read_deleted(connection, after=live.sequence) if row in live.index]
        changes: list[Change] = [DeleteRows(np.array(gone, dtype=np.int64))] if gone else []
        changes += (rows_of(block, live.index) for block in changed_records(connection, after=live.sequence))
        live.apply(changes, sequence)


def build_index(connection: sqlite3.Connection, settings: Settings, *, progress: Progress | None) -> MultiIndex:
    """Return an index of all rows that the connection's transaction sees."""
    index = MultiIndex(
        settings.n_bits, settings.radius, substrings=settings.index_substrings, embeddings=settings.embeddings
    )
    n_rows = connection.execute("SELECT count(*) FROM items").fetchone()[0] if progress else 0
    parts: list[PutRows] = []
    done = 0
    for block in scan_records(connection):
        parts.append(rows_of(block, index))
        done += len(block)
        if progress:
            progress(done, n_rows)
    if parts:
        index.add(
            np.concatenate([part.rows for part in parts]),
            np.concatenate([part.codes for part in parts]),
            _concatenated(part.embeddings for part in parts),
        )
    return index


def rows_of(records: Sequence[Record], index: MultiIndex) -> PutRows:
    """Return rows of the database as arrays.

    Raises:
        CorruptFileError: a code or an embedding does not have the index's length.
    """
    codes = _stacked([record[1] for record in records], np.dtype(np.uint8), index.n_bits // 8, name="a code")
    embeddings = None
    if index.embeddings is not None:
        dtype, columns = np.dtype(index.embeddings.dtype), index.embeddings.n_dims
        embeddings = _stacked([record[2] or b"" for record in records], dtype, columns, name="an embedding")
    return PutRows(np.array([record[0] for record in records], dtype=np.int64), codes, embeddings)


def _stacked(rows: Sequence[bytes], dtype: np.dtype[Any], columns: int, *, name: str) -> NDArray[Any]:
    whole = b"".join(rows)
    if len(whole) != len(rows) * columns * dtype.itemsize:
        raise CorruptFileError(f"{name} of the store has another length than the store's settings say")
    return np.frombuffer(whole, dtype=dtype).reshape(len(rows), columns)


def _concatenated(arrays: Iterable[NDArray[Any] | None]) -> NDArray[Any] | None:
    there = [array for array in arrays if array is not None]
    return np.concatenate(there) if there else None
