"""Open an encoder by its name, or by the files in its folder and the packages that are installed."""

from __future__ import annotations

import hashlib
import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget._reading import parse_json, reason_of
from hamtarget.encoders.hash_files import PICTURE_HASHES, TEXT_HASHES, open_hash_file
from hamtarget.encoders.itq import ITQ
from hamtarget.encoders.linear import LINEAR_FILE_NAME, LINEAR_FORMAT, LinearEncoder
from hamtarget.encoders.lsh import LSH
from hamtarget.encoders.onnx_file import ONNX_NAME
from hamtarget.encoders.picture_hashes import HASH_FILE_NAME
from hamtarget.encoders.protocol import Encoder
from hamtarget.encoders.sentence.model_folder import TOKENIZER_NAME, is_sentence_model
from hamtarget.encoders.shipped import shipped_names, shipped_path
from hamtarget.encoders.texts.simhash import TEXT_HASH_FILE_NAME
from hamtarget.errors import CorruptFileError, FileError, InputError, MissingExtraError, UnsupportedFileError

_WEIGHTS_NAME = "model.safetensors"
# A file of these is a line of JSON, the mean, the projection, and the SHA-256 of all that; see docs/format.md.
_LINEAR_METHODS: dict[str, type[LinearEncoder]] = {method.__name__: method for method in (ITQ, LSH)}
# A projection of 100,000 columns to 4,096 bits has fewer.
_MAX_LINEAR_BYTES = 1 << 31
_MAX_SIDES = 4
_CHECKSUM_BYTES = 32


def register_encoder(file_name: str, opener: Callable[[Path], Encoder]) -> None:
    """Let `open_encoder`, and so a store, open an encoder of your own by the file that its `save` writes.

    Call it in each program that opens such an encoder, where its class is defined. A second call for the same name
    counts.

    Args:
        file_name: name of the file in the encoder's folder, unlike that of any other kind.
        opener: returns the encoder, from the path of the file.

    Raises:
        InputError: the name is a path, or that of a kind that the package has.
    """
    if not file_name or Path(file_name).name != file_name or file_name in _OWN_NAMES:
        raise InputError(f"file_name is {file_name!r}; expected the name of a file that no kind of the package has")
    _OPENERS[file_name] = opener


def open_encoder(folder: str | Path) -> Encoder:
    """Open the encoder in `folder`, or one that comes with the package, by its name.

    The names are those of picture hashes: "phash" and "dhash" give the bits of the package imagehash, "pdq" those of
    pdqhash, and "copies64" and "copies256" are learned. "simhash64" is a hash of texts. A folder of such a name is
    opened as "./phash", or as a `Path`.

    The exported `model.onnx`, which needs no torch, is preferred if it is there and onnxruntime is installed.
    Otherwise the weights in `model.safetensors` are loaded. A folder with a `tokenizer.json` is that of a sentence
    model as sentence-transformers keeps it, or of an encoder that was learned on one; it takes texts, and needs the
    extra `text`.

    Args:
        folder: a name; or the folder that an encoder's `save` or `HashEncoder.export_onnx` wrote to; or the ONNX file
            itself; or the folder of a sentence model.

    Raises:
        FileError: the folder holds no encoder.
        CorruptFileError: the file is damaged.
        UnsupportedFileError: a later version wrote the file.
        MissingExtraError: a package that the file needs is not installed.
        InputError: the encoder was built on a network of your own: load it by `HashEncoder.load(network=...)`.

    Example:
        Open the small encoder that the package brings for its demonstration:

        >>> from pathlib import Path
        >>> import hamtarget
        >>> encoder = open_encoder(Path(hamtarget.__file__).parent / "serve" / "demo_encoder")
        >>> encoder.n_bits, encoder.input_shape
        (64, (28, 28))

        Open a classic hash, which needs no files:

        >>> open_encoder("phash")
        PHash(n_bits=64) [inputs (32, 32)]
    """
    if isinstance(folder, str) and folder in PICTURE_HASHES:
        return PICTURE_HASHES[folder]()
    if isinstance(folder, str) and folder in TEXT_HASHES:
        return TEXT_HASHES[folder]()
    if isinstance(folder, str) and folder in shipped_names():
        folder = shipped_path(folder)
    folder = Path(folder)
    if (folder / TOKENIZER_NAME).is_file() or is_sentence_model(folder):
        from hamtarget.encoders.sentence.text_encoder import TextEncoder

        opened: Encoder = (
            TextEncoder.from_sentence_model(folder) if is_sentence_model(folder) else TextEncoder.open(folder)
        )
        return opened
    export = folder if folder.suffix == ".onnx" else folder / ONNX_NAME
    weights = folder / _WEIGHTS_NAME
    if export.is_file() and (_installed("onnxruntime") or not weights.is_file()):
        from hamtarget.encoders.onnx_encoder import OnnxEncoder

        return OnnxEncoder(export)
    if not weights.is_file():
        for name, opener in _OPENERS.items():
            if (folder / name).is_file():
                return opener(folder / name)
        found = "has no encoder" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
        raise FileError(
            f"{folder} {found}; expected a trained encoder: a folder with {ONNX_NAME} or {_WEIGHTS_NAME}; or a name: "
            f"{', '.join(encoder_names())}; an encoder of your own is opened after register_encoder"
        )
    if not _installed("torch"):
        raise MissingExtraError(
            f"{weights} needs torch: pip install 'hamtarget[learn]'; or export it where torch is installed "
            "(HashEncoder.export_onnx) and pip install 'hamtarget[onnx]' here"
        )
    from hamtarget.learn import HashEncoder

    return HashEncoder.load(folder)


def encoder_names() -> list[str]:
    """Return the names that `open_encoder` knows."""
    return [*PICTURE_HASHES, *shipped_names(), *TEXT_HASHES]


def usable_encoder_names() -> list[str]:
    """Return the names that `open_encoder` can open with the packages that are installed."""
    return encoder_names() if _installed("onnxruntime") else [*PICTURE_HASHES, *TEXT_HASHES]


def _installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ValueError:
        # A package that a test or a program has blocked has no spec.
        return False


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
    if format != LINEAR_FORMAT or not isinstance(method, str) or method not in _LINEAR_METHODS:
        raise UnsupportedFileError(
            f"{path}: format {str(format)[:40]}, method {str(method)[:40]!r}; this version knows format "
            f"{LINEAR_FORMAT} and {', '.join(_LINEAR_METHODS)}: upgrade hamtarget"
        )
    try:
        encoder = _LINEAR_METHODS[method](**found.get("options", {}))
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
        if path.stat().st_size > _MAX_LINEAR_BYTES:
            raise CorruptFileError(
                f"{path} has {path.stat().st_size:,} bytes; expected a saved encoder, of at most {_MAX_LINEAR_BYTES:,}"
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


# What opens the encoder in a folder that has a file of this name.
_OPENERS: dict[str, Callable[[Path], Encoder]] = {
    HASH_FILE_NAME: open_hash_file,
    TEXT_HASH_FILE_NAME: open_hash_file,
    LINEAR_FILE_NAME: open_linear_file,
}
_OWN_NAMES = frozenset({*_OPENERS, _WEIGHTS_NAME, ONNX_NAME, TOKENIZER_NAME})
