"""Read vectors from files: fvecs, ivecs and bvecs of TEXMEX, npy, npz, and HDF5 of ann-benchmarks.

Whatever the format, the result is a (rows, columns) array of finite numbers. A file that cannot give one is refused,
with the row and the reason. fvecs, ivecs, bvecs and npy are mapped into memory, not copied: the arrays are read-only,
and the files must not be truncated in place while they are in use. Arrays of npz and HDF5 files are unpacked into
memory, of which a forged file must not take all: see `archives`. docs/data.md describes the formats.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._reading import max_bytes_of
from hamtarget.datasets.archives import hdf5_names, npz_names, open_npy, read_hdf5, read_npz, readable
from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    FileError,
    NotFiniteError,
    ShapeError,
    UnsupportedFileError,
)

Vectors = NDArray[Any]

# No set has rows this long (the longest of ann-benchmarks has 27,983 columns): more means a damaged header.
MAX_DIMENSION = 1_000_000

# Bytes of rows checked at a time: what was read for one check is still in the cache for the next.
_BYTES_AT_A_TIME = 1 << 23
_HEADER_BYTES = 4
# In these formats a row is its dimension as int32, followed by its elements, all little-endian.
_ELEMENTS = {".fvecs": "<f4", ".ivecs": "<i4", ".bvecs": "|u1"}
_MAGIC = {b"\x93NUMPY": ".npy", b"PK\x03\x04": ".npz", b"\x89HDF\r\n\x1a\n": ".hdf5"}
_SUFFIXES = (*_ELEMENTS, ".npy", ".npz", ".hdf5", ".h5")


def open_vectors(path: str | os.PathLike[str], *, key: str | None = None, max_bytes: int | None = None) -> Vectors:
    """Return the vectors of a file, (rows, columns), in the file's own element type.

    The format is told by the ending of the name or, if that is not known, by the first bytes. Arrays of fvecs, ivecs,
    bvecs and npy files are mapped, hence read-only.

    Args:
        path: a .fvecs, .ivecs, .bvecs, .npy, .npz, .hdf5 or .h5 file.
        key: name of the array in an npz or HDF5 file; by default `vectors` (npz) or `train` (HDF5), or the only one.
        max_bytes: bytes that an array of an npz or HDF5 file may take in memory. By default those that the environment
            variable HAMTARGET_MAX_BYTES says, or half of the memory.

    Raises:
        FileError: there is no such file, it cannot be read, or it has no such array.
        CorruptFileError: the file is truncated or damaged, or takes too much memory; the error names the row.
        UnsupportedFileError: the file is of another format, or refers to other files.
        ShapeError: an array has not two dimensions, or no rows or columns.
        DtypeError: the elements are not real numbers.
        NotFiniteError: an element is NaN or infinite; the error names the row.
        MissingExtraError: the file is HDF5 and h5py is not installed.

    Example:
        >>> import numpy as np
        >>> np.save("vectors.npy", np.eye(3))
        >>> open_vectors("vectors.npy").shape
        (3, 3)
    """
    path = Path(path)
    suffix = vector_format(path)
    if suffix in _ELEMENTS:
        return _open_records(path, np.dtype(_ELEMENTS[suffix]))
    if suffix == ".npy":
        return checked_vectors(open_npy(path), where=str(path))
    arrays = read_arrays(path, [] if key is None else [key], max_bytes=max_bytes)
    if key is None:
        key = next((name for name in ("vectors", "train") if name in arrays), None)
    if key is None and len(arrays) == 1:
        key = next(iter(arrays))
    if key is None or key not in arrays:
        raise FileError(
            f"{path} holds the arrays {_listed(arrays)}; expected {key or 'vectors'!r}: name one of them by key= "
            "(--key)"
        )
    return checked_vectors(arrays[key](), where=f"{path}, array {key!r}")


def vector_format(path: Path) -> str:
    """Return the ending that stands for a file's format, one of those that `open_vectors` reads.

    Raises:
        FileError: there is no such file, or it cannot be read.
        UnsupportedFileError: the file has none of these formats.
    """
    if not path.is_file():
        found = "is a folder" if path.is_dir() else "is not an ordinary file" if path.exists() else "does not exist"
        raise FileError(f"{path} {found}; expected a file of vectors")
    if path.suffix.lower() in _SUFFIXES:
        return ".hdf5" if path.suffix.lower() == ".h5" else path.suffix.lower()
    with readable(path), path.open("rb") as file:
        start = file.read(8)
    for magic, suffix in _MAGIC.items():
        if start.startswith(magic):
            return suffix
    raise UnsupportedFileError(
        f"{path} ends in {path.suffix!r} and begins with {start!r}; expected one of {', '.join(_SUFFIXES)}: "
        "unpack or convert it, for instance with numpy.save"
    )


def read_arrays(
    path: Path, wanted: Collection[str] = (), *, max_bytes: int | None = None
) -> dict[str, Callable[[], NDArray[Any]]]:
    """Return the arrays of an npz or HDF5 file by name, each as a function that reads it.

    Args:
        path: an .npz or HDF5 file.
        wanted: names of arrays that must be there.
        max_bytes: as in `open_vectors`, for each array.

    Raises:
        FileError: a wanted array is missing, or the file cannot be read.
        CorruptFileError: the file is damaged, or an array takes too much memory.
        UnsupportedFileError: the file refers to other files.
        MissingExtraError: the file is HDF5 and h5py is not installed.
    """
    most = max_bytes_of(max_bytes)
    hdf5 = vector_format(path) == ".hdf5"
    names = hdf5_names(path) if hdf5 else npz_names(path)
    read = read_hdf5 if hdf5 else read_npz
    for name in wanted:
        if name not in names:
            raise FileError(f"{path} holds the arrays {_listed(names)}; expected {name!r} among them")
    return {name: partial(read, path, name, most) for name in names}


def checked_vectors(array: NDArray[Any], *, where: str) -> Vectors:
    """Return `array` if it is a (rows, columns) array of finite numbers.

    Args:
        array: the array to check.
        where: the name of the array in errors.

    Raises:
        ShapeError: the array has not two dimensions, or no rows or columns.
        DtypeError: the elements are not real numbers.
        NotFiniteError: an element is NaN or infinite.
    """
    if array.dtype.kind not in "fiu":
        raise DtypeError(f"{where} has elements of type {array.dtype}; expected integers or floats")
    if array.ndim != 2 or 0 in array.shape:
        raise ShapeError(f"{where} has shape {array.shape}; expected (rows, columns), at least one of each")
    for start, block in row_blocks(array):
        _check_finite(block, first_row=start, where=where)
    return array


def row_blocks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield consecutive parts of `array`, each of a few megabytes, with the number of their first row."""
    rows = max(1, _BYTES_AT_A_TIME // max(1, array.dtype.itemsize * int(np.prod(array.shape[1:]))))
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]


def _open_records(path: Path, element: np.dtype[Any]) -> Vectors:
    """Map a file of (dimension, elements) records, and read every header and element once to check it."""
    with readable(path):
        size = path.stat().st_size
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES:
        raise CorruptFileError(
            f"{path} has {size} bytes; expected at least one row, which begins with a dimension of "
            f"{_HEADER_BYTES} bytes: get the file again"
        )
    dimension = int.from_bytes(header, "little", signed=True)
    _check_dimension(dimension, row=0, path=path)
    row_bytes = _HEADER_BYTES + dimension * element.itemsize
    if size < row_bytes:
        raise CorruptFileError(
            f"{path}: row 0 claims {dimension:,} numbers, which take {row_bytes:,} bytes, but the file has "
            f"{size:,}: it is truncated, or not a {path.suffix} file"
        )
    record = np.dtype([("dimension", "<i4"), ("vector", element, (dimension,))])
    with readable(path):
        rows = np.memmap(path, dtype=record, mode="r", shape=(size // row_bytes,)).view(np.ndarray)
    for start, block in row_blocks(rows):
        wrong = np.flatnonzero(block["dimension"] != dimension)
        if len(wrong):
            row, found = start + int(wrong[0]), int(block["dimension"][wrong[0]])
            _check_dimension(found, row=row, path=path)
            raise CorruptFileError(
                f"{path}: row {row:,} claims {found:,} numbers; expected {dimension:,}, as in row 0: "
                "the file is damaged, or joined from files of different dimensions"
            )
        _check_finite(block["vector"], first_row=start, where=str(path))
    if size % row_bytes:
        raise CorruptFileError(
            f"{path}: row {len(rows):,} is cut off after {size % row_bytes:,} bytes; rows of {dimension:,} numbers "
            f"take {row_bytes:,}: get the file again"
        )
    vectors: Vectors = rows["vector"]
    return vectors


def _check_dimension(dimension: int, *, row: int, path: Path) -> None:
    if not 1 <= dimension <= MAX_DIMENSION:
        raise CorruptFileError(
            f"{path}: row {row:,} claims {dimension:,} numbers; expected 1 to {MAX_DIMENSION:,}: "
            f"the file is damaged, or not a {path.suffix} file"
        )


def _check_finite(block: NDArray[Any], *, first_row: int, where: str) -> None:
    if block.dtype.kind != "f":
        return
    finite = np.isfinite(block)
    if not finite.all():
        row = int(np.flatnonzero(~finite.all(axis=1))[0])
        raise NotFiniteError(
            f"{where}: row {first_row + row:,} holds NaN or infinity; expected finite numbers: "
            "remove or repair such rows"
        )


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(repr, names)) or "(none)"
