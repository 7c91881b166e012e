"""Items out of the database: by id, by filter, or all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from hamtarget._core import _native
from hamtarget.errors import CorruptFileError
from hamtarget.filters import Filter
from hamtarget.items import Id, Item
from hamtarget.search.embeddings import Embeddings
from hamtarget.store.items.code_rows import IS_FIRST_SQL, expand, n_codes_of
from hamtarget.store.items.ids import Record, shorten
from hamtarget.store.sqlite.tables.database import bounded
from hamtarget.store.sqlite.tables.filters import where
from hamtarget.store.sqlite.tables.rows import find_all_ids, find_rows, look_up, read_records, scan_records

# Records of a scan under limits that are read at a time, unless they are large.
_ROWS_AT_ONCE = 1024
_BYTES_AT_ONCE = 16 << 20
_SIZE = "coalesce(length(embedding), 0) + coalesce(length(CAST(payload AS BLOB)), 0)"


def get_items(
    connection: sqlite3.Connection,
    ids: Sequence[Id],
    embeddings: Embeddings | None,
    limits: _native.Limits | None = None,
) -> list[Item | None]:
    """Return the items of these ids, None for those that are not there."""
    with bounded(connection, limits):
        rows = find_rows(connection, ids)
        wanted = list(expand(rows.values()))
        if limits is not None:
            for _, size in look_up(connection, f"SELECT row, {_SIZE} FROM items WHERE row IN ({{}})", wanted):
                limits.take(rows=1, bytes=size)
        records = read_records(connection, wanted)
    found = {id: _item(id, row, records, embeddings) for id, row in rows.items() if row in records}
    return [found.get(id) for id in ids]


def scan_items(
    connection: sqlite3.Connection,
    filter: Filter | None,
    embeddings: Embeddings | None,
    limits: _native.Limits | None = None,
) -> Iterator[Item]:
    """Yield all items, or those that pass a filter, by row."""
    condition, parameters = where(filter or Filter(()))
    condition = f"{condition} AND {IS_FIRST_SQL.format('row')}"
    if limits is None:
        blocks = scan_records(connection, condition, parameters)
    else:
        width = 0 if embeddings is None else embeddings.n_dims * np.dtype(embeddings.dtype).itemsize
        blocks = _bounded_blocks(connection, condition, parameters, limits, embedding_bytes=width)
    for block in blocks:
        records = {record[0]: record for record in block}
        rows = list(records)
        records |= read_records(connection, [row for row in expand(rows) if row not in records])
        ids = find_all_ids(connection, rows)
        yield from (_item(id, row, records, embeddings) for id, row in zip(ids, rows, strict=True))


def _bounded_blocks(
    connection: sqlite3.Connection,
    condition: str,
    parameters: Sequence[Any],
    limits: _native.Limits,
    *,
    embedding_bytes: int,
) -> Iterator[list[Record]]:
    """Yield all rows that meet a condition, in blocks that are read after their sizes are known and allowed."""
    cursor = connection.execute(f"SELECT row, {_SIZE} FROM items WHERE {condition} ORDER BY row", parameters)
    while True:
        rows: list[int] = []
        left = _BYTES_AT_ONCE
        # Others may use the connection while the caller has an item: nothing is bounded then.
        with bounded(connection, limits):
            for row, size in cursor:
                n_codes = n_codes_of(row)
                # The other codes have embeddings as well, and no payloads.
                size += (n_codes - 1) * embedding_bytes
                limits.take(rows=n_codes, bytes=size)
                rows.append(row)
                left -= size
                if left <= 0 or len(rows) == _ROWS_AT_ONCE:
                    break
            if not rows:
                return
            records = read_records(connection, rows)
        yield [records[row] for row in rows]


def count_items(connection: sqlite3.Connection, filter: Filter) -> int:
    """Return the number of items that pass a filter."""
    condition, parameters = where(filter)
    return int(connection.execute(f"SELECT count(*) FROM items WHERE {condition}", parameters).fetchone()[0])


def _item(id: Id, row: int, records: Mapping[int, Record], embeddings: Embeddings | None) -> Item:
    """Return an item by its first row; its arrays cannot be written to.

    Raises:
        CorruptFileError: one of its codes is missing.
    """
    _, code, embedding, text = records[row]
    payload = None if text is None else _payload(id, text)
    n_codes = n_codes_of(row)
    if n_codes == 1:
        vector = None if embedding is None or embeddings is None else np.frombuffer(embedding, embeddings.dtype)
        return Item(id, code=np.frombuffer(code, dtype=np.uint8), embedding=vector, payload=payload)
    try:
        own = [records[number] for number in range(row, row + n_codes)]
    except KeyError as error:
        raise CorruptFileError(
            f"item {shorten(id)} has lost one of its codes (row {error}); restore the folder from a copy"
        ) from error
    codes = np.frombuffer(b"".join(record[1] for record in own), dtype=np.uint8).reshape(n_codes, -1)
    vectors = None
    if embeddings is not None:
        whole = b"".join(record[2] or b"" for record in own)
        vectors = np.frombuffer(whole, embeddings.dtype).reshape(n_codes, -1)
    return Item(id, codes=codes, embeddings=vectors, payload=payload)


def _payload(id: Id, text: bytes) -> Any:
    """Return a payload whose checksum is right, but which somebody may have forged."""
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(
            f"the payload of item {shorten(id)} is damaged ({type(error).__name__}); restore the folder from a copy"
        ) from error
