"""ONNX files that carry a description of their encoder and a checksum, in the file's own metadata.

An ONNX file is a protobuf message, and fields can be appended to one. Two entries of `metadata_props` are appended:
`hamtarget`, a JSON text, and `hamtarget.sha256`, the checksum of every byte before that last entry. The last entry
always has the same length. Any ONNX runtime reads such a file; checking it needs neither onnx nor a protobuf library.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any, NamedTuple

from hamtarget._metric import MetricName, check_metric
from hamtarget._picture_form import PictureForm
from hamtarget._reading import parse_json, reason_of
from hamtarget.codes import check_n_bits, check_radius
from hamtarget.errors import CorruptFileError, FileError, InputError, UnsupportedFileError

ONNX_NAME = "model.onnx"
"""Name of the exported file in a model's folder."""
DESCRIPTION_KEY = "hamtarget"
# Format 1 crops pictures, format 2 says how pictures become inputs, and format 3 how a text becomes tokens.
_FORMAT, _FORMAT_OF_PICTURES, _FORMAT_OF_TEXTS = 1, 2, 3
# More than a protobuf message can hold.
MAX_ONNX_BYTES = 1 << 31

_CHECKSUM_KEY = "hamtarget.sha256"
# Field numbers and wire types as protobuf writes them: ModelProto.metadata_props, and the key and value of an entry.
_METADATA, _KEY, _VALUE = b"\x72", b"\x0a", b"\x12"
# The key of an entry that names a file with the numbers of a tensor; a varint may be written with useless zeros.
_OTHER_FILE = re.compile(rb"(?:\x0a|\x8a\x80{0,8}\x00)(?:\x08|\x88\x80{0,8}\x00)location")
_MAX_SIDES = 4
# Three channels of 4,096 x 4,096 have fewer.
_MAX_CELLS = 1 << 26


def sealed(model: bytes, description: dict[str, Any]) -> bytes:
    """Return an ONNX model with `description`, which JSON must be able to hold, and a checksum of all of it."""
    format = _FORMAT_OF_PICTURES if "picture" in description else _FORMAT
    format = _FORMAT_OF_TEXTS if "text" in description else format
    content = model + _entry(DESCRIPTION_KEY, json.dumps({"format": format, **description}, sort_keys=True))
    return content + _seal(content)


def read_sealed(path: str | Path) -> bytes:
    """Return the content of a file that `sealed` made, after checking every byte of it.

    Whoever forges a file can also compute its checksum, so nothing in it is trusted. In particular it may not name
    other files, which the runtime would read.

    Raises:
        FileError: there is no such file, or it cannot be read.
        CorruptFileError: the file is truncated, altered or too large, or was not exported by hamtarget.
        UnsupportedFileError: its weights are in other files.
    """
    path = Path(path)
    try:
        if path.stat().st_size > MAX_ONNX_BYTES:
            raise CorruptFileError(
                f"{path} has {path.stat().st_size:,} bytes; expected an ONNX file, of at most {MAX_ONNX_BYTES:,}"
            )
        content = path.read_bytes()
    except OSError as error:
        raise FileError(
            f"{path}: {reason_of(error)}; expected an ONNX file that HashEncoder.export_onnx wrote"
        ) from error
    length = len(_seal(b""))
    if not content.endswith(_seal(content[:-length])):
        raise CorruptFileError(
            f"{path}: the checksum at the end is missing or does not match the content: restore the file, or export "
            "it again"
        )
    if _OTHER_FILE.search(content):
        raise UnsupportedFileError(f"{path}: its weights are in other files; expected one file: export it again")
    return content


def described_form(form: PictureForm) -> dict[str, str]:
    """Return what a description holds of a form, as its entry `picture`; the shape is that of the inputs."""
    return {"fit": form.fit, "resampling": form.resampling}


class Description(NamedTuple):
    """The description of an encoder in a sealed file."""

    n_bits: int
    radius: int | tuple[int, ...] | None
    input_shape: tuple[int, ...]
    picture_form: PictureForm | None
    name: str | None
    substrings: int | None
    metric: MetricName | None


def parse_description(text: str | None, path: str | Path) -> Description:
    """Return the description in a sealed file's metadata.

    Raises:
        CorruptFileError: there is no description, or it is not that of an encoder.
        UnsupportedFileError: a later version wrote the file.
    """
    found = _described(text, path)
    if found.get("format") == _FORMAT_OF_TEXTS:
        raise UnsupportedFileError(f"{path} takes texts; open its folder, with the tokenizer: open_encoder(folder)")
    if found.get("format") not in (_FORMAT, _FORMAT_OF_PICTURES):
        raise UnsupportedFileError(
            f"{path}: format {str(found.get('format'))[:40]}; this version reads formats {_FORMAT} and "
            f"{_FORMAT_OF_PICTURES}: upgrade hamtarget"
        )
    n_bits, radius = _code_facts(found, path)
    shape = found.get("input_shape")
    if (
        not isinstance(shape, list)
        or not 1 <= len(shape) <= _MAX_SIDES
        or not all(type(side) is int and side >= 1 for side in shape)
        or math.prod(shape) > _MAX_CELLS
    ):
        raise CorruptFileError(
            f"{path}: input_shape is {str(shape)[:40]}; expected 1 to {_MAX_SIDES} whole numbers, "
            f"{_MAX_CELLS:,} cells at most: export it again"
        )
    form = None
    if found["format"] == _FORMAT_OF_PICTURES:
        form = _parse_form(found.get("picture"), tuple(shape), path)
    name = found.get("name")
    try:
        substrings = None if found.get("substrings") is None else _check_substrings(found["substrings"], n_bits)
        metric = None if found.get("metric") is None else check_metric(found["metric"])
    except InputError as error:
        raise CorruptFileError(
            f"{path}: the description is not that of an encoder ({error}); export it again"
        ) from error
    named = name if isinstance(name, str) else None
    return Description(n_bits, radius, tuple(shape), form, named, substrings, metric)


def _check_substrings(substrings: Any, n_bits: int) -> int:
    if type(substrings) is not int or not 1 <= substrings <= n_bits:
        raise InputError(f"substrings is {str(substrings)[:40]}; expected 1 to {n_bits}")
    return substrings


class TextDescription(NamedTuple):
    """The description of an encoder of texts in a sealed file."""

    n_bits: int
    radius: int | tuple[int, ...] | None
    n_features: int
    max_tokens: int
    is_lower_cased: bool
    pad_id: int
    tokenizer_sha256: str
    has_head: bool


def parse_text_description(text: str | None, path: str | Path) -> TextDescription:
    """Return the description of an encoder of texts in a sealed file's metadata.

    Raises:
        CorruptFileError: there is no description, or it is not that of an encoder of texts.
        UnsupportedFileError: a later version wrote the file, or the encoder takes no texts.
    """
    found = _described(text, path)
    if found.get("format") != _FORMAT_OF_TEXTS:
        raise UnsupportedFileError(
            f"{path}: format {str(found.get('format'))[:40]}; of texts, this version reads format {_FORMAT_OF_TEXTS}"
        )
    n_bits, radius = _code_facts(found, path)
    told = found.get("text")
    numbers = (
        [found.get("n_features"), told.get("max_tokens"), told.get("pad_id")] if isinstance(told, dict) else [None]
    )
    if not isinstance(told, dict) or not all(type(each) is int and 0 <= each <= _MAX_CELLS for each in numbers):
        raise CorruptFileError(f"{path}: the description says not how a text becomes tokens; export it again")
    return TextDescription(
        n_bits,
        radius,
        found["n_features"],
        told["max_tokens"],
        told.get("lower_case") is True,
        told["pad_id"],
        str(told.get("tokenizer_sha256")),
        told.get("has_head") is True,
    )


def _described(text: str | None, path: str | Path) -> dict[str, Any]:
    if text is None:
        raise CorruptFileError(f"{path}: the ONNX file has no metadata entry {DESCRIPTION_KEY!r}; export it again")
    found: Any = parse_json(text, where=f"{path}: the description")
    if not isinstance(found, dict):
        raise CorruptFileError(f"{path}: the description is no object; export it again")
    return found


def _code_facts(found: dict[str, Any], path: str | Path) -> tuple[int, int | tuple[int, ...] | None]:
    """Return the bits of a code, and the distance target or targets."""
    n_bits: Any = found.get("n_bits")
    radius: Any = found.get("radius")
    targets = [] if radius is None else radius if isinstance(radius, list) else [radius]
    try:
        n_bits = check_n_bits(n_bits)
        for target in targets:
            check_radius(target, n_bits)
    except InputError as error:
        raise CorruptFileError(
            f"{path}: the description is not that of an encoder ({error}); export it again"
        ) from error
    return n_bits, tuple(targets) if isinstance(radius, list) else radius


def _parse_form(picture: object, shape: tuple[int, ...], path: str | Path) -> PictureForm:
    try:
        if not isinstance(picture, dict):
            raise InputError(f"picture is {str(picture)[:40]}; expected an object")
        return PictureForm(shape, picture.get("fit"), picture.get("resampling"))  # type: ignore[arg-type]
    except (InputError, TypeError) as error:
        raise CorruptFileError(
            f"{path}: the description says not how pictures become inputs ({str(error)[:200]}); export it again"
        ) from error


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
