"""Ids and rows of items: checks of ids, and checksums that every engine writes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hamtarget._checks import as_list
from hamtarget.codes import Codes
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.items import Id

MAX_ID_BYTES = 1024

# An integer id below this is its own row number, so that most hits need no look-up. Every other id gets a row number
# from here up, and none of those is given twice.
FIRST_NAMED_ROW = 2**62

_MAX_SHOWN = 60
_MAX_CHARACTER_BYTES = 4
_ROW = struct.Struct("<q")
_ROW_AND_CHANGE = struct.Struct("<qq")

Record = tuple[int, bytes, bytes | None, bytes | None]
"""Row number, code, embedding, and payload as JSON in UTF-8."""


def check_id(id: object) -> Id:
    """Return `id` as a plain string or integer.

    Raises:
        DtypeError: it is neither.
        InputError: it is too long, out of range, or not text that UTF-8 can hold.
    """
    if type(id) is str:
        if len(id) > MAX_ID_BYTES or len(encode_text(id, name="id")) > MAX_ID_BYTES:
            raise InputError(f"id {shorten(id)} is longer than {MAX_ID_BYTES:,} bytes of UTF-8; shorten it")
        return id
    if isinstance(id, str):
        return check_id(str(id))
    if isinstance(id, bool) or not isinstance(id, int | np.integer):
        raise DtypeError(f"id is {shorten(id)}, {type(id).__name__}; expected a string or an integer")
    if not -(2**63) <= id < 2**63:
        raise InputError(f"id {id} does not fit 64 bits; expected -2**63 to 2**63 - 1, or a string")
    return int(id)


def is_direct(id: Id) -> TypeGuard[int]:
    """Return True if an id is its own row number."""
    return isinstance(id, int) and id < FIRST_NAMED_ROW


def check_ids(ids: Iterable[Id] | NDArray[Any]) -> list[Id]:
    """Return all of `ids` as plain strings and integers.

    Raises:
        As `check_id`; ShapeError: they are not one after another.
    """
    if isinstance(ids, str | bytes):
        raise ShapeError(f"ids are one {type(ids).__name__}, {shorten(ids)}; expected a list of ids")
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1:
            raise ShapeError(f"ids have {ids.ndim} dimensions; expected 1: (rows,)")
        whole: list[Id] = ids.tolist()
        return whole if ids.dtype.kind == "i" else check_ids(whole)
    ids = as_list(ids, name="ids")
    if set(map(type, ids)) == {str} and max(map(len, ids)) * _MAX_CHARACTER_BYTES <= MAX_ID_BYTES:
        # All at once, since many of them are put at once.
        encode_text("".join(ids), name="one of the ids in")
        return list(ids)
    return [check_id(id) for id in ids]


def encode_text(text: str, *, name: str) -> bytes:
    """Return `text` as UTF-8.

    Raises:
        InputError: it holds half a surrogate pair.
    """
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{name} {shorten(text)} holds half a surrogate pair, which UTF-8 cannot say") from error


def shorten(value: object) -> str:
    """Return how an error names a value that may be of any length."""
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def row_checksum(row: int, code: bytes, embedding: bytes | None, payload: bytes | None, changed: int) -> int:
    """Return the CRC-32 of all that a row holds; codes are of one length, and so are embeddings."""
    whole = _ROW_AND_CHANGE.pack(row, changed) + code
    if embedding is not None:
        whole += b"e" + embedding
    return zlib.crc32(whole if payload is None else whole + b"p" + payload)


def trace_checksum(row: int, changed: int) -> int:
    """Return the CRC-32 of the trace of a deleted item."""
    return zlib.crc32(f"{row} {changed}".encode())


def name_checksum(row: int, id: Id) -> int:
    """Return the CRC-32 of an id and its row number."""
    kind = b"s" if isinstance(id, str) else b"i"
    return zlib.crc32(_ROW.pack(row) + kind + str(id).encode())


def byte_rows(array: Codes | NDArray[Any]) -> list[bytes]:
    """Return each row of a (rows, columns) array as bytes."""
    width = array.shape[1] * array.itemsize
    whole = array.tobytes()
    return [whole[start : start + width] for start in range(0, len(whole), width)]
