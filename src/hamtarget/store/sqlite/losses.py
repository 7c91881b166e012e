"""Changes that were acknowledged and are gone: how a store notices them, and keeps what is left of them."""

from __future__ import annotations

import os
import shutil
import sqlite3
import warnings
from pathlib import Path

from hamtarget._files import sync_folder
from hamtarget.errors import LostChangesError, LostChangesWarning
from hamtarget.store.settings import Durability
from hamtarget.store.sqlite.counter import COUNTER_NAME, read_counter
from hamtarget.store.sqlite.tables.state import read_state

LOG_ENDING = "-wal"
_KEPT_LOG = "lost-changes-{}-{}.wal"


def noted_changes(folder: Path) -> int:
    """Return the number of the last change that a writer noted beside the database; 0 where that is not known.

    It has to be read before the database: a writer notes a change after it has committed it.
    """
    return read_counter(folder / COUNTER_NAME) or 0


def warn_of_loss(folder: Path, n_lost: int) -> None:
    """Warn that the last changes are missing; the store can be read as it was before them."""
    warnings.warn(f"{describe_loss(folder, n_lost)}; {_ADVICE.format(folder=folder)}", LostChangesWarning, stacklevel=4)


def check_for_loss(
    connection: sqlite3.Connection, file: Path, noted: int, durability: Durability, *, accept_loss: bool
) -> bool:
    """Check that a database holds every change that was noted, before a connection that can write is opened.

    That connection would end the log where SQLite cannot read on, and throw the rest away. So the log is kept aside
    before, if the loss is accepted or if the store's durability allows it.

    Args:
        connection: can only read.
        file: the database.
        noted: what `noted_changes` returned.
        durability: with "os", a failure of power may take the last changes: that is no error.
        accept_loss: True if the caller wants to go on without them.

    Returns:
        True if changes are missing, and the log was kept.

    Raises:
        LostChangesError: changes are missing.
    """
    sequence = read_state(connection).sequence
    n_lost = noted - sequence
    if n_lost <= 0:
        return False
    folder = file.parent
    if durability == "full" and not accept_loss:
        raise lost_changes(folder, n_lost)
    kept = _keep_log(file, sequence, noted)
    aside = f"; what is left of its log is kept in {kept.name}" if kept else ""
    warnings.warn(f"{describe_loss(folder, n_lost)}{aside}", LostChangesWarning, stacklevel=4)
    return True


def lost_changes(folder: Path, n_lost: int) -> LostChangesError:
    """Return the error that says how many changes are missing, and what to do."""
    return LostChangesError(f"{describe_loss(folder, n_lost)}; {_ADVICE.format(folder=folder)}", n_changes=n_lost)


def describe_loss(folder: Path, n_lost: int) -> str:
    """Return in words how many changes are missing."""
    changes = "the last change is" if n_lost == 1 else f"the last {n_lost:,} changes are"
    return f"{folder}: {changes} missing: its log is damaged, or an older store.db was brought back"


_ADVICE = (
    "copy the folder first, then restore a backup, or go on without them: `hamtarget repair {folder} DEST` or "
    "Store.open(..., accept_loss=True)"
)


def _keep_log(file: Path, sequence: int, noted: int) -> Path | None:
    """Copy the log to a file that SQLite does not know, on disk; return None where there is no log."""
    log = file.with_name(f"{file.name}{LOG_ENDING}")
    if not log.exists() or not log.stat().st_size:
        return None
    kept = file.with_name(_KEPT_LOG.format(sequence + 1, noted))
    if kept.exists() and kept.stat().st_size == log.stat().st_size and kept.read_bytes() == log.read_bytes():
        return kept
    number = 1
    while kept.exists():
        number += 1
        kept = kept.with_stem(f"{kept.stem.partition(' ')[0]} {number}")
    temporary = kept.with_suffix(".tmp")
    with open(log, "rb") as source, open(temporary, "wb") as target:
        shutil.copyfileobj(source, target)
        target.flush()
        os.fsync(target.fileno())
    os.rename(temporary, kept)
    sync_folder(kept.parent)
    return kept
