"""Rows of the database: names, items and traces of the deleted, each checked by its checksum when it is read."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

from hamtarget.errors import CorruptFileError
from hamtarget.items import Id
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW
from hamtarget.store.items.ids import FIRST_NAMED_ROW, Record, is_direct, name_checksum, row_checksum, trace_checksum

# Values looked up by one statement: few at a time where there are few, since SQLite sorts them all first.
_AT_ONCE = (1, 8, 32, 256)
_FETCHED_ROWS = 4096

_UPSERT = """
INSERT INTO items VALUES (?, ?, ?, CAST(? AS TEXT), ?, ?) ON CONFLICT (row) DO UPDATE SET
code = excluded.code, embedding = excluded.embedding, payload = excluded.payload, changed = excluded.changed,
checksum = excluded.checksum
"""


def look_up(
    connection: sqlite3.Connection, sql: str, values: Sequence[Any], extra: Sequence[Any] = ()
) -> Iterator[Any]:
    """Yield the rows of `sql`, in which {} stands for a list of any number of values, which is asked in blocks."""
    most = _AT_ONCE[-1]
    for start in range(0, len(values), most):
        block = list(values[start : start + most])
        # A full list keeps the statement one of a few, which SQLite then compiles once.
        size = next(size for size in _AT_ONCE if len(block) <= size)
        block += [block[-1]] * (size - len(block))
        yield from connection.execute(sql.format(", ".join("?" * size)), [*block, *extra])


def has_several(connection: sqlite3.Connection) -> bool:
    """Return True if an item has several codes."""
    sql = "SELECT 1 FROM names WHERE row >= ? LIMIT 1"
    return connection.execute(sql, (FIRST_SEVERAL_ROW,)).fetchone() is not None


def has_had_several(connection: sqlite3.Connection) -> bool:
    """Return True if an item has several codes, or one that was deleted since the index was saved had."""
    sql = "SELECT 1 FROM deleted WHERE row >= ? LIMIT 1"
    return has_several(connection) or connection.execute(sql, (FIRST_SEVERAL_ROW,)).fetchone() is not None


def find_rows(connection: sqlite3.Connection, ids: Sequence[Id]) -> dict[Id, int]:
    """Return first rows of those ids that have one; an id that is its own has it even if there is no such item."""
    found: dict[Id, int] = {id: id for id in ids if is_direct(id)}
    # With several codes, an integer has a number as well.
    named = ids if found and has_several(connection) else [id for id in ids if id not in found]
    for row, id, checksum in look_up(connection, "SELECT row, id, checksum FROM names WHERE id IN ({})", named):
        _check_name(row, id, checksum)
        found[id] = row
    return found


def find_ids(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, Id]:
    """Return ids of those of the rows, all from `FIRST_NAMED_ROW` up, that are there."""
    found = {}
    for row, id, checksum in look_up(connection, "SELECT row, id, checksum FROM names WHERE row IN ({})", rows):
        _check_name(row, id, checksum)
        found[row] = id
    return found


def find_all_ids(connection: sqlite3.Connection, rows: Sequence[int]) -> list[Id]:
    """Return ids of the rows, all of which are in `items`.

    Raises:
        CorruptFileError: one of them has no name.
    """
    names = find_ids(connection, [row for row in rows if row >= FIRST_NAMED_ROW])
    try:
        return [row if row < FIRST_NAMED_ROW else names[row] for row in rows]
    except KeyError as error:
        raise CorruptFileError(f"row {error} of the store has no id; restore the folder from a copy") from error


def write_names(connection: sqlite3.Connection, names: dict[Id, int]) -> None:
    """Give ids these row numbers."""
    connection.executemany(
        "INSERT INTO names VALUES (?, ?, ?)", ((row, id, name_checksum(row, id)) for id, row in names.items())
    )


def write_items(
    connection: sqlite3.Connection,
    rows: Sequence[int],
    codes: Sequence[bytes],
    embeddings: Sequence[bytes] | None,
    payloads: Sequence[bytes | None] | None,
    *,
    changed: int,
) -> None:
    """Write items, in place of those that were there."""
    all_embeddings = repeat(None) if embeddings is None else embeddings
    all_payloads = repeat(None) if payloads is None else payloads
    connection.executemany(
        _UPSERT,
        [
            (row, code, embedding, payload, changed, row_checksum(row, code, embedding, payload, changed))
            for row, code, embedding, payload in zip(rows, codes, all_embeddings, all_payloads, strict=False)
        ],
    )


def delete_items(connection: sqlite3.Connection, rows: Sequence[int], *, changed: int) -> None:
    """Delete items, and leave a trace of each."""
    connection.executemany("DELETE FROM items WHERE row = ?", ((row,) for row in rows))
    connection.executemany("DELETE FROM names WHERE row = ?", ((row,) for row in rows if row >= FIRST_NAMED_ROW))
    connection.executemany(
        "INSERT OR REPLACE INTO deleted VALUES (?, ?, ?)",
        ((row, changed, trace_checksum(row, changed)) for row in rows),
    )


def read_existing(connection: sqlite3.Connection, rows: Sequence[int]) -> list[int]:
    """Return those of the rows that are there, ascending."""
    return sorted({row for (row,) in look_up(connection, "SELECT row FROM items WHERE row IN ({})", rows)})


def read_deleted(connection: sqlite3.Connection, *, after: int) -> list[int]:
    """Return rows that were deleted after a change and are not there again.

    Raises:
        CorruptFileError: a trace of one of them is damaged.
    """
    gone = []
    sql = """
        SELECT row, changed, checksum FROM deleted INDEXED BY deleted_by_change
        WHERE changed > ? AND NOT EXISTS (SELECT 1 FROM items WHERE items.row = deleted.row)
    """
    for row, changed, checksum in connection.execute(sql, (after,)):
        if not is_trace_whole(row, changed, checksum):
            raise CorruptFileError(f"the trace of deleted row {row} is damaged: its checksum is wrong; restore a copy")
        gone.append(row)
    return gone


# As it lies in the file, payload is checked before it is believed to be text.
COLUMNS = "row, code, embedding, CAST(payload AS BLOB), changed, checksum"
_SELECT = f"SELECT {COLUMNS} FROM items"


def read_records(connection: sqlite3.Connection, rows: Sequence[int]) -> dict[int, Record]:
    """Return those of the rows that are there.

    Raises:
        CorruptFileError: one of them is damaged.
    """
    return {record[0]: record for record in _checked(look_up(connection, f"{_SELECT} WHERE row IN ({{}})", rows))}


def scan_records(
    connection: sqlite3.Connection, condition: str = "TRUE", parameters: Sequence[Any] = ()
) -> Iterator[list[Record]]:
    """Yield all rows that meet a condition, ascending, in blocks.

    Raises:
        CorruptFileError: one of them is damaged.
    """
    yield from _blocks(connection.execute(f"{_SELECT} WHERE {condition} ORDER BY row", parameters))


def changed_records(connection: sqlite3.Connection, *, after: int) -> Iterator[list[Record]]:
    """Yield all rows that were written after a change, in blocks.

    Raises:
        CorruptFileError: one of them is damaged.
    """
    # Left to itself, SQLite reads the whole table.
    yield from _blocks(connection.execute(f"{_SELECT} INDEXED BY items_by_change WHERE changed > ?", (after,)))


def changed_rows(connection: sqlite3.Connection, *, after: int) -> Iterator[int]:
    """Yield the numbers of all rows that were written after a change."""
    for (row,) in connection.execute("SELECT row FROM items INDEXED BY items_by_change WHERE changed > ?", (after,)):
        yield row


def _blocks(cursor: sqlite3.Cursor) -> Iterator[list[Record]]:
    while block := cursor.fetchmany(_FETCHED_ROWS):
        yield list(_checked(block))


def scan_unchecked(connection: sqlite3.Connection) -> Iterator[tuple[list[Record], list[int]]]:
    """Yield all rows in blocks: those that are whole, and the numbers of those that are damaged."""
    cursor = connection.execute(f"{_SELECT} ORDER BY row")
    while block := cursor.fetchmany(_FETCHED_ROWS):
        whole = [is_row_whole(*record) for record in block]
        yield (
            [record[:4] for record, is_whole in zip(block, whole, strict=True) if is_whole],
            [record[0] for record, is_whole in zip(block, whole, strict=True) if not is_whole],
        )


def _checked(records: Iterable[Any]) -> Iterator[Record]:
    for record in records:
        if not is_row_whole(*record):
            raise CorruptFileError(f"row {record[0]} of the store is damaged: its checksum is wrong; restore a copy")
        yield record[:4]


def is_row_whole(
    row: int, code: bytes, embedding: bytes | None, payload: bytes | None, changed: int, checksum: int
) -> bool:
    """Return True if a row of items has its checksum. Damage may have changed the type of any column."""
    try:
        return row_checksum(row, code, embedding, payload, changed) == checksum
    except (TypeError, struct.error):
        return False


def is_name_whole(row: int, id: Any, checksum: int) -> bool:
    """Return True if a row of names has its checksum."""
    return isinstance(id, str | int) and name_checksum(row, id) == checksum


def is_trace_whole(row: int, changed: int, checksum: int) -> bool:
    """Return True if a row of deleted has its checksum."""
    return trace_checksum(row, changed) == checksum


def _check_name(row: int, id: Id, checksum: int) -> None:
    if not is_name_whole(row, id, checksum):
        raise CorruptFileError(f"row {row} of the store is damaged: its name's checksum is wrong; restore a copy")
