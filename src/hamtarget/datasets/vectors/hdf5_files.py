"""Arrays of HDF5 files that may be forged: of this file only, of bounded size, unpacked by known filters."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._reading import check_bytes
from hamtarget.datasets.vectors.archives import readable, undamaged
from hamtarget.errors import CorruptFileError, DtypeError, MissingExtraError, UnsupportedFileError

if TYPE_CHECKING:
    import h5py

_MAX_ATTRIBUTE = 1 << 16
_DEFLATE, _SHUFFLE, _CHECKSUM, _LZF = 1, 2, 3, 32_000
# h5py's LZF unpacks to 88 times the size at most.
_MAX_LZF_CHUNK = 1 << 26
_CHECKSUM_BYTES = 4
_REPACK = "repack it, for instance with h5repack -f GZIP=4"


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


def hdf5_attribute(path: Path, name: str) -> str | None:
    """Return an attribute of an HDF5 file as text, or None if there is none.

    Raises:
        CorruptFileError: it is too long, or no text.
    """
    with _opened(path) as file:
        if name not in file.attrs:
            return None
        if file.attrs.get_id(name).get_storage_size() > _MAX_ATTRIBUTE:
            raise CorruptFileError(f"{path}: the attribute {name!r} has more than {_MAX_ATTRIBUTE:,} bytes")
        value = file.attrs[name]
        return value.decode() if isinstance(value, bytes) else str(value)


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
