"""Make picture hashes of photos and of altered views of them: real codes, uneven and full of near copies.

    python -m research.datasets.picture_codes DATA/tiny-imagenet100 --out codes

Writes phash.npy and dhash.npy (64 bits), pdq.npy (256 bits), photos.npy (the number of the photo of each row) and
picture_codes.json. The first view of a photo is the photo itself; the others are altered in one to three ways that the
seed draws. Views of one photo follow each other.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from hamtarget._picture_form import form_of
from hamtarget.codes import Codes
from hamtarget.datasets import read_images
from hamtarget.datasets.pictures.image_sets import ImageSet, image_files
from hamtarget.datasets.reading_pool import results_in_order
from hamtarget.encoders import open_encoder
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import FileError, InputError
from hamtarget.evaluation.provenance import provenance, write_json
from research.datasets.altered_photos import Picture, drawn_view

Source = bytes | str | Path
HASHES = ("phash", "dhash", "pdq")
_PACKED = ("database.npz", "query.npz")
_PHOTOS_AT_A_TIME = 8
# Larger photos are made smaller first: altering all pixels of a camera takes long.
_LARGEST_SIDE = 400
_TOLD_TASKS = 200


class Task(NamedTuple):
    """Photos whose codes a worker process makes."""

    first: int
    sources: Sequence[Source]
    n_views: int
    seed: int


def picture_codes(
    sources: Sequence[Source], *, n_views: int, seed: int, workers: int
) -> tuple[dict[str, Codes], NDArray[np.int32]]:
    """Return the codes of every view of every photo, by hash, and the number of each row's photo."""
    parts: dict[str, list[Codes]] = {name: [] for name in HASHES}
    for done, codes in enumerate(results_in_order(_codes_of, _tasks(sources, n_views, seed), workers=workers), 1):
        for name, found in zip(HASHES, codes, strict=True):
            parts[name].append(found)
        if done % _TOLD_TASKS == 0:
            print(f"{done * _PHOTOS_AT_A_TIME:,} of {len(sources):,} photos", file=sys.stderr, flush=True)
    photos = np.repeat(np.arange(len(sources), dtype=np.int32), n_views)
    return {name: np.concatenate(found) for name, found in parts.items()}, photos


def _tasks(sources: Sequence[Source], n_views: int, seed: int) -> Iterator[Task]:
    for first in range(0, len(sources), _PHOTOS_AT_A_TIME):
        numbers = range(first, min(first + _PHOTOS_AT_A_TIME, len(sources)))
        yield Task(first, [sources[number] for number in numbers], n_views, seed)


def _codes_of(task: Task) -> list[Codes]:
    views = []
    for number, source in enumerate(task.sources, start=task.first):
        photo = _opened(source)
        random = np.random.default_rng((task.seed, number))
        views += [photo, *(drawn_view(photo, random) for _ in range(task.n_views - 1))]
    return [_encoder(name).encode(read_images(views, form_of(_encoder(name)))) for name in HASHES]


@cache
def _encoder(name: str) -> Encoder:
    return open_encoder(name)


def _opened(source: Source) -> Picture:
    with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as file:
        photo = file.convert("RGB")
    photo.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE), Image.Resampling.LANCZOS)
    return photo


def photos_of(folders: Sequence[Path]) -> list[Source]:
    """Return the photos of folders: packed ones (database.npz, query.npz), or image files at any depth.

    Raises:
        FileError: a folder has no photo.
    """
    found: list[Source] = []
    for folder in folders:
        packs = [folder / name for name in _PACKED if (folder / name).is_file()]
        here: list[Source] = []
        for pack in packs:
            here += [source for source in ImageSet.from_packed(pack).sources if isinstance(source, bytes)]
        here = here or list(image_files(folder))
        if not here:
            raise FileError(f"{folder} holds no photo; expected {' and '.join(_PACKED)}, or image files")
        found += here
    return found


def main() -> None:
    """Make the codes and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders with photos")
    parser.add_argument("--rows", type=int, default=1_050_000, help="least number of codes (default: %(default)s)")
    parser.add_argument("--photos", type=int, help="take only so many photos")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="processes (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    asked = parser.parse_args()
    if asked.rows < 1:
        raise InputError(f"--rows is {asked.rows}; expected at least 1")
    sources = photos_of(asked.folders)[: asked.photos]
    n_views = -(-asked.rows // len(sources))
    codes, photos = picture_codes(sources, n_views=n_views, seed=asked.seed, workers=asked.workers)
    asked.out.mkdir(parents=True, exist_ok=True)
    np.save(asked.out / "photos.npy", photos)
    for name, array in codes.items():
        np.save(asked.out / f"{name}.npy", array)
    distinct = {name: len(np.unique(array.view(f"V{array.shape[1]}"))) for name, array in codes.items()}
    facts = {"photos": len(sources), "views": n_views, "rows": len(photos), "distinct": distinct}
    write_json(asked.out / "picture_codes.json", {**facts, "provenance": provenance(seed=asked.seed)})
    print(facts)


if __name__ == "__main__":
    main()
