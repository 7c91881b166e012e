"""Rows between PostgreSQL and arrays: by COPY in its binary format, whole blocks at a time."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native
from hamtarget.codes import Codes
from hamtarget.errors import CorruptFileError
from hamtarget.items import Id, Item
from hamtarget.search.embeddings import Embeddings
from hamtarget.store.items.batches import Batch
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW, N_CODES_SQL, n_codes_of
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.live import PutRows
from hamtarget.store.postgres.filters import fields_of
from hamtarget.store.settings import Settings

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

# PostgreSQL's first bit of a byte is the highest one, ours the lowest.
_REVERSED = np.packbits(np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)[:, ::-1], axis=1)[:, 0]
_REVERSED_BYTES = _REVERSED.tobytes()
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)
_JSONB_VERSION = b"\x01"
_ROWS_AT_ONCE = 65_536
_FETCHED_ROWS = 4096
_BYTES_AT_ONCE = 16 << 20
# No text in UTF-8 begins with it: what follows are the digits of an integer id that is not its own row number.
_INTEGER_NAME = b"\xff"


def integers(values: Iterable[int]) -> str:
    """Return an array of integers as PostgreSQL reads it: several times as fast as one of Python objects."""
    return "{" + ",".join(map(str, values)) + "}"


def bit_strings(codes: Codes) -> list[str]:
    """Return codes as PostgreSQL writes them, bit 0 first."""
    digits = (np.unpackbits(codes, axis=1, bitorder="little") + ord("0")).tobytes().decode()
    n_bits = 8 * codes.shape[1]
    return [digits[start : start + n_bits] for start in range(0, len(digits), n_bits)]


def bit_value(code: Codes) -> bytes:
    """Return one code, (n_bits / 8,), as a value of type bit that PostgreSQL receives."""
    return _LENGTH.pack(8 * len(code)) + code.tobytes().translate(_REVERSED_BYTES)


def name_of(id: Id) -> bytes:
    """Return what the table `names` holds for an id that is not its own row number."""
    return id.encode() if isinstance(id, str) else _INTEGER_NAME + str(id).encode()


def id_of(row: int, name: bytes | None) -> Id:
    """Return the id of a row.

    Raises:
        CorruptFileError: it needs a name and has none.
    """
    if row < FIRST_NAMED_ROW:
        return row
    if name is None:
        raise CorruptFileError(f"row {row} of the store has no id; restore the database from a copy")
    return int(name[1:]) if name.startswith(_INTEGER_NAME) else name.decode()


def find_names(connection: Connection, rows: Sequence[int]) -> dict[int, Id]:
    """Return ids of those of the rows, all from `FIRST_NAMED_ROW` up, that are there."""
    found = connection.execute(
        "SELECT row, name FROM names WHERE row = ANY($1::bigint[])", [integers(rows)], binary=True
    )
    return {row: id_of(row, name) for row, name in found}


def copy_in(connection: Connection, rows: Sequence[int], batch: Batch, *, changed: int) -> None:
    """Copy the codes of a batch into the table, in which there are none with these rows."""
    payloads = batch.payloads_of_codes()
    with connection.cursor().copy(
        "COPY items (row, changed, code, embedding, payload, fields) FROM STDIN (FORMAT BINARY)"
    ) as copy:
        copy.write(_HEADER)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            here = slice(start, start + _ROWS_AT_ONCE)
            fixed = _fixed_part(
                np.asarray(rows[here], dtype=np.int64),
                batch.codes[here],
                None if batch.embeddings is None else batch.embeddings[here],
                changed=changed,
            )
            copy.write(_with_payloads(fixed, None if payloads is None else payloads[here]))
        copy.write(_END)


def copy_names(connection: Connection, names: dict[Id, int]) -> None:
    """Give ids these row numbers."""
    with connection.cursor().copy("COPY names (row, name) FROM STDIN (FORMAT BINARY)") as copy:
        copy.write(_HEADER)
        entries = iter(names.items())
        while block := list(islice(entries, _ROWS_AT_ONCE)):
            copy.write(
                b"".join(
                    struct.pack(">hiqi", 2, 8, row, len(name)) + name
                    for row, name in ((row, name_of(id)) for id, row in block)
                )
            )
        copy.write(_END)


def _fixed_part(
    rows: NDArray[np.int64], codes: Codes, embeddings: NDArray[Any] | None, *, changed: int
) -> NDArray[np.void]:
    """Return all but payload and fields of COPY's rows: six columns are announced, four of them follow."""
    width = codes.shape[1]
    layout: list[tuple[Any, ...]] = [("columns", ">i2"), ("row_length", ">i4"), ("row", ">i8")]
    layout += [("changed_length", ">i4"), ("changed", ">i8")]
    layout += [("code_length", ">i4"), ("n_bits", ">i4"), ("code", "u1", (width,)), ("embedding_length", ">i4")]
    plain = None if embeddings is None else embeddings.view(np.uint8).reshape(len(rows), -1)
    if plain is not None:
        layout.append(("embedding", "u1", (plain.shape[1],)))
    fixed = np.empty(len(rows), dtype=layout)
    fixed["columns"] = 6
    fixed["row_length"] = fixed["changed_length"] = 8
    fixed["row"], fixed["changed"] = rows, changed
    fixed["code_length"], fixed["n_bits"], fixed["code"] = 4 + width, 8 * width, _REVERSED[codes]
    fixed["embedding_length"] = -1 if plain is None else plain.shape[1]
    if plain is not None:
        fixed["embedding"] = plain
    return fixed


def _with_payloads(fixed: NDArray[np.void], payloads: Sequence[bytes | None] | None) -> bytes:
    whole, width = fixed.tobytes(), fixed.dtype.itemsize
    parts: list[bytes] = []
    for place in range(len(fixed)):
        parts.append(whole[place * width : (place + 1) * width])
        payload = None if payloads is None else payloads[place]
        if payload is None:
            parts += (_NULL, _NULL)
            continue
        fields = _JSONB_VERSION + fields_of(payload)
        parts += (_LENGTH.pack(len(payload)), payload, _LENGTH.pack(len(fields)), fields)
    return b"".join(parts)


def copy_out(connection: Connection, settings: Settings, condition: str = "TRUE") -> Iterator[PutRows]:
    """Yield rows, codes and embeddings of all items that meet a condition of SQL, ascending, in blocks.

    Raises:
        CorruptFileError: a code or an embedding is not what the settings say.
    """
    kind = settings.embeddings
    layout: list[tuple[Any, ...]] = [("columns", ">i2"), ("row_length", ">i4"), ("row", ">i8")]
    layout += [("code_length", ">i4"), ("n_bits", ">i4"), ("code", "u1", (settings.n_bits // 8,))]
    if kind is not None:
        layout += [("embedding_length", ">i4"), ("embedding", kind.dtype, (kind.n_dims,))]
    dtype = np.dtype(layout)
    columns = "row, code" if kind is None else "row, code, embedding"
    sql = f"COPY (SELECT {columns} FROM items WHERE {condition} ORDER BY row) TO STDOUT (FORMAT BINARY)"
    with connection.cursor().copy(sql) as copy:
        rest = b""
        is_first = True
        pieces = iter(copy)
        while block := list(islice(pieces, _ROWS_AT_ONCE)):
            whole = rest + b"".join(map(bytes, block))
            if is_first:
                whole, is_first = whole[len(_HEADER) :], False
            n_rows = len(whole) // dtype.itemsize
            yield _checked(np.frombuffer(whole, dtype, n_rows), settings)
            rest = whole[n_rows * dtype.itemsize :]
        if rest != _END:
            raise _not_as_set()


def _checked(found: NDArray[Any], settings: Settings) -> PutRows:
    kind = settings.embeddings
    right = (found["row_length"] == 8) & (found["n_bits"] == settings.n_bits)
    right &= found["columns"] == (2 if kind is None else 3)
    if kind is not None:
        right &= found["embedding_length"] == kind.n_dims * np.dtype(kind.dtype).itemsize
    if not right.all():
        raise _not_as_set()
    embeddings = None if kind is None else np.ascontiguousarray(found["embedding"])
    return PutRows(found["row"].astype(np.int64), _REVERSED[found["code"]], embeddings)


def _not_as_set() -> CorruptFileError:
    return CorruptFileError("a code or an embedding of the store has another length than the store's settings say")


_ALL_OF_ITEM = f"""
CASE WHEN i.row >= {FIRST_SEVERAL_ROW} THEN (
    SELECT string_agg({{}}, ''::bytea ORDER BY o.row) FROM items o WHERE o.row >= i.row AND o.row < i.row + 64
) END
"""
ITEM_COLUMNS = ", ".join(
    (
        "i.row, n.name, i.code, i.embedding, i.payload::text",
        *map(_ALL_OF_ITEM.format, ("bit_send(o.code)", "o.embedding")),
    )
)
"""Columns of an item; the last two are all codes and all embeddings of one that has several."""
ITEM_TABLES = "items i LEFT JOIN names n ON n.row = i.row"
ITEM_SIZE = (
    f"coalesce(octet_length(i.embedding), 0) * {N_CODES_SQL.format('i.row')} "
    "+ coalesce(octet_length(i.payload::text), 0)"
)
"""Bytes of an item's embeddings and payload."""


def only_row(connection: Connection, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...]:
    """Return the row of a statement that has one, such as that of the state.

    Raises:
        CorruptFileError: it has none.
    """
    found = connection.execute(sql, parameters, prepare=True).fetchone()
    if found is None:
        raise CorruptFileError("the store has no state; restore the database from a copy")
    return found


def scan_blocks(
    connection: Connection, condition: str, parameters: Sequence[Any], limits: _native.Limits | None
) -> Iterator[list[tuple[Any, ...]]]:
    """Yield `ITEM_COLUMNS` of all items that meet a condition, by row, in blocks.

    With limits, the sizes of items are read and counted before the items.

    Args:
        connection: in a transaction.
        condition: of SQL.
        parameters: of the condition.
        limits: bounds on what is read.

    Raises:
        LimitError: it is more than allowed.
    """
    # A cursor of the server: the items need not fit into memory.
    columns = ITEM_COLUMNS if limits is None else f"i.row, {ITEM_SIZE}"
    sql = f"SELECT {columns} FROM {ITEM_TABLES} WHERE {condition} ORDER BY i.row"
    connection.execute(f"DECLARE scan NO SCROLL CURSOR FOR {sql}", parameters)
    while block := connection.execute(f"FETCH {_FETCHED_ROWS} FROM scan", binary=True).fetchall():
        if limits is None:
            yield block
            continue
        rows: list[int] = []
        n_bytes = 0
        for row, size in block:
            limits.take(rows=n_codes_of(row), bytes=size)
            rows.append(row)
            n_bytes += size
            if n_bytes >= _BYTES_AT_ONCE:
                yield _items(connection, rows)
                rows, n_bytes = [], 0
        if rows:
            yield _items(connection, rows)


def _items(connection: Connection, rows: Sequence[int]) -> list[tuple[Any, ...]]:
    sql = f"SELECT {ITEM_COLUMNS} FROM {ITEM_TABLES} WHERE i.row = ANY($1::bigint[]) ORDER BY i.row"
    return connection.execute(sql, [integers(rows)], binary=True).fetchall()


def item_of(record: Sequence[Any], settings: Settings) -> Item:
    """Return one of `ITEM_COLUMNS`, read as binary, as an item; its arrays cannot be written to."""
    row, name, code, embedding, text, codes, embeddings = record
    payload = None if text is None else json.loads(text)
    kind = settings.embeddings
    n_codes = n_codes_of(row)
    if n_codes == 1:
        vector = _embedding_of(embedding, kind)
        return Item(id_of(row, name), code=code_of(code, settings.n_bits), embedding=vector, payload=payload)
    all_codes = codes_of(codes, settings.n_bits)
    all_codes.flags.writeable = False
    vectors = None if kind is None else np.frombuffer(embeddings, kind.dtype).reshape(-1, kind.n_dims)
    if len(all_codes) != n_codes or (vectors is not None and len(vectors) != n_codes):
        raise CorruptFileError(f"the item of row {row} has lost one of its codes; restore the database from a copy")
    return Item(id_of(row, name), codes=all_codes, embeddings=vectors, payload=payload)


def code_of(value: bytes, n_bits: int) -> Codes:
    """Return the code that a value of type bit is, as PostgreSQL sends it."""
    if len(value) != 4 + n_bits // 8 or _LENGTH.unpack_from(value)[0] != n_bits:
        raise _not_as_set()
    code: Codes = _REVERSED[np.frombuffer(value, np.uint8, offset=4)]
    code.flags.writeable = False
    return code


def codes_of(values: bytes, n_bits: int) -> Codes:
    """Return the codes that values of type bit are, one after another, as PostgreSQL sends them."""
    layout = np.dtype([("n_bits", ">i4"), ("code", "u1", (n_bits // 8,))])
    if len(values) % layout.itemsize:
        raise _not_as_set()
    found = np.frombuffer(values, layout)
    if (found["n_bits"] != n_bits).any():
        raise _not_as_set()
    codes: Codes = _REVERSED[found["code"]]
    return codes


def _embedding_of(value: bytes | None, kind: Embeddings | None) -> NDArray[Any] | None:
    if kind is None:
        return None
    if value is None or len(value) != kind.n_dims * np.dtype(kind.dtype).itemsize:
        raise _not_as_set()
    return np.frombuffer(value, kind.dtype)
