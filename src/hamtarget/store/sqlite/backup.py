"""Copies of a store that is in use: of one moment, checked after writing, and put in place as a whole."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from hamtarget.errors import CorruptFileError, FileError
from hamtarget.progress import Progress
from hamtarget.store.reports import BackupReport, StoreReport
from hamtarget.store.settings import Settings
from hamtarget.store.sqlite.counter import COUNTER_NAME, ChangeCounter
from hamtarget.store.sqlite.folders import ENCODER_NAME, finish_interrupted, folder_in_progress, put_in_place
from hamtarget.store.sqlite.index.snapshot import read_snapshot
from hamtarget.store.sqlite.lock import WriterLock
from hamtarget.store.sqlite.losses import lost_changes
from hamtarget.store.sqlite.tables.database import DATABASE_NAME, read_settings, transaction, translated
from hamtarget.store.sqlite.tables.state import State, read_state, write_state

MARK_NAME = "backup.json"
_PAGES_AT_ONCE = 1024
_BYTES_AT_ONCE = 2**22

Verify = Callable[[Path, Progress | None], StoreReport]
"""Opens the store in a folder for reading only, and checks all of it."""


def back_up(
    connection: sqlite3.Connection,
    source: Path,
    target: Path,
    verify: Verify,
    *,
    noted: int,
    progress: Progress | None,
) -> BackupReport:
    """Copy a store to a folder that holds nothing, or an earlier backup, which stays until the new one is in place.

    Args:
        connection: to the store's database, in a transaction: all of its pages are of that moment, and whoever writes
            goes on.
        source: the store's folder.
        target: that of the backup.
        verify: checks the copy.
        noted: number of the last change that a writer had noted before the transaction began.
        progress: called with bytes done and all bytes; each counts when it is written and when it is checked.

    Raises:
        FileError: the target is something else than a backup, or a backup of a later change.
        LostChangesError: changes of the store are missing; an earlier backup may hold them.
        CorruptFileError: the store is damaged.
        WriteError: the disk is full.
    """
    state = read_state(connection)
    if noted > state.sequence:
        raise lost_changes(source, noted - state.sequence)
    finish_interrupted(target)
    before = _read_mark(target)
    if before is not None and before["sequence"] > state.sequence:
        raise FileError(
            f"{target} is a backup of change {before['sequence']:,}, and {source} is at change {state.sequence:,}: "
            "it is another store, or was brought back from an older one; choose another folder"
        )

    def mark(report: StoreReport) -> dict[str, Any]:
        made = datetime.now(UTC).isoformat(timespec="seconds")
        return {"sequence": state.sequence, "items": report.items, "made": made, "of": str(source.absolute())}

    return _copy(connection, source, target, state, verify, mark=mark, progress=progress)


def restore(
    connection: sqlite3.Connection,
    backup: Path,
    target: Path,
    verify: Verify,
    *,
    replace_target: bool,
    progress: Progress | None,
) -> BackupReport:
    """Copy a backup to the folder of a store; what is there stays until the copy is in place.

    Args:
        connection: to the backup's database, in a transaction.
        backup: its folder.
        target: that of the store.
        verify: checks the copy.
        replace_target: True if a store that is there is to be replaced.
        progress: as of `back_up`.

    Raises:
        FileError: there is something at the target, and it is not to be replaced.
        LockedError: somebody writes to what is there.
        CorruptFileError: the backup is damaged.
        WriteError: the disk is full.
    """
    finish_interrupted(target)
    occupied = target.exists() and (not target.is_dir() or any(target.iterdir()))
    if occupied and not replace_target:
        raise FileError(f"{target} is there and is not an empty folder; choose another, or replace it (--replace)")
    if occupied and not (target / DATABASE_NAME).exists():
        raise FileError(f"{target} is no store: it has no {DATABASE_NAME}; it is not replaced")
    lock = WriterLock(target / "lock") if occupied else None
    try:
        return _copy(connection, backup, target, read_state(connection), verify, mark=None, progress=progress)
    finally:
        if lock is not None:
            lock.release()


def _read_mark(target: Path) -> dict[str, Any] | None:
    """Return what the mark of an earlier backup says; None where there is nothing at the target.

    Raises:
        FileError: there is something else than a backup.
    """
    if not target.exists() or (target.is_dir() and not any(target.iterdir())):
        return None
    try:
        found = json.loads((target / MARK_NAME).read_text("utf-8"))
        if type(found["sequence"]) is int:
            return dict(found)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    raise FileError(f"{target} is there and is no backup: it has no {MARK_NAME}; choose another folder")


def _copy(
    connection: sqlite3.Connection,
    source: Path,
    target: Path,
    state: State,
    verify: Verify,
    *,
    mark: Callable[[StoreReport], dict[str, Any]] | None,
    progress: Progress | None,
) -> BackupReport:
    with translated(target), folder_in_progress(target) as folder:
        files = [*_files_of(source / ENCODER_NAME)]
        pages, page_size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
        copied = pages * page_size + sum(file.stat().st_size for file in files)
        told = _Told(progress, 2 * copied)
        # First, because a writer may replace it at any moment.
        index = _copy_index(source, target, folder, state, read_settings(connection))
        _copy_database(connection, folder / DATABASE_NAME, told, pages, page_size)
        if index == "none":
            _forget_index(folder / DATABASE_NAME)
        for file in files:
            _copy_file(file, folder / file.relative_to(source), told)
        counter = ChangeCounter(folder / COUNTER_NAME, read_only=False)
        counter.write(state.sequence)
        counter.close()
        report = _checked(folder, source, verify, told, copied)
        if mark is not None:
            (folder / MARK_NAME).write_text(json.dumps(mark(report), indent=1) + "\n", "utf-8")
        n_bytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        put_in_place(folder, target)
        return BackupReport(target, report.items, state.sequence, n_bytes, is_index_reused=index == "reused")


class _Told:
    """Bytes that were told to whoever wants to know."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress = progress
        self._done = 0
        self.total = total

    def add(self, n_bytes: int) -> None:
        """Add bytes that were done, and tell."""
        self._done = min(self.total, self._done + n_bytes)
        if self._progress:
            self._progress(self._done, self.total)


def _copy_database(connection: sqlite3.Connection, target: Path, told: _Told, pages: int, page_size: int) -> None:
    left = pages

    def tell(_status: int, remaining: int, _total: int) -> None:
        nonlocal left
        told.add((left - remaining) * page_size)
        left = remaining

    with closing(sqlite3.connect(target, isolation_level=None)) as copy:
        # The copy is thrown away if anything happens: it need not be safe before its end.
        copy.execute("PRAGMA synchronous = OFF")
        # The transaction that is open holds the moment: writers do not make it begin again.
        connection.backup(copy, pages=_PAGES_AT_ONCE, progress=tell, sleep=0)
        copy.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _copy_index(
    source: Path, earlier: Path, target: Path, state: State, settings: Settings
) -> Literal["reused", "copied", "none"]:
    """Copy the saved index, or take over that of the backup before if it is the same one.

    Its name holds the checksum of its content. One that is missing or damaged is left out: it can be built again.
    """
    name = state.snapshot
    if name is None or Path(name).name != name:
        return "none"
    for way in ("reused", "copied"):
        with suppress(OSError):
            if way == "reused":
                os.link(earlier / name, target / name)
            else:
                _copy_file(source / name, target / name, None)
            if read_snapshot(target / name, settings) is not None:
                return way
        (target / name).unlink(missing_ok=True)
    return "none"


def _forget_index(database: Path) -> None:
    with closing(sqlite3.connect(database, isolation_level=None)) as connection, transaction(connection):
        write_state(connection, read_state(connection)._replace(snapshot=None, snapshot_sequence=None))


def _files_of(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _copy_file(source: Path, target: Path, told: _Told | None) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as content, open(target, "wb") as file:
        while block := content.read(_BYTES_AT_ONCE):
            file.write(block)
            if told:
                told.add(len(block))


def _checked(folder: Path, source: Path, verify: Verify, told: _Told, n_bytes: int) -> StoreReport:
    """Return the report on a copy, which is whole.

    Raises:
        CorruptFileError: it is not.
    """
    _forget_pages(folder)
    done = 0

    def tell(rows: int, all_rows: int) -> None:
        nonlocal done
        now = n_bytes * rows // max(1, all_rows)
        told.add(now - done)
        done = now

    try:
        report = verify(folder, tell)
    except CorruptFileError as error:
        report = StoreReport(0, (str(error),), 1)
    told.add(n_bytes - done)
    for leftover in (f"{DATABASE_NAME}-wal", f"{DATABASE_NAME}-shm"):
        (folder / leftover).unlink(missing_ok=True)
    if not report.ok:
        raise CorruptFileError(
            f"{source} is damaged ({report.n_problems:,} problems, first: {report.problems[0]}); nothing was put in "
            f"place: save what is whole with `hamtarget repair {source} DEST`"
        )
    return report


def _forget_pages(folder: Path) -> None:
    """Force files to disk, and out of the system's memory, so that the check reads the disk."""
    for file in _files_of(folder):
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
            with suppress(AttributeError, OSError):
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
