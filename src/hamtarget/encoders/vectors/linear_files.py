"""Opening of saved linear encoders.

A file is a line of JSON, the mean, the projection, and the SHA-256 of all that; docs/format.md describes it.
"""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget._reading import parse_json, reason_of
from hamtarget.encoders.vectors.itq import ITQ
from hamtarget.encoders.vectors.linear import LINEAR_FORMAT, LinearEncoder
from hamtarget.encoders.vectors.lsh import LSH
from hamtarget.errors import CorruptFileError, FileError, InputError, UnsupportedFileError

_METHODS: dict[str, type[LinearEncoder]] = {method.__name__: method for method in (ITQ, LSH)}
# A projection of 100,000 columns to 4,096 bits has fewer.
_MAX_BYTES = 1 << 31
_MAX_SIDES = 4
_CHECKSUM_BYTES = 32


def open_linear_file(path: Path) -> LinearEncoder:
    """Return the encoder that `LinearEncoder.save` wrote to a file.

    Raises:
        FileError: the file cannot be read.
        CorruptFileError: it is damaged.
        UnsupportedFileError: a later version wrote it.
    """
    content = _read_checked(path)
    head, _, numbers = content.partition(b"\n")
    found: Any = parse_json(head.decode(errors="replace"), where=f"{path}: the first line")
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path}: the first line is no object; restore the file, or save the encoder again")
    format, method = found.get("format"), found.get("method")
    if format != LINEAR_FORMAT or not isinstance(method, str) or method not in _METHODS:
        raise UnsupportedFileError(
            f"{path}: format {str(format)[:40]}, method {str(method)[:40]!r}; this version knows format "
            f"{LINEAR_FORMAT} and {', '.join(_METHODS)}: upgrade hamtarget"
        )
    try:
        encoder = _METHODS[method](**found.get("options", {}))
    except (InputError, TypeError) as error:
        raise CorruptFileError(f"{path}: wrong options ({str(error)[:200]}); save the encoder again") from error
    shape = _input_shape(found.get("input_shape"), path)
    columns = math.prod(shape)
    if len(numbers) != 4 * columns * (1 + encoder.n_bits):
        raise CorruptFileError(
            f"{path}: {len(numbers):,} bytes of numbers; expected {4 * columns * (1 + encoder.n_bits):,} for "
            f"{columns:,} columns and {encoder.n_bits} bits: save the encoder again"
        )
    values = np.frombuffer(numbers, dtype="<f4").astype(np.float32)
    if not np.isfinite(values).all():
        raise CorruptFileError(f"{path}: holds NaN or infinity; expected finite numbers: save the encoder again")
    return encoder._restore(shape, values[:columns].copy(), values[columns:].reshape(columns, encoder.n_bits).copy())


def _read_checked(path: Path) -> bytes:
    """Return the content of a file without its checksum, after checking it."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise CorruptFileError(
                f"{path} has {path.stat().st_size:,} bytes; expected a saved encoder, of at most {_MAX_BYTES:,}"
            )
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"{path}: {reason_of(error)}; expected a saved encoder") from error
    content, checksum = content[:-_CHECKSUM_BYTES], content[-_CHECKSUM_BYTES:]
    if hashlib.sha256(content).digest() != checksum:
        raise CorruptFileError(
            f"{path}: the checksum at the end does not match the content: restore the file, or save the encoder again"
        )
    return content


def _input_shape(found: object, path: Path) -> tuple[int, ...]:
    if (
        not isinstance(found, list)
        or not 1 <= len(found) <= _MAX_SIDES
        or not all(type(side) is int and side >= 1 for side in found)
    ):
        raise CorruptFileError(
            f"{path}: input_shape is {str(found)[:40]}; expected 1 to {_MAX_SIDES} whole numbers: save the "
            "encoder again"
        )
    return tuple(found)
