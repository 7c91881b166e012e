"""Items out of the database: by id, by filter, or all."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence

import numpy as np

from hamtarget.filters import Filter
from hamtarget.items import Id, Item
from hamtarget.search.embeddings import Embeddings
from hamtarget.store.ids import Record
from hamtarget.store.sqlite.filters import where
from hamtarget.store.sqlite.rows import find_all_ids, find_rows, read_records, scan_records


def get_items(connection: sqlite3.Connection, ids: Sequence[Id], embeddings: Embeddings | None) -> list[Item | None]:
    """Return the items of these ids, None for those that are not there."""
    rows = find_rows(connection, ids)
    records = read_records(connection, list(rows.values()))
    found = {id: _item(id, records[row], embeddings) for id, row in rows.items() if row in records}
    return [found.get(id) for id in ids]


def scan_items(connection: sqlite3.Connection, filter: Filter | None, embeddings: Embeddings | None) -> Iterator[Item]:
    """Yield all items, or those that pass a filter, by row."""
    condition, parameters = where(filter or {})
    for block in scan_records(connection, condition, parameters):
        ids = find_all_ids(connection, [record[0] for record in block])
        yield from (_item(id, record, embeddings) for id, record in zip(ids, block, strict=True))


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
        payload=None if payload is None else json.loads(payload),
    )
