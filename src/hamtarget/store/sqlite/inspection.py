"""A look into a store in a folder: its sizes, and checks of database, checksums, rows and index."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np

from hamtarget.errors import HamtargetError
from hamtarget.progress import Progress
from hamtarget.search.multi import MultiIndex
from hamtarget.store.items.code_rows import INCOMPLETE_SQL, ITEM_ROW_SQL, are_further, n_codes_of
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.reports import StoreReport, StoreStats
from hamtarget.store.settings import Settings
from hamtarget.store.sqlite.index.snapshot import read_snapshot, rows_of
from hamtarget.store.sqlite.losses import describe_loss
from hamtarget.store.sqlite.tables.rows import is_name_whole, is_trace_whole, scan_unchecked
from hamtarget.store.sqlite.tables.state import read_state

_MOST_TOLD = 100


class _Problems:
    def __init__(self) -> None:
        self.first: list[str] = []
        self.count = 0

    def tell(self, problem: str) -> None:
        self.count += 1
        if self.count <= _MOST_TOLD:
            self.first.append(problem)


def store_stats(
    connection: sqlite3.Connection, index: MultiIndex, n_items: int, folder: Path, settings: Settings
) -> StoreStats:
    """Return how much there is of everything."""
    state = read_state(connection)
    return StoreStats(
        items=n_items,
        codes=len(index),
        sequence=state.sequence,
        n_bits=settings.n_bits,
        radius=settings.radius,
        snapshot_sequence=state.snapshot_sequence,
        index_bytes=index.memory,
        disk_bytes=sum(map(_size, folder.rglob("*"))),
    )


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 for a folder, or for a file that has just been replaced."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


def verify_store(
    connection: sqlite3.Connection,
    index: MultiIndex,
    folder: Path,
    settings: Settings,
    *,
    noted: int,
    progress: Progress | None,
) -> StoreReport:
    """Check the database that the connection sees, and the index, which is at the same change; report what is wrong.

    Args:
        connection: in a transaction.
        index: holds the same rows.
        folder: that of the store.
        settings: those of the store.
        noted: number of the last change that a writer noted beside the database.
        progress: called with rows compared and all rows.
    """
    problems = _Problems()
    n_items = n_lost = 0
    try:
        n_lost = max(0, noted - read_state(connection).sequence)
        if n_lost:
            problems.tell(describe_loss(folder, n_lost))
        for (line,) in connection.execute(f"PRAGMA integrity_check({_MOST_TOLD})"):
            if line != "ok":
                problems.tell(f"SQLite: {line}")
        n_items = _compare(connection, index, problems, progress)
        _check_names(connection, problems)
        _check_codes(connection, problems)
        _check_traces(connection, problems)
        _check_snapshot(read_state(connection).snapshot, folder, settings, problems)
    except (sqlite3.Error, HamtargetError) as error:
        problems.tell(f"the database cannot be read to its end: {error}")
    return StoreReport(n_items, tuple(problems.first), problems.count, n_lost_changes=n_lost)


def _compare(connection: sqlite3.Connection, index: MultiIndex, problems: _Problems, progress: Progress | None) -> int:
    """Compare each row with the index, and return the number of items."""
    seen = n_further = 0
    for records, damaged in scan_unchecked(connection):
        for row in damaged:
            problems.tell(f"row {row} of items does not have its checksum")
        seen += len(records) + len(damaged)
        n_further += int(are_further(np.array([*(record[0] for record in records), *damaged], dtype=np.int64)).sum())
        present = [record for record in records if record[0] in index]
        for row in {record[0] for record in records} - {record[0] for record in present}:
            problems.tell(f"row {row} is not in the index")
        if present:
            put = rows_of(present, index)
            found = index.get(put.rows)
            codes, embeddings = found if isinstance(found, tuple) else (found, None)
            wrong = (codes != put.codes).any(axis=1)
            if embeddings is not None and put.embeddings is not None:
                wrong |= (embeddings.view(np.uint8) != put.embeddings.view(np.uint8)).any(axis=1)
            for row in put.rows[wrong].tolist():
                problems.tell(f"row {row} has another code or embedding in the index")
        if progress:
            progress(seen, max(seen, len(index)))
    if len(index) != seen:
        problems.tell(f"the index has {len(index):,} rows, the database {seen:,}")
    return seen - n_further


def _check_snapshot(name: str | None, folder: Path, settings: Settings, problems: _Problems) -> None:
    if name is None or read_snapshot(folder / name, settings) is not None:
        return
    # A writer that has just saved the index again has removed the file before.
    others = [file for file in folder.glob("index-*.ham") if file.name != name]
    if (folder / name).exists() or not others:
        problems.tell(f"the saved index {name} is damaged or missing; the next opening makes a new one")


def _check_traces(connection: sqlite3.Connection, problems: _Problems) -> None:
    for row, changed, checksum in connection.execute("SELECT row, changed, checksum FROM deleted"):
        if not is_trace_whole(row, changed, checksum):
            problems.tell(f"row {row} of deleted does not have its checksum")


def _check_names(connection: sqlite3.Connection, problems: _Problems) -> None:
    for row, id, checksum in connection.execute("SELECT row, id, checksum FROM names"):
        if not is_name_whole(row, id, checksum):
            problems.tell(f"row {row} of names does not have its checksum")
    nameless = f"SELECT row FROM items WHERE row >= ? AND {ITEM_ROW_SQL.format('row')} NOT IN (SELECT row FROM names)"
    for (row,) in connection.execute(nameless, (FIRST_NAMED_ROW,)):
        problems.tell(f"row {row} has no id")
    for (row,) in connection.execute("SELECT row FROM names WHERE row NOT IN (SELECT row FROM items)"):
        problems.tell(f"row {row} has an id and nothing else")


def _check_codes(connection: sqlite3.Connection, problems: _Problems) -> None:
    """Check that each item with several codes has all of them."""
    for row, n_codes in connection.execute(INCOMPLETE_SQL):
        problems.tell(f"the item of row {row} has {n_codes_of(row)} codes, of which {n_codes} are there")
