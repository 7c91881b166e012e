"""`hamtarget info`: shows what is at a path, or what is installed."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import hamtarget
from hamtarget.cli.inputs.kinds import kind_of
from hamtarget.cli.inputs.stores import open_store, shown_place
from hamtarget.cli.terminal.arguments import AsJson
from hamtarget.cli.terminal.output import Column, printable, write_json, write_table
from hamtarget.errors import MissingExtraError

if TYPE_CHECKING:
    from hamtarget.store.vectors.tuning import Point

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


def info(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PATH",
            help="Store (folder or postgresql://...), model (folder, file or name), index, vectors or images.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is in a store, a model, an index file, a file of vectors or a folder of images.

    Without a path, show which version this is, what is installed, and how to install what is not.
    """
    facts = installed() if path is None else {"path": shown_place(path), **_KINDS[kind_of(path)](path)}
    if as_json:
        write_json(facts)
    else:
        write_table((Column("what"), Column("value")), [(name, _text(value)) for name, value in facts.items()])


def _store(place: str) -> dict[str, Any]:
    with open_store(place) as store:
        stats = store.stats()
        return {
            "kind": "store",
            "items": stats.items,
            **({} if stats.codes == stats.items else {"codes": stats.codes}),
            "n_bits": stats.n_bits,
            "radius": stats.radius,
            "changes": stats.sequence,
            "index_bytes": stats.index_bytes,
            "disk_bytes": stats.disk_bytes,
            "encoder": repr(store.encoder) if store.has_encoder else None,
            "vectors": store.vectors,
            **{
                f"tuned for {k}, recall {point.recall:.3f}": _setting(point)
                for k, tuning in store.tunings.items()
                for point in tuning.points
            },
        }


def _setting(point: Point) -> str:
    """Return a setting of a search, and its time, in words."""
    return f"budget {point.budget:,}, comparisons {point.comparisons:,}, {point.microseconds:.0f} us a query"


def _model(place: str) -> dict[str, Any]:
    from hamtarget._picture_form import form_of
    from hamtarget.encoders import open_encoder
    from hamtarget.encoders.texts.text_inputs import takes_texts

    encoder = open_encoder(place)
    takes_pictures = not takes_texts(encoder) and len(encoder.input_shape) > 1
    return {
        "kind": "model",
        "n_bits": encoder.n_bits,
        "radius": encoder.radius,
        "input_shape": list(encoder.input_shape),
        "pictures": form_of(encoder).fit if takes_pictures else None,
        "runs_by": {"HashEncoder": "torch", "OnnxEncoder": "onnxruntime", "TextEncoder": "onnxruntime"}.get(
            type(encoder).__name__, "numpy"
        ),
    }


def _index(place: str) -> dict[str, Any]:
    from hamtarget.cli.inputs.kinds import open_index

    index = open_index(Path(place))
    return {
        "kind": type(index).__name__,
        "items": len(index),
        "n_bits": index.n_bits,
        "radius": index.radius,
        "embeddings": None if index.embeddings is None else vars(index.embeddings),
        "index_bytes": index.memory,
    }


def _neighbors(place: str) -> dict[str, Any]:
    from hamtarget.search import NeighborIndex

    explanation = NeighborIndex.open(place).explain()
    return {
        "kind": "NeighborIndex",
        "rows": explanation.n_rows,
        "columns": explanation.n_dims,
        "metric": explanation.metric,
        **{
            f"tuned for {k}": f"budget {setting.budget:,}, comparisons {setting.comparisons:,}"
            for k, setting in explanation.settings.items()
        },
    }


def _images(place: str) -> dict[str, Any]:
    from hamtarget.datasets.pictures.image_sets import ImageSet, image_files
    from hamtarget.errors import FileError

    path = Path(place)
    try:
        images = ImageSet.from_csv(path) if path.is_file() else ImageSet.from_folder(path)
    except FileError:
        if path.is_file():
            raise
        # A folder without images.
        return {"kind": "images", "images": len(image_files(path))}
    if images.labels is None:
        return {"kind": "images", "images": len(images)}
    return {"kind": "images", "images": len(images), "classes": list(images.class_names)}


def _vectors(place: str) -> dict[str, Any]:
    from hamtarget.datasets import open_vectors

    vectors = open_vectors(Path(place))
    return {"kind": "vectors", "rows": len(vectors), "columns": vectors.shape[1], "elements": str(vectors.dtype)}


def _text(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return (
        "none" if value is None else ", ".join(map(printable, value)) if isinstance(value, list) else printable(value)
    )


_KINDS = {
    "store": _store,
    "model": _model,
    "index": _index,
    "neighbors": _neighbors,
    "images": _images,
    "vectors": _vectors,
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
