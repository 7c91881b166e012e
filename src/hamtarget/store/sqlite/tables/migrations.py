"""Steps that bring the database of an earlier version to this one: all of them in one transaction, or none."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from hamtarget.errors import UnsupportedFileError
from hamtarget.progress import Progress

SCHEMA_VERSION = 1
# A store that keeps vectors has this version, and one table more: an earlier hamtarget would put logits in their place.
# Stores without vectors are not brought to it, so that an earlier one still reads them.
VECTORS_VERSION = 2
# The first item with several codes brings a store to this version, or to the one after it if the store keeps vectors:
# an earlier hamtarget would take each code for an item. The tables stay as they are.
SEVERAL_VERSION = 3
_LATEST = SEVERAL_VERSION + VECTORS_VERSION - 1

Step = Callable[[sqlite3.Connection, Progress | None], None]
"""Changes tables and rows by `execute`, never by `executescript`, which would commit what came before."""

# STEPS[n] brings a database from version n to n + 1. A step is never changed after a release: golden stores of every
# version are opened by the tests (tests/golden/stores).
STEPS: dict[int, Step] = {}


def is_current(version: int) -> bool:
    """Return True if a database of this version can be used as it is."""
    return SCHEMA_VERSION <= version <= max(SCHEMA_VERSION, _LATEST)


def has_table_of_vectors(version: int) -> bool:
    """Return True if a database of this version keeps vectors, and has one table more."""
    return version in (VECTORS_VERSION, _LATEST)


def mark_several(connection: sqlite3.Connection) -> None:
    """Bring a store to the version of those that hold items with several codes, within a transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version < SEVERAL_VERSION:
        connection.execute(f"PRAGMA user_version = {version + SEVERAL_VERSION - 1}")


def may_have_several(connection: sqlite3.Connection) -> bool:
    """Return True if an item of the store has several codes, or had."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return bool(version >= SEVERAL_VERSION)


def check_version(path: Path, version: int, *, can_migrate: bool) -> None:
    """Check that a database has this version, or one that can be brought to it.

    Raises:
        UnsupportedFileError: a later version wrote it, or an earlier one and it is opened for reading only.
    """
    if is_current(version):
        return
    if version > SCHEMA_VERSION:
        latest = max(SCHEMA_VERSION, _LATEST)
        raise UnsupportedFileError(
            f"{path} has version {version}; this hamtarget reads up to {latest}: install a later one"
        )
    if any(number not in STEPS for number in range(version, SCHEMA_VERSION)):
        raise UnsupportedFileError(f"{path} has version {version}, which no release wrote; restore it from a copy")
    if not can_migrate:
        raise UnsupportedFileError(
            f"{path} has version {version}, and this hamtarget reads {SCHEMA_VERSION}: back it up, and open the store "
            "once for writing, which brings it there"
        )


def migrate(connection: sqlite3.Connection, progress: Progress | None) -> None:
    """Bring a database to this version, in one transaction: if it is interrupted, the version stays what it was.

    Args:
        connection: can write, and is in no transaction.
        progress: called by steps with rows done and all rows.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if is_current(version):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for number in range(version, SCHEMA_VERSION):
            STEPS[number](connection, progress)
            if not connection.in_transaction:
                raise RuntimeError(f"the step from version {number} has ended the transaction that it is part of")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
