"""The index of a folder's store, made from the rows of its database, and kept at its last change."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import CorruptFileError
from hamtarget.progress import Progress
from hamtarget.search.multi import MultiIndex
from hamtarget.store.items.ids import Record
from hamtarget.store.live import Change, DeleteRows, LiveIndex, PutRows
from hamtarget.store.settings import Settings
from hamtarget.store.sqlite.tables.rows import changed_records, read_deleted, scan_records


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
