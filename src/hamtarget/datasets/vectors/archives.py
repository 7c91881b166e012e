"""Arrays of npy and npz files that may be forged: nothing is unpacked before it is known how large it gets."""

from __future__ import annotations

import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget._reading import check_bytes, reason_of
from hamtarget.errors import CorruptFileError, FileError, HamtargetError, UnsupportedFileError

# The errors that numpy, zipfile and h5py raise for a damaged file.
DAMAGE_ERRORS = (
    ValueError,
    EOFError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    SyntaxError,
    OverflowError,
    MemoryError,
    NotImplementedError,
    RuntimeError,
    OSError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)

# More than the header of any array of numbers has, and little enough to be parsed.
_MAX_HEADER = 10_000
_MAGIC_BYTES = 8
# By version of the format: bytes that say how long the header is. The third is for names that arrays of numbers lack.
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4}
# What numpy writes. Others are unpacked without a bound by zipfile.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_MAX_MEMBERS = 10_000
_ENCRYPTED = 0x1


class ArrayHeader(NamedTuple):
    """The beginning of an npy file: what follows it, and how many bytes both take."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    in_columns: bool
    n_bytes: int


def open_npy(path: Path) -> NDArray[Any]:
    """Map the array of an npy file.

    Raises:
        FileError: the file cannot be read.
        CorruptFileError: it is damaged.
    """
    with readable(path), path.open("rb") as file:
        size = path.stat().st_size
        with undamaged(path):
            header = _read_header(file)
    _check_size(header, size, where=str(path))
    with undamaged(path), warnings.catch_warnings():
        # numpy warns about old headers, but the caller can do nothing about them.
        warnings.simplefilter("ignore")
        return np.lib.format.open_memmap(path, mode="r").view(np.ndarray)


def npz_names(path: Path) -> list[str]:
    """Return the names of the arrays in an npz file.

    Raises:
        FileError: the file cannot be read.
        CorruptFileError: it is damaged.
    """
    with readable(path), path.open("rb") as file, undamaged(path), zipfile.ZipFile(file) as archive:
        names = archive.namelist()
    if len(names) > _MAX_MEMBERS:
        raise CorruptFileError(f"{path} holds {len(names):,} arrays; expected at most {_MAX_MEMBERS:,}")
    return [name.removesuffix(".npy") for name in names]


def read_npz(path: Path, name: str, max_bytes: int) -> NDArray[Any]:
    """Return an array of an npz file.

    Its size is that of the archive's directory and of the array's own header, which must agree. No more is unpacked.

    Raises:
        FileError: the file cannot be read.
        CorruptFileError: it is damaged, or the array takes more than `max_bytes`.
        UnsupportedFileError: it is packed in another way than numpy packs.
    """
    where = f"{path}, array {name!r}"
    with readable(path), path.open("rb") as file, undamaged(path, part=name), zipfile.ZipFile(file) as archive:
        members = archive.namelist()
        info = archive.getinfo(f"{name}.npy" if f"{name}.npy" in members else name)
        if info.compress_type not in _METHODS or info.flag_bits & _ENCRYPTED:
            raise UnsupportedFileError(f"{where} is encrypted, or packed by another method than numpy's: save it again")
        check_bytes(info.file_size, max_bytes, where=where)
        with archive.open(info) as member:
            header = _read_header(member)
            _check_size(header, info.file_size, where=where)
            array = np.empty(math.prod(header.shape), header.dtype)
            _fill(array.view(np.uint8).reshape(-1).data if array.nbytes else memoryview(b""), member)
            # The checksum is compared at the end of the member only.
            if member.read(1):
                raise CorruptFileError(f"{where} is longer than its header says: get or write the file again")
    return array.reshape(header.shape, order="F" if header.in_columns else "C")


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise errors of the operating system as FileError."""
    try:
        yield
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}") from error


@contextmanager
def undamaged(path: Path, *, part: str | None = None) -> Iterator[None]:
    """Raise whatever a reading library raises for a damaged file as CorruptFileError."""
    try:
        yield
    except HamtargetError:
        raise
    except DAMAGE_ERRORS as error:
        where = f"{path}" if part is None else f"{path}, array {part!r}"
        reason = str(error) or type(error).__name__
        raise CorruptFileError(
            f"{where} cannot be read as {path.suffix.lower() or 'its kind'}: {reason}: get or write the file again"
        ) from error


def _read_header(file: IO[bytes]) -> ArrayHeader:
    """Read the header of an npy file, which says how much follows it.

    Raises:
        ValueError, and others: it is damaged.
    """
    version = np.lib.format.read_magic(file)
    n_length = _LENGTH_BYTES.get(version)
    if n_length is None:
        raise ValueError(f"version {version} of the format; expected 1.0 or 2.0")
    length = int.from_bytes(file.read(n_length), "little")
    if length > _MAX_HEADER:
        raise ValueError(f"a header of {length:,} bytes; expected at most {_MAX_HEADER:,}")
    n_before = _MAGIC_BYTES + n_length
    file.seek(_MAGIC_BYTES)
    read = np.lib.format.read_array_header_1_0 if n_length == 2 else np.lib.format.read_array_header_2_0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shape, in_columns, dtype = read(file, max_header_size=_MAX_HEADER)
    if dtype.hasobject or not dtype.itemsize:
        raise ValueError(f"elements of type {dtype}; expected numbers")
    if any(side < 0 for side in shape):
        raise ValueError(f"shape {shape}; expected no negative numbers")
    return ArrayHeader(shape, dtype, in_columns, n_before + length + math.prod(shape) * dtype.itemsize)


def _check_size(header: ArrayHeader, size: int, *, where: str) -> None:
    if header.n_bytes != size:
        raise CorruptFileError(
            f"{where} has {size:,} bytes; expected {header.n_bytes:,} by its header: data is missing or was appended, "
            "or the header altered"
        )


def _fill(target: memoryview, source: IO[bytes]) -> None:
    """Read as many bytes as the target has.

    Raises:
        EOFError: there are fewer.
    """
    start = 0
    while start < len(target):
        piece = source.read(min(1 << 20, len(target) - start))
        if not piece:
            raise EOFError(f"it ends after {start:,} of {len(target):,} bytes")
        target[start : start + len(piece)] = piece
        start += len(piece)
