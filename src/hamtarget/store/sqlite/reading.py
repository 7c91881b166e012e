"""Items out of the database: by id, by filter, or all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from hamtarget.errors import CorruptFileError
from hamtarget.filters import Filter
from hamtarget.items import Id, Item
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.limits import Limits
from hamtarget.store.ids import Record, shorten
from hamtarget.store.sqlite.bounded import bounded
from hamtarget.store.sqlite.filters import where
from hamtarget.store.sqlite.rows import find_all_ids, find_rows, look_up, read_records, scan_records

# Records of a scan under limits that are read at a time, unless they are large.
_ROWS_AT_ONCE = 1024
_BYTES_AT_ONCE = 16 << 20
_SIZE = "coalesce(length(embedding), 0) + coalesce(length(CAST(payload AS BLOB)), 0)"


def get_items(
    connection: sqlite3.Connection, ids: Sequence[Id], embeddings: Embeddings | None, limits: Limits | None = None
) -> list[Item | None]:
    """Return the items of these ids, None for those that are not there."""
    with bounded(connection, limits):
        rows = find_rows(connection, ids)
        wanted = list(rows.values())
        if limits is not None:
            for _, size in look_up(connection, f"SELECT row, {_SIZE} FROM items WHERE row IN ({{}})", wanted):
                limits.take(rows=1, bytes=size)
        records = read_records(connection, wanted)
    found = {id: _item(id, records[row], embeddings) for id, row in rows.items() if row in records}
    return [found.get(id) for id in ids]


def scan_items(
    connection: sqlite3.Connection, filter: Filter | None, embeddings: Embeddings | None, limits: Limits | None = None
) -> Iterator[Item]:
    """Yield all items, or those that pass a filter, by row."""
    condition, parameters = where(filter or {})
    if limits is None:
        blocks = scan_records(connection, condition, parameters)
    else:
        blocks = _bounded_blocks(connection, condition, parameters, limits)
    for block in blocks:
        ids = find_all_ids(connection, [record[0] for record in block])
        yield from (_item(id, record, embeddings) for id, record in zip(ids, block, strict=True))


def _bounded_blocks(
    connection: sqlite3.Connection, condition: str, parameters: Sequence[Any], limits: Limits
) -> Iterator[list[Record]]:
    """Yield all rows that meet a condition, in blocks that are read after their sizes are known and allowed."""
    cursor = connection.execute(f"SELECT row, {_SIZE} FROM items WHERE {condition} ORDER BY row", parameters)
    while True:
        rows: list[int] = []
        left = _BYTES_AT_ONCE
        # Others may use the connection while the caller has an item: nothing is bounded then.
        with bounded(connection, limits):
            for row, size in cursor:
                limits.take(rows=1, bytes=size)
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


def _item(id: Id, record: Record, embeddings: Embeddings | None) -> Item:
    """Return a row as an item; its arrays cannot be written to."""
    _, code, embedding, payload = record
    return Item(
        id,
        code=np.frombuffer(code, dtype=np.uint8),
        embedding=None if embedding is None or embeddings is None else np.frombuffer(embedding, embeddings.dtype),
        payload=None if payload is None else _payload(id, payload),
    )


def _payload(id: Id, text: bytes) -> Any:
    """Return a payload whose checksum is right, but which somebody may have forged."""
    try:
        return json.loads(text.decode())
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(
            f"the payload of item {shorten(id)} is damaged ({type(error).__name__}); restore the folder from a copy"
        ) from error
