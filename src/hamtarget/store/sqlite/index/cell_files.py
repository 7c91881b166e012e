"""The cells of a folder's vectors as a file beside the index: a cache that is checked, and left if it does not fit."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import FileError
from hamtarget.search.neighbor_index import NeighborIndex
from hamtarget.store.sqlite.tables.rows import changed_rows, read_deleted
from hamtarget.store.sqlite.tables.state import read_state

_NAME = "cells-{}.npz"


def cells_file(folder: Path, snapshot: str) -> Path:
    """Return the file of the cells that were made of the rows in a saved index.

    The name of an index holds the checksum of its content, and the database names the index. Cells that bear the same
    checksum are those of these rows.
    """
    return folder / _NAME.format(snapshot.removeprefix("index-").removesuffix(".ham"))


def current_cells_file(connection: sqlite3.Connection, folder: Path) -> Path | None:
    """Return the file of cells for the saved index that the connection sees; None where there is none."""
    snapshot = read_state(connection).snapshot
    # A forged database does not lead out of the folder.
    if snapshot is None or Path(snapshot).name != snapshot:
        return None
    file = cells_file(folder, snapshot)
    return file if file.is_file() else None


def read_cells(connection: sqlite3.Connection, file: Path) -> tuple[NeighborIndex, NDArray[np.int64]] | None:
    """Return cells, and the rows that have changed since they were saved; None if they are damaged.

    Args:
        connection: in a transaction that sees the saved index of these cells.
        file: of the cells.
    """
    state = read_state(connection)
    if state.snapshot_sequence is None or state.forgotten > state.snapshot_sequence:
        return None
    try:
        made = NeighborIndex.open(file)
    except (FileError, OSError):
        return None
    changed = [*changed_rows(connection, after=state.snapshot_sequence)]
    changed += read_deleted(connection, after=state.snapshot_sequence)
    return made, np.array(changed, dtype=np.int64)


def save_cells(cells: NeighborIndex | None, folder: Path, snapshot: str) -> None:
    """Save the cells of the rows in an index that has been saved; where the disk is full, they are not saved."""
    if cells is not None:
        with contextlib.suppress(OSError):
            cells.save(cells_file(folder, snapshot))


def remove_other_cells(folder: Path, snapshot: str) -> None:
    """Remove the cells of other indexes than this one."""
    for other in folder.glob("*cells-*.npz*"):
        if other != cells_file(folder, snapshot):
            with contextlib.suppress(OSError):
                other.unlink()
