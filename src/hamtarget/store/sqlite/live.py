"""The index of an open store: it follows the database, change by change."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.errors import CorruptFileError, InputError
from hamtarget.progress import Progress
from hamtarget.search import Embeddings, MultiIndex
from hamtarget.search.row_names import RowNames
from hamtarget.store.items import FIRST_NAMED_ROW, Record
from hamtarget.store.results import StoreHit, StoreQueryHits
from hamtarget.store.sqlite.rows import changed_records, read_deleted, scan_records


class StoreIndex(MultiIndex):
    """A `MultiIndex` whose hits are those of a store.

    Hits of a single query have ids if all of them are known; otherwise they are a plain tuple, and have row numbers.
    """

    names: RowNames
    """Ids of its rows."""
    _hits_type = StoreQueryHits
    _hit_type = StoreHit

    def _hold(self, core: Any, embeddings: Embeddings | None) -> None:
        super()._hold(core, embeddings)
        self.take_names(RowNames(FIRST_NAMED_ROW))

    def take_names(self, names: RowNames) -> None:
        """Nothing; the index has these names from now on."""
        self.names, self._row_names = names, names.core


@dataclass(frozen=True, slots=True, eq=False)
class Put:
    """Rows that are there now, new or in place of others."""

    rows: NDArray[np.int64]
    codes: Codes
    embeddings: NDArray[Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class Delete:
    """Rows that are there no longer."""

    rows: NDArray[np.int64]


Change = Put | Delete


class LiveIndex:
    """An index and the number of the last change that is in it.

    Attributes:
        index: the rows.
        sequence: number of the last change in it.
        has_names: whether a row may have an id other than its number.
        is_saved: whether the database names a file that holds all of it.
        is_rebuilt: whether it was made from the rows, and not from such a file.
        version: odd while a change is being made, or was interrupted; other than before when it is done.
        is_torn: whether an interrupt left it in the middle of a change.
        lock: held while changes are made.
    """

    def __init__(self, index: StoreIndex, sequence: int, *, has_names: bool, is_saved: bool = False) -> None:
        self.index = index
        self.sequence = sequence
        self.has_names = has_names
        self.is_saved = is_saved
        self.is_rebuilt = not is_saved
        self.version = 0
        self.is_torn = False
        self.lock = threading.RLock()

    def begin(self) -> None:
        """Nothing; until `settle`, whoever searches finds out that the index may not be up to date."""
        self.version += 1 - self.version % 2

    def settle(self) -> None:
        """Nothing; the index is up to date, and whoever searched meanwhile knows that it has changed."""
        self.version += self.version % 2

    def apply(self, changes: Sequence[Change], sequence: int) -> None:
        """Nothing; the changes of one or more whole transactions are then in the index."""
        with self.lock:
            self.begin()
            self.is_torn, self.is_saved = True, False
            for change in changes:
                if isinstance(change, Delete):
                    self.index.delete(change.rows)
                else:
                    self._put(change)
            self.sequence = sequence
            self.is_torn = False
            self.settle()

    def replace(self, other: LiveIndex) -> None:
        """Nothing; this is then what `other` was."""
        with self.lock:
            self.begin()
            # What is known of names stays known.
            other.index.take_names(self.index.names)
            self.index, self.sequence, self.has_names = other.index, other.sequence, other.has_names
            self.is_torn, self.is_saved = False, other.is_saved
            self.settle()

    def replay(self, connection: sqlite3.Connection, sequence: int) -> None:
        """Nothing; what was changed up to `sequence`, which the connection's transaction sees, is in the index."""
        with self.lock:
            gone = [row for row in read_deleted(connection, after=self.sequence) if row in self.index]
            changes: list[Change] = [Delete(np.array(gone, dtype=np.int64))] if gone else []
            changes += (put_of(block, self.index) for block in changed_records(connection, after=self.sequence))
            self.apply(changes, sequence)

    def _put(self, change: Put) -> None:
        if len(change.rows) and change.rows.max() >= FIRST_NAMED_ROW:
            self.has_names = True
        try:
            self.index.add(change.rows, change.codes, change.embeddings)
            return
        except InputError:
            # Some of the rows are there already, and nothing was added.
            known = np.fromiter((row in self.index for row in change.rows.tolist()), bool, len(change.rows))
        for chosen, write in ((known, self.index.replace), (~known, self.index.add)):
            if chosen.all():
                write(change.rows, change.codes, change.embeddings)
            elif chosen.any():
                write(
                    change.rows[chosen],
                    change.codes[chosen],
                    None if change.embeddings is None else change.embeddings[chosen],
                )


def put_of(records: Sequence[Record], index: MultiIndex) -> Put:
    """Rows of the database as arrays.

    Raises:
        CorruptFileError: a code or an embedding does not have the index's length.
    """
    codes = _stacked([record[1] for record in records], np.dtype(np.uint8), index.n_bits // 8, name="code")
    embeddings = None
    if index.embeddings is not None:
        dtype, columns = np.dtype(index.embeddings.dtype), index.embeddings.n_dims
        embeddings = _stacked([record[2] or b"" for record in records], dtype, columns, name="embedding")
    return Put(np.array([record[0] for record in records], dtype=np.int64), codes, embeddings)


def _stacked(rows: Sequence[bytes], dtype: np.dtype[Any], columns: int, *, name: str) -> NDArray[Any]:
    whole = b"".join(rows)
    if len(whole) != len(rows) * columns * dtype.itemsize:
        raise CorruptFileError(f"an {name} of the store has another length than the store's settings say")
    return np.frombuffer(whole, dtype=dtype).reshape(len(rows), columns)


def build_index(
    connection: sqlite3.Connection,
    n_bits: int,
    radius: int,
    *,
    substrings: int,
    embeddings: Embeddings | None,
    progress: Progress | None,
) -> StoreIndex:
    """An index of all rows that the connection's transaction sees."""
    index = StoreIndex(n_bits, radius, substrings=substrings, embeddings=embeddings)
    n_rows = connection.execute("SELECT count(*) FROM items").fetchone()[0] if progress else 0
    parts: list[Put] = []
    done = 0
    for block in scan_records(connection):
        parts.append(put_of(block, index))
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


def _concatenated(arrays: Iterable[NDArray[Any] | None]) -> NDArray[Any] | None:
    there = [array for array in arrays if array is not None]
    return np.concatenate(there) if there else None
