"""Tensors and a JSON description in one safetensors file, with a checksum, written atomically.

A file of weights runs no code when it is read, unlike one of pickled objects.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from hamtarget._files import write_atomically
from hamtarget.errors import CorruptFileError, FileError, UnsupportedFileError

FORMAT = 1


def write_tensors(path: str | Path, tensors: dict[str, Tensor], description: dict[str, Any], *, kind: str) -> None:
    """Write tensors and their description to `path`; an older file stays whole until the new one is.

    Args:
        path: where to.
        tensors: by name.
        description: anything JSON can hold.
        kind: what the file is, checked when it is read: "model", "checkpoint".
    """
    still = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(description, sort_keys=True)
    metadata = {
        "hamtarget": kind,
        "format": str(FORMAT),
        "description": text,
        "sha256": _checksum(still, text),
    }
    write_atomically(path, safetensors.torch.save(still, metadata))


def read_tensors(path: str | Path, *, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors by name, description) of a file that `write_tensors` wrote.

    Raises:
        FileError: there is no such file, or it cannot be read.
        CorruptFileError: it is truncated, altered, or no such file at all.
        UnsupportedFileError: a later version wrote it, or it is of another kind.
    """
    path = Path(path)
    if not path.is_file():
        raise FileError(f"{path}: no such file; expected a hamtarget {kind} (model.safetensors)")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
    except (SafetensorError, OSError, ValueError) as error:
        raise CorruptFileError(
            f"{path}: not a whole safetensors file ({error}); restore it or save it again"
        ) from error
    if "hamtarget" not in metadata:
        raise CorruptFileError(f"{path}: a safetensors file, but not one of hamtarget's; expected a {kind}")
    if metadata["hamtarget"] != kind:
        raise UnsupportedFileError(f"{path}: holds a {metadata['hamtarget']}; expected a {kind}")
    if metadata.get("format") != str(FORMAT):
        raise UnsupportedFileError(
            f"{path}: format {metadata.get('format')}; this version reads format {FORMAT}: upgrade hamtarget"
        )
    text = metadata.get("description", "")
    if _checksum(tensors, text) != metadata.get("sha256"):
        raise CorruptFileError(f"{path}: the checksum does not match its content; restore it or save it again")
    description: dict[str, Any] = json.loads(text)
    return tensors, description


def _checksum(tensors: dict[str, Tensor], description: str) -> str:
    digest = hashlib.sha256(description.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
