"""ONNX files that carry a description of their encoder and a checksum, in the file's own metadata.

An ONNX file is a protobuf message, and fields can be appended to one. Two entries of `metadata_props` are appended:
`hamtarget`, a JSON text, and `hamtarget.sha256`, the checksum of every byte before that last entry. The last entry
always has the same length. Any ONNX runtime reads such a file; checking it needs neither onnx nor a protobuf library.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from hamtarget.errors import CorruptFileError, FileError, UnsupportedFileError

ONNX_NAME = "model.onnx"
"""Name of the exported file in a model's folder."""
DESCRIPTION_KEY = "hamtarget"
FORMAT = 1

_CHECKSUM_KEY = "hamtarget.sha256"
# Field numbers and wire types as protobuf writes them: ModelProto.metadata_props, and the key and value of an entry.
_METADATA, _KEY, _VALUE = b"\x72", b"\x0a", b"\x12"


def sealed(model: bytes, description: dict[str, Any]) -> bytes:
    """Return an ONNX model with `description`, which JSON must be able to hold, and a checksum of all of it."""
    content = model + _entry(DESCRIPTION_KEY, json.dumps({"format": FORMAT, **description}, sort_keys=True))
    return content + _seal(content)


def read_sealed(path: str | Path) -> bytes:
    """Return the content of a file that `sealed` made, after checking every byte of it.

    Raises:
        FileError: there is no such file, or it cannot be read.
        CorruptFileError: the file is truncated or altered, or was not exported by hamtarget.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"{path}: {error.strerror or error}; expected an ONNX file that HashEncoder.export_onnx wrote"
        ) from error
    length = len(_seal(b""))
    if not content.endswith(_seal(content[:-length])):
        raise CorruptFileError(
            f"{path}: the checksum at the end is missing or does not match the content: restore the file, or export "
            "it again"
        )
    return content


def parse_description(text: str | None, path: str | Path) -> dict[str, Any]:
    """Return the description in a sealed file's metadata.

    Raises:
        CorruptFileError: there is no description.
        UnsupportedFileError: a later version wrote the file.
    """
    if text is None:
        raise CorruptFileError(f"{path}: the ONNX file has no metadata entry {DESCRIPTION_KEY!r}; export it again")
    description: dict[str, Any] = json.loads(text)
    if description.get("format") != FORMAT:
        raise UnsupportedFileError(
            f"{path}: format {description.get('format')}; this version reads format {FORMAT}: upgrade hamtarget"
        )
    return description


def _seal(content: bytes) -> bytes:
    return _entry(_CHECKSUM_KEY, hashlib.sha256(content).hexdigest())


def _entry(key: str, value: str) -> bytes:
    """Return one entry of `metadata_props`."""
    parts = _KEY + _sized(key.encode()) + _VALUE + _sized(value.encode())
    return _METADATA + _sized(parts)


def _sized(content: bytes) -> bytes:
    """Return `content` after its length, which is written with seven bits a byte, the lowest first."""
    length, size = len(content), bytearray()
    while length > 0x7F:
        size.append(length & 0x7F | 0x80)
        length >>= 7
    size.append(length)
    return bytes(size) + content
