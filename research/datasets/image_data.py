"""Images to measure hashing with: a part to learn from, a part to search in, and queries."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hamtarget.datasets.pictures.image_sets import ImageSet
from hamtarget.errors import CorruptFileError, FileError
from research.datasets.imagenet100 import is_imagenet, open_imagenet100

# Rows of a packed set's database to learn from; the others are never seen in training.
TRAIN_ROWS = 10_000


@dataclass(frozen=True, eq=False)
class ImageData:
    """Labelled images in three parts.

    Attributes:
        train: the images that methods learn from; all of them are also in `database`.
        database: the images that are searched.
        queries: the images to search with; none of them is in `database`.
        name: name of the set.
    """

    train: ImageSet
    database: ImageSet
    queries: ImageSet
    name: str


def open_image_data(folder: str | os.PathLike[str]) -> ImageData:
    """Open a packed set, or ImageNet-100 in a copy of ImageNet.

    A packed set is a folder with `database.npz`, `query.npz` (see `ImageSet.from_packed`) and `classes.json`, a list
    of classes, each with its `wnid`. The first 10,000 rows of its database are to learn from. `open_imagenet100`
    says which copies of ImageNet can be read.

    Raises:
        FileError: the folder is neither, or a photo is missing.
        CorruptFileError: a file is damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise FileError(f"{folder} {found}; expected a folder of images")
    if (folder / "database.npz").is_file():
        return _open_packed(folder)
    if is_imagenet(folder):
        parts = open_imagenet100(folder)
        return ImageData(parts["train"], parts["database"], parts["test"], "imagenet100")
    raise FileError(
        f"{folder} holds neither database.npz nor a folder train; expected packed images (database.npz, query.npz, "
        "classes.json) or a copy of ImageNet (train/n01440764/*.JPEG, val/*.JPEG)"
    )


def _open_packed(folder: Path) -> ImageData:
    names = _class_names(folder / "classes.json")
    database = ImageSet.from_packed(folder / "database.npz", class_names=names)
    queries = ImageSet.from_packed(folder / "query.npz", class_names=names)
    if len(database) < TRAIN_ROWS:
        raise FileError(
            f"{folder / 'database.npz'} holds {len(database):,} images; expected at least {TRAIN_ROWS:,}, "
            "those to learn from"
        )
    return ImageData(database.take(np.arange(TRAIN_ROWS)), database, queries, folder.resolve().name)


def _class_names(path: Path) -> tuple[str, ...]:
    try:
        return tuple(str(entry["wnid"]) for entry in json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptFileError(f"{path} is not a list of classes, each with its wnid: {error!r}") from error
