"""Arrays of npy, npz and HDF5 files that may be forged: bounded in size before they are unpacked.

Of HDF5, only arrays of the file itself are read, packed by known filters.
"""

from __future__ import annotations

import math
import tokenize
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget._reading import check_bytes, reason_of
from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    FileError,
    HamtargetError,
    MissingExtraError,
    UnsupportedFileError,
)

if TYPE_CHECKING:
    import h5py

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
_DEFLATE, _SHUFFLE, _CHECKSUM, _LZF = 1, 2, 3, 32_000
# h5py's LZF unpacks to 88 times the size at most.
_MAX_LZF_CHUNK = 1 << 26
_CHECKSUM_BYTES = 4
_REPACK = "repack it, for instance with h5repack -f GZIP=4"


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


def hdf5_names(path: Path) -> list[str]:
    """Return the names of the arrays in an HDF5 file.

    Raises:
        FileError: the file cannot be read.
        CorruptFileError: it is damaged.
        UnsupportedFileError: it refers to other files, or to other places in it.
        MissingExtraError: h5py is not installed.
    """
    with _opened(path) as file:
        return [name for name in file if _is_array(file, name)]


def read_hdf5(path: Path, name: str, max_bytes: int) -> NDArray[Any]:
    """Return an array of an HDF5 file.

    Raises:
        FileError: the file cannot be read.
        CorruptFileError: it is damaged, or the array takes more than `max_bytes`.
        UnsupportedFileError: it refers to other files, or is packed by an unusual filter.
        DtypeError: the elements have no fixed size.
        MissingExtraError: h5py is not installed.
    """
    where = f"{path}, array {name!r}"
    with _opened(path) as file:
        dataset = file[name]
        if dataset.dtype.hasobject:
            raise DtypeError(f"{where} has elements of type {dataset.dtype}, of no fixed size; expected numbers")
        if dataset.shape is None:
            raise CorruptFileError(f"{where} is empty; expected numbers")
        check_bytes(math.prod(dataset.shape) * dataset.dtype.itemsize, max_bytes, where=where)
        _check_chunks(dataset, max_bytes, where=where)
        array: NDArray[Any] = np.asarray(dataset[...])
    return array


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


@contextmanager
def _opened(path: Path) -> Iterator[h5py.File]:
    """Open an HDF5 file in which nothing leads elsewhere."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError("h5py is not installed; to read HDF5: pip install 'hamtarget[hdf5]'") from error
    with readable(path), path.open("rb"):
        pass
    with undamaged(path), h5py.File(path, "r") as file:
        for name in file:
            # Asking for the link, and not for what it leads to, opens nothing.
            if file.id.links.get_info(name.encode(errors="surrogateescape")).type != h5py.h5l.TYPE_HARD:
                raise UnsupportedFileError(
                    f"{path}: {name!r} is a link that leads elsewhere; expected arrays in the file itself: copy them "
                    "into one file"
                )
        yield file


def _is_array(file: h5py.File, name: str) -> bool:
    """Return True if the name is that of an array; a group has none.

    Raises:
        UnsupportedFileError: its numbers are in other files.
    """
    import h5py

    key = name.encode(errors="surrogateescape")
    if h5py.h5o.get_info(file.id, key).type != h5py.h5o.TYPE_DATASET:
        return False
    plan = h5py.h5d.open(file.id, key).get_create_plist()
    if plan.get_layout() == h5py.h5d.VIRTUAL or plan.get_external_count():
        raise UnsupportedFileError(
            f"{file.filename}: the numbers of {name!r} are in other files; expected them in the file itself: copy them "
            "into one file"
        )
    return True


def _check_chunks(dataset: h5py.Dataset, max_bytes: int, *, where: str) -> None:
    """Check that no chunk unpacks to more than its size, of which HDF5 itself takes no notice."""
    if dataset.chunks is None:
        return
    size = math.prod(dataset.chunks) * dataset.dtype.itemsize
    check_bytes(size, max_bytes, where=f"a chunk of {where}")
    plan = dataset.id.get_create_plist()
    filters = [plan.get_filter(number)[0] for number in range(plan.get_nfilters())]
    if len(set(filters)) < len(filters) or not {_DEFLATE, _SHUFFLE, _CHECKSUM, _LZF}.issuperset(filters):
        raise UnsupportedFileError(f"{where} is packed by the filters {filters}; expected gzip or none: {_REPACK}")
    if _LZF in filters and (_DEFLATE in filters or size > _MAX_LZF_CHUNK):
        raise UnsupportedFileError(f"{where} is packed by LZF in chunks of {size:,} bytes: {_REPACK}")
    if _DEFLATE not in filters:
        return
    stored = dataset.file.id.get_filesize()
    # A checksum may have been packed with the numbers.
    allowed = size + _CHECKSUM_BYTES
    for number in range(dataset.id.get_num_chunks()):
        info = dataset.id.get_chunk_info(number)
        if info.size > stored:
            raise CorruptFileError(f"{where}: chunk {number:,} claims {info.size:,} bytes; the file has {stored:,}")
        mask, packed = dataset.id.read_direct_chunk(info.chunk_offset)
        if not mask and len(zlib.decompressobj().decompress(packed, allowed + 1)) > allowed:
            raise CorruptFileError(
                f"{where}: chunk {number:,} unpacks to more than its {size:,} bytes: get or write the file again"
            )
