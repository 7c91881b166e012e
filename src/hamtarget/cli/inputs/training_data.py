"""Inputs to learn from or to evaluate with: images of a folder or a CSV, or vectors of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import note
from hamtarget.errors import FileError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hamtarget.datasets import ImageSet


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Inputs to learn from, their labels if there are any, and a description for people."""

    inputs: NDArray[Any]
    labels: NDArray[Any] | None
    description: str


def read_training_data(
    source: Path, *, shape: tuple[int, ...], key: str | None, sample: int | None, seed: int, workers: int
) -> TrainingData:
    """Return the inputs to learn from, or to evaluate with.

    Args:
        source: folder of class folders, CSV, or file of vectors.
        shape: shape of an image.
        key: name of the array in a file of vectors.
        sample: largest number of vectors, drawn at random. None: all.
        seed: seed of that draw.
        workers: number of processes that read images.

    Raises:
        FileError: the source cannot be read, or fewer than two of its images can.
        InputError: there is not one label for each vector.
    """
    if holds_pictures(source):
        return _read_images(source, shape, workers)
    return _read_vectors(source, key=key, sample=sample, seed=seed)


def holds_pictures(source: Path) -> bool:
    """Return True if an input is a folder or a CSV of images."""
    return source.is_dir() or source.suffix.lower() == ".csv"


def _read_images(source: Path, shape: tuple[int, ...], workers: int) -> TrainingData:
    images = image_set(source)
    with progress_on_stderr("Reading images") as tell:
        decoded = images.decode(shape, workers=workers, progress=tell)
    for row, reason in decoded.broken.items():
        note(f"hamtarget: left out image {row:,}: {reason}")
    if len(decoded.rows) < 2:
        raise FileError(f"{source}: {len(decoded.rows)} images could be read; learning needs at least 2")
    labels = images.labels
    description = counted(len(decoded.rows), images)
    return TrainingData(decoded.images, None if labels is None else labels[decoded.rows], description)


def image_set(source: Path) -> ImageSet:
    """Return the images of a folder or a CSV, with notes on classes that bring nothing."""
    import numpy as np

    from hamtarget.datasets import ImageSet
    from hamtarget.datasets.pictures.image_sets import listed

    if not source.is_dir():
        return ImageSet.from_csv(source)
    images = ImageSet.from_folder(source)
    if images.labels is None:
        return images
    names = images.class_names
    empty = sorted(entry.name for entry in source.iterdir() if entry.is_dir() and entry.name not in names)
    empty = [name for name in empty if not name.startswith(".")]
    if empty:
        note(f"hamtarget: left out as classes, because they hold no image: {listed(empty)}")
    single = [names[number] for number in np.flatnonzero(np.bincount(images.labels) == 1)]
    if single:
        note(f"hamtarget: one image only, which has no similar one, in {listed(single)}")
    beside = sorted(entry.name for entry in source.iterdir() if entry.is_file() and _is_image(entry))
    if beside:
        note(f"hamtarget: left out, since images beside the folders are of no class: {listed(beside)}")
    return images


def _is_image(path: Path) -> bool:
    """Return True if a file is listed as an image, by its name."""
    from hamtarget.datasets.pictures.picture_formats import IMAGE_SUFFIXES

    return not path.name.startswith(".") and path.suffix.lower() in IMAGE_SUFFIXES


def counted(n_images: int, images: ImageSet) -> str:
    """Return the number of images, and of their classes if they have any, for people."""
    return f"{n_images:,} images" + (f" of {len(images.class_names):,} classes" if images.labels is not None else "")


def _read_vectors(source: Path, *, key: str | None, sample: int | None, seed: int) -> TrainingData:
    import numpy as np

    from hamtarget.datasets import open_vectors
    from hamtarget.datasets.vector_files import read_arrays, vector_format

    vectors = open_vectors(source, key=key)
    labels = None
    if vector_format(source) in (".npz", ".hdf5"):
        arrays = read_arrays(source)
        if "labels" in arrays and key != "labels":
            labels = arrays["labels"]()
            if len(labels) != len(vectors):
                raise InputError(f"{source} has {len(labels):,} labels for {len(vectors):,} vectors; expected as many")
    description = f"{len(vectors):,} vectors"
    if sample is not None and len(vectors) > sample:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:sample])
        vectors, labels = vectors[chosen], None if labels is None else labels[chosen]
        description = f"{sample:,} of {description}"
    return TrainingData(vectors, labels, description)
