"""The cells of an open folder: made by `tune`, saved with the index in a checked file, loaded when they are needed."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import FileError
from hamtarget.query import Work
from hamtarget.search.neighbor_index import NeighborIndex
from hamtarget.store.live import LiveIndex
from hamtarget.store.sqlite.tables.rows import changed_rows, read_deleted
from hamtarget.store.sqlite.tables.state import read_state
from hamtarget.store.vectors.cells import present_vectors

# Another process may have made cells: they are looked for again after so many seconds.
_LOOK_SECONDS = 1.0
_TRIES = 3
_NAME = "cells-{}.npz"


class KeptCells:
    """Brings cells into the index of an open folder.

    Args:
        folder: of the store.
        live: its index, whose cells these are.
        reading: lends a connection in a transaction.
    """

    def __init__(
        self, folder: Path, live: LiveIndex, reading: Callable[[], AbstractContextManager[sqlite3.Connection]]
    ) -> None:
        self._folder = folder
        self._live = live
        self._reading = reading
        self._next_look = 0.0
        # A file that could not be used, and the change that the index was at: it is not read again until that changes.
        self._refused: tuple[object, ...] = ()
        # Held by whoever loads cells: others wait, and find them loaded.
        self._loading = threading.Lock()
        # Held by whoever makes or loads cells; nobody waits to load them. Taken before the lock of the index.
        self._making = threading.Lock()

    def now(self) -> NeighborIndex | None:
        """Return the cells; None if there are none, or none that can be used."""
        cells = self._live.cells
        if cells.index is None and monotonic() >= self._next_look:
            self.load()
            self._next_look = monotonic() + _LOOK_SECONDS
        return cells.index

    def load(self) -> None:
        """Read the cells from their file if they are not in memory, unless somebody is making others."""
        with self._loading:
            if self._live.cells.index is not None or not self._making.acquire(blocking=False):
                return
            try:
                self._load()
            finally:
                self._end()
                self._making.release()

    def _load(self) -> None:
        # From here on, changes are noted: what the transaction does not see is among them.
        self._begin()
        with self._reading() as connection:
            file = current_cells_file(connection, self._folder)
            if file is None:
                return
            state = (file.name, file.stat().st_mtime_ns, self._live.sequence)
            if state == self._refused:
                return
            found = read_cells(connection, file)
        with self._live.lock:
            if found is None or not self._live.cells.take(*found, self._live.index):
                self._refused = state

    def make(self, asked: NeighborIndex, work: Work) -> None:
        """Fit cells to all vectors of the store, and use them if they are faster than comparing all.

        Args:
            asked: an index that is not fitted yet.
            work: of `NeighborIndex.fit`.

        Raises:
            FileError: so much has changed meanwhile that they are of no use.
        """
        with self._making:
            try:
                for _ in range(_TRIES):
                    self._begin()
                    index = self._live.index
                    rows, vectors = present_vectors(index, index.ids())
                    asked.fit(vectors, rows, work=work)
                    del vectors
                    with self._live.lock:
                        if asked.explain().way == "scan":
                            self._live.cells.drop()
                            return
                        if self._live.cells.take(asked, np.empty(0, dtype=np.int64), self._live.index):
                            return
            finally:
                self._end()
        raise FileError(f"{self._folder} was replaced while it was tuned; call tune() again")

    def save(self, connection: sqlite3.Connection) -> bool:
        """Save the cells beside the index, if that has been saved as it is now; return False if it has not."""
        with self._live.lock:
            state = read_state(connection)
            if not self._live.is_saved or state.snapshot is None or state.snapshot_sequence != self._live.sequence:
                return False
            save_cells(self._live.cells.index, self._folder, state.snapshot)
            return True

    def _begin(self) -> None:
        with self._live.lock:
            self._live.cells.begin()

    def _end(self) -> None:
        with self._live.lock:
            self._live.cells.end()


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
