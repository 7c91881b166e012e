"""What a path is, by what is there."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from hamtarget.errors import FileError

Kind = Literal["store", "model", "index", "images", "vectors"]


def kind_of(path: Path) -> Kind:
    """What there is at `path`.

    Raises:
        FileError: nothing, or nothing that hamtarget knows.
    """
    if path.is_dir():
        if (path / "store.db").exists():
            return "store"
        if (path / "model.onnx").exists() or (path / "model.safetensors").exists():
            return "model"
        if any(path.iterdir()):
            return "images"
        raise FileError(f"{path} is an empty folder; expected a store, a model, or images")
    if not path.exists():
        raise FileError(f"{path} is not there; expected a store, a model, an index file, vectors or images")
    suffix = path.suffix.lower()
    if suffix == ".onnx":
        return "model"
    if suffix == ".ham":
        return "index"
    return "images" if suffix == ".csv" else "vectors"
