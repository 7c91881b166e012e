"""Tensors and a JSON description in one safetensors file, with a checksum, written atomically.

A file of weights runs no code when it is read, unlike one of pickled objects.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hamtarget._files import write_atomically
from hamtarget._reading import parse_json, reason_of
from hamtarget.errors import CorruptFileError, FileError, UnsupportedFileError

# By kind of file.
_FORMATS = {"model": "2", "checkpoint": "1"}


class TensorFile(NamedTuple):
    """Content of a file of tensors."""

    tensors: dict[str, Tensor]
    description: dict[str, Any]


def write_tensors(path: str | Path, tensors: dict[str, Tensor], description: dict[str, Any], *, kind: str) -> None:
    """Write tensors and their description to `path`. An older file stays until the new one is complete.

    Args:
        path: file to write.
        tensors: tensors by name.
        description: anything that JSON can hold.
        kind: kind of the file, checked when it is read: "model" or "checkpoint".
    """
    still = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(description, sort_keys=True)
    metadata = {
        "hamtarget": kind,
        "format": _FORMATS[kind],
        "description": text,
        "sha256": _checksum(still, text),
    }
    write_atomically(path, safetensors.torch.save(still, metadata))


def read_tensors(path: str | Path, *, kind: str) -> TensorFile:
    """Return the content of a file that `write_tensors` wrote.

    Raises:
        FileError: there is no such file, or it cannot be read.
        CorruptFileError: it is truncated or altered, or was not written by hamtarget.
        UnsupportedFileError: it is of another format or kind.
    """
    path = Path(path)
    if not path.is_file():
        raise FileError(f"{path}: no such file; expected a hamtarget {kind} (model.safetensors)")
    try:
        with path.open("rb"):
            pass
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}") from error
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, RuntimeError) as error:
        raise CorruptFileError(
            f"{path}: not a whole safetensors file ({error}); restore it or save it again"
        ) from error
    if "hamtarget" not in metadata:
        raise CorruptFileError(f"{path}: a safetensors file, but not one of hamtarget's; expected a {kind}")
    if metadata["hamtarget"] != kind:
        raise UnsupportedFileError(f"{path}: holds a {metadata['hamtarget']}; expected a {kind}")
    if metadata.get("format") != _FORMATS[kind]:
        raise UnsupportedFileError(
            f"{path}: format {str(metadata.get('format'))[:40]}; this hamtarget reads format {_FORMATS[kind]}: install "
            "the hamtarget that wrote it"
        )
    text = metadata.get("description", "")
    if _checksum(tensors, text) != metadata.get("sha256"):
        raise CorruptFileError(f"{path}: the checksum does not match its content; restore it or save it again")
    description = parse_json(text, where=f"{path}: the description")
    if not isinstance(description, dict):
        raise CorruptFileError(f"{path}: the description is no object; restore it or save it again")
    return TensorFile(tensors, description)


def _checksum(tensors: dict[str, Tensor], description: str) -> str:
    digest = hashlib.sha256(description.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
