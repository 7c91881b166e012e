"""ImageNet-100: the split of HashNet (Cao et al., 2017), over the user's own copy of ImageNet (ILSVRC 2012).

It has 100 classes: 128,503 photos of ILSVRC's training set to search in, 13,000 of them to learn from, and the 5,000
validation photos of these classes as queries. The lists are part of this package; the photos are not.
"""

from __future__ import annotations

import importlib.resources
import lzma
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hamtarget.datasets.pictures.image_sets import ImageSet, listed
from hamtarget.errors import FileError

# Where copies of ImageNet keep their photos, below the folder that is given.
_ROOTS = (".", "Data/CLS-LOC", "ILSVRC/Data/CLS-LOC")
_TRAIN_FOLDERS = ("train", "ILSVRC2012_img_train")
_VALIDATION_FOLDERS = ("val", "validation", "ILSVRC2012_img_val")


@dataclass(frozen=True, eq=False)
class PhotoList:
    """Photos of a part of the split.

    Attributes:
        stems: name of each file, without its ending.
        labels: (photos,) number of the class.
    """

    stems: tuple[str, ...]
    labels: NDArray[np.int64]


@cache
def photo_list(part: str) -> PhotoList:
    """Return the photos of "database", "train" or "test", in the order of HashNet's lists."""
    file = importlib.resources.files("research.datasets") / "imagenet100_lists" / f"{part}.txt.xz"
    lines = lzma.decompress(file.read_bytes()).decode().splitlines()
    pairs = [line.split() for line in lines]
    return PhotoList(
        tuple(os.path.splitext(name)[0] for name, _ in pairs), np.array([int(label) for _, label in pairs])
    )


@cache
def class_ids() -> tuple[str, ...]:
    """Return the WordNet id of each class, by its number. Photos of ILSVRC's training set are named by it."""
    database = photo_list("database")
    rows = np.unique(database.labels, return_index=True)[1]
    return tuple(database.stems[row].partition("_")[0] for row in rows)


def is_imagenet(folder: str | os.PathLike[str]) -> bool:
    """Return True if a folder looks like a copy of ImageNet: it has a folder of training photos."""
    return _first_folder(Path(folder), _TRAIN_FOLDERS) is not None


def open_imagenet100(folder: str | os.PathLike[str]) -> dict[str, ImageSet]:
    """Return database, train and test of ImageNet-100 as images of the user's copy of ImageNet.

    Training photos are looked for in `train` (or `ILSVRC2012_img_train`), flat or in a folder for each class, and
    validation photos likewise in `val` (or `validation`, `ILSVRC2012_img_val`); directly in `folder` or in
    `ILSVRC/Data/CLS-LOC` below it. The ending does not matter: a copy may be resized to PNG.

    Raises:
        FileError: a folder or a photo is missing. The error names the first ten and says how many.
    """
    folder = Path(folder)
    train, validation = _first_folder(folder, _TRAIN_FOLDERS), _first_folder(folder, _VALIDATION_FOLDERS)
    for found, names in ((train, _TRAIN_FOLDERS), (validation, _VALIDATION_FOLDERS)):
        if found is None:
            raise FileError(
                f"{folder} holds none of the folders {', '.join(names)}; expected a copy of ImageNet (ILSVRC 2012), "
                "train/n01440764/*.JPEG and val/*.JPEG"
            )
    places = {"database": _photos(train), "test": _photos(validation)}
    places["train"] = places["database"]
    missing = [
        f"{'val' if part == 'test' else 'train'}/{stem}.JPEG"
        for part in ("database", "test")
        for stem in photo_list(part).stems
        if stem not in places[part]
    ]
    if missing:
        n_wanted = len(photo_list("database").stems) + len(photo_list("test").stems)
        raise FileError(
            f"{folder}: {len(missing):,} of the {n_wanted:,} photos of ImageNet-100 are missing: {listed(missing)}"
        )
    return {
        part: ImageSet([found[stem] for stem in photo_list(part).stems], photo_list(part).labels, class_ids())
        for part, found in places.items()
    }


def _first_folder(folder: Path, names: tuple[str, ...]) -> Path | None:
    candidates = (folder / root / name for root in _ROOTS for name in names)
    return next((candidate for candidate in candidates if candidate.is_dir()), None)


def _photos(folder: Path | None) -> dict[str, str]:
    """Return the path of each file in a folder and in its folders of the hundred classes, by its stem."""
    found: dict[str, str] = {}
    if folder is None:
        return found
    # Listing folders takes a second for all of ImageNet; asking for each file takes minutes on a network drive.
    for place in (folder, *(folder / wordnet_id for wordnet_id in class_ids())):
        if place.is_dir():
            with os.scandir(place) as entries:
                found |= {os.path.splitext(entry.name)[0]: entry.path for entry in entries}
    return found
