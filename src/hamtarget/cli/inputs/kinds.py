"""Kinds of things that a path can name, and index files of either kind."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hamtarget.errors import FileError, UnsupportedFileError

if TYPE_CHECKING:
    from hamtarget.search import FlatIndex, MultiIndex

Kind = Literal["store", "model", "index", "neighbors", "images", "vectors"]

_OF_MODELS = (
    "model.onnx",
    "model.safetensors",
    "picture_hash.json",
    "text_hash.json",
    "tokenizer.json",
    "linear_encoder.bin",
)


def kind_of(place: str) -> Kind:
    """Return the kind of what is at a path or address.

    Raises:
        FileError: there is nothing, or nothing that hamtarget knows.
    """
    from hamtarget.encoders.opening import encoder_names
    from hamtarget.store.postgres.address import is_address

    if is_address(place):
        return "store"
    if place in encoder_names():
        return "model"
    path = Path(place)
    if path.is_dir():
        if (path / "store.db").exists():
            return "store"
        if any((path / name).exists() for name in _OF_MODELS):
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
    if suffix == ".neighbors":
        return "neighbors"
    return "images" if suffix == ".csv" else "vectors"


def open_index(path: Path, *, mmap: bool = True) -> MultiIndex | FlatIndex:
    """Open the index in a file.

    Raises:
        CorruptFileError: it is damaged.
        UnsupportedFileError: a later version wrote it.
    """
    from hamtarget.search import FlatIndex, MultiIndex

    try:
        return MultiIndex.open(path, mmap=mmap)
    except UnsupportedFileError as error:
        if "FlatIndex" not in str(error):
            raise
    return FlatIndex.open(path, mmap=mmap)
