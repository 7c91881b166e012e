"""An index and its entries in one stream of bytes: a head, the file of the index, and the entries as JSON.

The head is 8 bytes that name the format, then three numbers of 8 bytes, little-endian: the threshold, the length of the
index file, and the length of the JSON; then the CRC-32 of the JSON in 4 bytes. The index file has checksums of its own.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

from hamtarget.errors import CorruptFileError, InputError
from hamtarget.search import MultiIndex

_NAME = b"HTXPDQ01"
_HEAD = struct.Struct("<8sQQQI")
_PIECE = 1 << 20


def write_stream(out: BinaryIO, index: MultiIndex, entries: list[Any], threshold: int) -> None:
    """Write an index and its entries.

    Raises:
        InputError: an entry is not what JSON holds.
    """
    text = _as_json(entries)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pdq.index"
        index.save(path)
        out.write(_HEAD.pack(_NAME, threshold, path.stat().st_size, len(text), zlib.crc32(text)))
        with path.open("rb") as file:
            shutil.copyfileobj(file, out, _PIECE)
    out.write(text)


def read_stream(source: BinaryIO) -> tuple[MultiIndex, list[Any], int]:
    """Return an index, its entries and the threshold.

    Raises:
        CorruptFileError: the stream holds something else, or is damaged.
    """
    head = source.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(_NAME):
        raise CorruptFileError(f"the stream begins with {head[:8]!r}; expected what PDQMultiIndex.serialize wrote")
    _, threshold, index_size, text_size, checksum = _HEAD.unpack(head)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "pdq.index"
        with path.open("wb") as file:
            _copy(source, file, index_size)
        # A copy in memory: the file goes with its folder.
        index = MultiIndex.open(path, mmap=False)
    text = source.read(text_size)
    if len(text) < text_size or zlib.crc32(text) != checksum:
        raise CorruptFileError("the entries of the stream are damaged or cut off; serialize the index again")
    entries = json.loads(text)
    rows = index.ids()
    if not isinstance(entries, list) or len(entries) != len(rows) or (len(rows) and rows[-1] != len(rows) - 1):
        raise CorruptFileError(f"the stream has {len(rows):,} rows, and other entries; serialize the index again")
    if index.n_bits != 256 or index.radius != threshold:
        raise CorruptFileError(f"the index of the stream has {index.n_bits} bits and radius {index.radius}")
    return index, entries, int(threshold)


def _as_json(entries: list[Any]) -> bytes:
    try:
        text = json.dumps(entries, separators=(",", ":"), allow_nan=False)
        # JSON has no tuples, and names of fields are strings: what comes back differently is refused.
        if json.loads(text) == entries:
            return text.encode()
    except (TypeError, ValueError):
        pass
    raise InputError(
        "an entry is not what JSON holds, and nothing else is written: expected None, bool, int, float, str, or lists "
        "and dicts of these; keep such entries elsewhere, and their keys here"
    )


def _copy(source: BinaryIO, target: BinaryIO, size: int) -> None:
    while size:
        piece = source.read(min(size, _PIECE))
        if not piece:
            raise CorruptFileError(f"the stream ends {size:,} bytes too early; serialize the index again")
        target.write(piece)
        size -= len(piece)
