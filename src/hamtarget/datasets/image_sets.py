"""Sets of images with labels: a folder for each class, a CSV of paths and labels, or JPEGs packed in one file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.datasets.images import IMAGE_SUFFIXES, DecodedImages, decode_images
from hamtarget.datasets.vector_files import read_arrays
from hamtarget.errors import CorruptFileError, FileError, InputError, ShapeError
from hamtarget.progress import Progress

if TYPE_CHECKING:
    from hamtarget.datasets.images import ImageSource

# How many of what is missing an error names.
_NAMED = 10


class PackedImages(Sequence[bytes]):
    """Encoded images, one after the other in one array: image k is `data[offsets[k]:offsets[k + 1]]`.

    Only what is asked for is cut out. `take` shares the array.

    Args:
        data: uint8, the files' bytes.
        offsets: (images + 1,) integers: 0 first, the length of `data` last, each larger than the one before.

    Raises:
        CorruptFileError: the offsets do not divide `data` into images.
    """

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[Any]) -> None:
        if data.ndim != 1 or data.dtype != np.uint8:
            raise CorruptFileError(f"packed images are {data.dtype} of shape {data.shape}; expected uint8, (bytes,)")
        if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or len(offsets) < 1:
            raise CorruptFileError(
                f"offsets are {offsets.dtype} of shape {offsets.shape}; expected integers, (images + 1,)"
            )
        ends = offsets.astype(np.int64)
        if ends[0] != 0 or ends[-1] != len(data):
            raise CorruptFileError(
                f"offsets go from {ends[0]:,} to {ends[-1]:,}; expected 0 to {len(data):,}, the bytes that there are"
            )
        wrong = np.flatnonzero(np.diff(ends) <= 0)
        if len(wrong):
            raise CorruptFileError(f"image {wrong[0]:,} has no bytes by its offsets; expected them to increase")
        self._data = data
        self._starts = ends[:-1]
        self._ends = ends[1:]

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, row: int) -> bytes: ...

    @overload
    def __getitem__(self, row: slice) -> PackedImages: ...

    def __getitem__(self, row: int | slice) -> bytes | PackedImages:
        if isinstance(row, slice):
            return self.take(np.arange(len(self))[row])
        return self._data[self._starts[row] : self._ends[row]].tobytes()

    def take(self, rows: NDArray[Any]) -> PackedImages:
        """The images of some rows, without a copy of their bytes."""
        taken = object.__new__(PackedImages)
        taken._data, taken._starts, taken._ends = self._data, self._starts[rows], self._ends[rows]
        return taken


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images not yet decoded, and what they show.

    Attributes:
        sources: paths, the bytes of files, or `PackedImages`.
        labels: (rows,) number of the class, or (rows, classes) of 0 and 1 where an image shows several; None: unknown.
        class_names: name of each class; may be empty.
    """

    sources: Sequence[ImageSource]
    labels: NDArray[Any] | None = None
    class_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.labels is None:
            return
        if self.labels.ndim not in (1, 2) or len(self.labels) != len(self.sources):
            raise ShapeError(
                f"labels have shape {self.labels.shape}; expected ({len(self.sources)},) or "
                f"({len(self.sources)}, classes), one row for each image"
            )
        n_names = len(self.class_names)
        n_classes = self.labels.shape[1] if self.labels.ndim == 2 else int(self.labels.max(initial=-1)) + 1
        if self.labels.ndim == 1 and int(self.labels.min(initial=0)) < 0:
            raise InputError(f"labels hold {int(self.labels.min())}; expected class numbers from 0 on")
        if n_names and n_classes > n_names:
            raise InputError(f"labels speak of {n_classes} classes; class_names has {n_names}: expected all of them")

    def __len__(self) -> int:
        return len(self.sources)

    def take(self, rows: ArrayLike) -> ImageSet:
        """The images of some rows, in that order.

        Args:
            rows: row numbers, or True and False for each image.

        Raises:
            InputError: there is no such row.
        """
        # An empty list would be one of floats.
        wanted = np.asarray(rows) if np.size(rows) else np.zeros(0, dtype=np.int64)
        try:
            chosen = np.arange(len(self))[wanted]
        except IndexError as error:
            raise InputError(f"rows do not fit a set of {len(self):,} images: {error}") from error
        sources: Sequence[ImageSource]
        if isinstance(self.sources, PackedImages):
            sources = self.sources.take(chosen)
        else:
            sources = [self.sources[row] for row in chosen]
        return ImageSet(sources, None if self.labels is None else self.labels[chosen], self.class_names)

    def decode(self, shape: Sequence[int], *, workers: int = 0, progress: Progress | None = None) -> DecodedImages:
        """The images as one uint8 array; what cannot be read is left out and named in `broken`, see `decode_images`.

        Labels of the images that are left: `labels[decoded.rows]`.
        """
        return decode_images(self.sources, shape, workers=workers, progress=progress)

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> Self:
        """The images of a folder that has a folder for each class; classes are numbered in the order of their names.

        Images are found by their endings, at any depth below a class.

        Raises:
            FileError: there is no such folder, or no class in it, or a class without an image.
        """
        folder = _existing_folder(folder)
        names = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))
        if not names:
            raise FileError(f"{folder} holds no folders; expected one for each class, with its images")
        files = [image_files(folder / name) for name in names]
        empty = [name for name, found in zip(names, files, strict=True) if not found]
        if empty:
            raise FileError(
                f"{folder}: no image in {listed(empty)}; expected files that end in {', '.join(IMAGE_SUFFIXES)}: "
                "remove empty classes"
            )
        labels = np.repeat(np.arange(len(names)), [len(found) for found in files])
        return cls([file for found in files for file in found], labels, tuple(names))

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Self:
        """The images of a CSV with lines `path,label`, or `path,label;label` where an image shows several things.

        Paths are relative to the CSV's own folder. A first line `path,label` is a heading. Labels are names, numbered
        in their sorted order. If any image has not exactly one, `labels` is a matrix of 0 and 1, else a vector.

        Raises:
            FileError: the CSV or an image of it is not there; names the first.
            CorruptFileError: a line is not of this form; says which.
        """
        path = Path(path)
        files, found = _csv_lines(path)
        check_present(files, where=str(path))
        names = sorted({name for several in found for name in several})
        number = {name: index for index, name in enumerate(names)}
        if all(len(several) == 1 for several in found):
            labels = np.array([number[name] for (name,) in found], dtype=np.int64)
        else:
            labels = np.zeros((len(files), len(names)), dtype=np.uint8)
            for row, several in enumerate(found):
                labels[row, [number[name] for name in several]] = 1
        return cls(files, labels, tuple(names))

    @classmethod
    def from_packed(cls, path: str | os.PathLike[str], *, class_names: Iterable[str] = ()) -> Self:
        """The images of an npz with the arrays `jpegs`, `offsets` (see `PackedImages`) and `labels`.

        Raises:
            FileError: there is no such file or array.
            CorruptFileError: the file is damaged, or its arrays do not fit each other.
        """
        path = Path(path)
        arrays = read_arrays(path, ["jpegs", "offsets", "labels"])
        try:
            sources = PackedImages(arrays["jpegs"](), arrays["offsets"]())
            return cls(sources, arrays["labels"](), tuple(class_names))
        except (CorruptFileError, InputError) as error:
            raise CorruptFileError(f"{path}: {error}") from error


def image_files(folder: str | os.PathLike[str]) -> list[Path]:
    """Every image in a folder and the folders below it, by their endings, in the order of their paths; none hidden.

    Raises:
        FileError: there is no such folder.
    """
    found = []
    for parent, folders, files in os.walk(_existing_folder(folder)):
        # Changed in place, this says where to go on.
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        images = (name for name in files if name.lower().endswith(IMAGE_SUFFIXES) and not name.startswith("."))
        found += [Path(parent, name) for name in images]
    return sorted(found)


def check_present(files: Sequence[str | os.PathLike[str]], *, where: str) -> None:
    """Nothing, if all the files are there.

    Raises:
        FileError: some are not; names the first ten and says how many.
    """
    missing = [os.fspath(file) for file in files if not os.path.isfile(file)]
    if missing:
        raise FileError(f"{where}: {len(missing):,} of {len(files):,} images are not there: {listed(missing)}")


def listed(names: Sequence[str]) -> str:
    """The first ten names, and how many more there are."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _existing_folder(folder: str | os.PathLike[str]) -> Path:
    folder = Path(folder)
    if not folder.is_dir():
        raise FileError(f"{folder} is {'a file' if folder.exists() else 'not there'}; expected a folder of images")
    return folder


def _csv_lines(path: Path) -> tuple[list[Path], list[list[str]]]:
    """Path and labels of each line of a CSV."""
    files: list[Path] = []
    labels: list[list[str]] = []
    try:
        # Spreadsheets begin a file with a byte order mark, which utf-8-sig leaves out.
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream)
            for fields in reader:
                if not fields or (reader.line_num == 1 and fields[0].strip().lower() == "path"):
                    continue
                names = [name.strip() for name in fields[1].split(";")] if len(fields) == 2 else []
                if len(fields) != 2 or not fields[0].strip() or ("" in names and len(names) > 1):
                    raise CorruptFileError(
                        f"{path}, line {reader.line_num}: {','.join(fields)!r}; expected path,label or path,label;label"
                    )
                files.append(path.parent / fields[0].strip())
                labels.append(list(filter(None, names)))
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} is no CSV in UTF-8: {error}; expected lines path,label") from error
    if not files:
        raise CorruptFileError(f"{path} holds no line; expected path,label or path,label;label")
    return files, labels
