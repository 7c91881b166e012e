"""Installed parts: packages of the extras, picture formats, kernels of the CPU."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import hamtarget
from hamtarget.errors import MissingExtraError

# A package of each extra.
_EXTRAS = {
    "cli": "typer",
    "learn": "torch",
    "vision": "Pillow",
    "heic": "pillow-heif",
    "onnx": "onnxruntime",
    "text": "tokenizers",
    "serve": "fastapi",
    "postgres": "psycopg",
    "hdf5": "h5py",
    "plot": "matplotlib",
    "sklearn": "scikit-learn",
    "backbones": "timm",
    "spark": "pyspark",
    "threatexchange": "threatexchange",
}


def installed() -> dict[str, Any]:
    """Return what is installed by name; in the place of what is not, how to install it."""
    from hamtarget.store.sqlite.tables.database import sqlite_in_words

    facts: dict[str, Any] = {
        "hamtarget": hamtarget.__version__,
        "python": platform.python_version(),
        "sqlite": sqlite_in_words(),
        "numpy": metadata.version("numpy"),
        "kernels": _kernels(),
    }
    for extra, package in _EXTRAS.items():
        facts[package] = _version(package) or f"not installed: pip install 'hamtarget[{extra}]'"
    return facts | _formats() | _hashes()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _kernels() -> list[str] | str:
    """Return the kernels that this CPU can run, the one in use first."""
    from hamtarget._core import _native

    try:
        return _native.kernels()
    except MissingExtraError as error:
        return str(error)


def _formats() -> dict[str, Any]:
    from hamtarget.datasets.pictures.picture_formats import codecs

    try:
        found = codecs()
    except MissingExtraError:
        return {}
    return {codec.format: "can be read" if codec.is_usable else f"cannot be read: {codec.remedy}" for codec in found}


def _hashes() -> dict[str, Any]:
    from hamtarget.encoders.hash_files import TEXT_HASHES
    from hamtarget.encoders.opening import usable_encoder_names

    usable = usable_encoder_names()
    return {
        "picture hashes": [name for name in usable if name not in TEXT_HASHES],
        "text hashes": [name for name in usable if name in TEXT_HASHES],
    }
