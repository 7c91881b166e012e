"""Sets of labelled images: from a folder for each class, a CSV of paths and labels, or JPEGs packed in one file."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._picture_form import PictureForm
from hamtarget._reading import lines_of, reason_of
from hamtarget.datasets.pictures.images import DecodedImages, decode_images
from hamtarget.datasets.pictures.picture_folders import list_pictures
from hamtarget.datasets.pictures.picture_formats import IMAGE_SUFFIXES
from hamtarget.datasets.vector_files import read_arrays
from hamtarget.errors import CorruptFileError, FileError, InputError, ShapeError
from hamtarget.progress import Progress

if TYPE_CHECKING:
    from hamtarget.datasets.pictures.images import ImageSource

# Missing files that an error names.
_NAMED = 10
# A path and its labels.
_MAX_CSV_LINE = 1 << 20


class PackedImages(Sequence[bytes]):
    """Encoded images, one after another in one array: image k is `data[offsets[k]:offsets[k + 1]]`.

    An image is copied out of the array only when it is asked for. `take` shares the array.

    Args:
        data: uint8, the bytes of the files.
        offsets: (images + 1,) integers that increase from 0 to the length of `data`.

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
                f"offsets go from {ends[0]:,} to {ends[-1]:,}; expected 0 to {len(data):,}, the number of bytes"
            )
        wrong = np.flatnonzero(np.diff(ends) <= 0)
        if len(wrong):
            raise CorruptFileError(f"offsets give image {wrong[0]:,} no bytes; expected them to increase")
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
        """Return the images of some rows, without copying their bytes."""
        taken = object.__new__(PackedImages)
        taken._data, taken._starts, taken._ends = self._data, self._starts[rows], self._ends[rows]
        return taken


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images that are not decoded yet, and their labels.

    Attributes:
        sources: paths, the bytes of files, or `PackedImages`.
        labels: (rows,) number of each image's class; or (rows, classes) of 0 and 1 if images show several classes; or
            None if unknown.
        class_names: name of each class; may be empty.

    Example:
        Read a folder that has a folder for each class:

        >>> from pathlib import Path
        >>> from PIL import Image
        >>> for name in ("cats", "dogs"):
        ...     Path("photos", name).mkdir(parents=True)
        ...     Image.new("RGB", (60, 40)).save(f"photos/{name}/1.png")
        >>> photos = ImageSet.from_folder("photos")
        >>> photos
        ImageSet(2 images, 2 classes)
        >>> decoded = photos.decode((3, 32, 32))
        >>> decoded.images.shape, photos.labels[decoded.rows].tolist()
        ((2, 3, 32, 32), [0, 1])
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
            raise InputError(f"labels hold {int(self.labels.min())}; expected class numbers of 0 or more")
        if n_names and n_classes > n_names:
            raise InputError(
                f"labels have {n_classes} classes, but class_names has {n_names}; expected a name for each class"
            )

    def __len__(self) -> int:
        return len(self.sources)

    def __repr__(self) -> str:
        packed = " [packed]" if isinstance(self.sources, PackedImages) else ""
        if self.labels is None:
            return f"ImageSet({len(self):,} images, no labels){packed}"
        several = ", several to an image" if self.labels.ndim == 2 else ""
        return f"ImageSet({len(self):,} images, {self._n_classes():,} classes{several}){packed}"

    def _n_classes(self) -> int:
        if self.class_names or self.labels is None:
            return len(self.class_names)
        return self.labels.shape[1] if self.labels.ndim == 2 else int(self.labels.max(initial=-1)) + 1

    def take(self, rows: ArrayLike) -> ImageSet:
        """Return the images of some rows, in that order.

        Args:
            rows: row numbers, or one boolean for each image.

        Raises:
            InputError: there is no such row.
        """
        # numpy takes an empty list for one of floats.
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

    def decode(
        self, shape: Sequence[int] | PictureForm, *, workers: int = 0, progress: Progress | None = None
    ) -> DecodedImages:
        """Decode the images into one array. Images that cannot be read are left out, and listed in `broken`.

        The labels of the images that were read are `labels[decoded.rows]`.

        Args:
            shape: (height, width) for grey, (3, height, width) for RGB; or an encoder's `picture_form`.
            workers: processes that decode; 0: this process does.
            progress: called with the number of images done and of all images.

        Raises:
            ImageError: a worker process died.
            InputError: `shape` or `workers` is invalid.
            MissingExtraError: Pillow is not installed.
        """
        return decode_images(self.sources, shape, workers=workers, progress=progress)

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> Self:
        """Return the images of a folder that has a folder for each class; or of one that has images alone, unlabelled.

        Classes are numbered in the order of their names. Images are found by their endings, at any depth below a class.
        Folders without images are no classes. Where there are classes, images beside their folders belong to none, and
        are left out.

        Raises:
            FileError: there is no such folder, or it has no image.
        """
        listing = list_pictures(folder)
        if not listing.names:
            raise FileError(
                f"{folder} holds no image; expected images, or a folder of images for each class: files that end "
                f"in {', '.join(IMAGE_SUFFIXES)}"
            )
        found: dict[str, list[Path]] = {}
        for name, path in zip(listing.names, listing.paths(), strict=True):
            if "/" in name:
                found.setdefault(name.partition("/")[0], []).append(Path(path))
        if not found:
            return cls([Path(path) for path in listing.paths()])
        labels = np.repeat(np.arange(len(found)), [len(files) for files in found.values()])
        return cls([file for files in found.values() for file in files], labels, tuple(found))

    @classmethod
    def from_csv(cls, path: str | os.PathLike[str]) -> Self:
        """Return the images of a CSV with lines `path,label`, or `path,label;label` if an image shows several classes.

        Paths are relative to the CSV's own folder. A first line `path,label` is a heading. Labels are names, numbered
        in sorted order. `labels` is a vector if every image has exactly one label, else a matrix of 0 and 1.

        Raises:
            FileError: the CSV or one of its images does not exist.
            CorruptFileError: a line has another form; the error names it.
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
        """Return the images of an npz with the arrays `jpegs`, `offsets` and `labels`.

        `jpegs` holds the bytes of all images, one after another. Image k is `jpegs[offsets[k]:offsets[k + 1]]`.

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
    """Return the paths of all images in a folder and below it, in order; see `list_pictures`.

    Raises:
        FileError: there is no such folder.
    """
    return list(map(Path, list_pictures(folder).paths()))


def check_present(files: Sequence[str | os.PathLike[str]], *, where: str) -> None:
    """Check that all the files exist.

    Raises:
        FileError: some do not exist. The error names the first ten and says how many.
    """
    missing = [os.fspath(file) for file in files if not os.path.isfile(file)]
    if missing:
        raise FileError(f"{where}: {len(missing):,} of {len(files):,} images do not exist: {listed(missing)}")


def listed(names: Sequence[str]) -> str:
    """Return the first ten names as text, and the number of further ones."""
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _csv_lines(path: Path) -> tuple[list[Path], list[list[str]]]:
    """Return the path and the labels of each line of a CSV."""
    files: list[Path] = []
    labels: list[list[str]] = []
    try:
        # Spreadsheets begin a file with a byte order mark, which utf-8-sig removes.
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(lines_of(stream, where=str(path), max_line=_MAX_CSV_LINE))
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
        raise FileError(f"{path} cannot be read: {reason_of(error)}") from error
    except (csv.Error, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} is not a CSV in UTF-8: {error}; expected lines path,label") from error
    if not files:
        raise CorruptFileError(f"{path} is empty; expected lines path,label or path,label;label")
    return files, labels
