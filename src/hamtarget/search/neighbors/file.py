"""The file of a `NeighborIndex`: a zip of numpy arrays (.npz), each with a checksum, and a text of JSON about them.

Nothing in it is executed, and nothing is read beyond the sizes that the file itself has.
"""

from __future__ import annotations

import errno
import io
import json
import os
import struct
import tokenize
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._files import replace_atomically
from hamtarget._reading import check_bytes, max_bytes_of, parse_json
from hamtarget.errors import CorruptFileError, HamtargetError, UnsupportedFileError
from hamtarget.search.neighbors import KeptRows
from hamtarget.search.neighbors.cells import RowsInCells
from hamtarget.search.neighbors.scan import ScannedRows
from hamtarget.search.neighbors.space import MAX_DIMS, MIN_DIMS, VectorSpace, metric_of

FORMAT = "hamtarget neighbors"
VERSION = 1
_ABOUT = "about.json"
_KINDS = "biuf"
# A text of JSON has a few lines for each point of the curves.
_MOST_ABOUT_BYTES = 1 << 24
# A member of a zip has a date; files of one content should be equal.
_DATE = (1980, 1, 1, 0, 0, 0)
# What the user asked for.
_ASKED = ("metric", "recall", "k", "seed")


@dataclass(frozen=True, eq=False)
class Content:
    """The content of a file: what it says about its arrays, and the arrays."""

    about: dict[str, Any]
    arrays: dict[str, NDArray[Any]]

    def array(self, name: str, dtype: type, shape: tuple[int, ...]) -> NDArray[Any]:
        """Return an array, checked; -1 stands for any length.

        Raises:
            KeyError: it is missing.
            ValueError: it has another type or shape.
        """
        array = self.arrays[name]
        fits = len(array.shape) == len(shape) and all(n in (-1, m) for n, m in zip(shape, array.shape, strict=True))
        if array.dtype != dtype or not fits:
            raise ValueError(f"{name} has dtype {array.dtype} and shape {array.shape}")
        return array


def save(path: str | os.PathLike[str], asked: dict[str, Any], space: VectorSpace, rows: KeptRows) -> None:
    """Write a file, so that a reader finds the old one or the complete new one, even after a crash.

    Args:
        path: of the file.
        asked: metric, recall, k and seed.
        space: of the vectors.
        rows: scanned, or in cells.

    Raises:
        OSError: the file cannot be written; what was at `path` is as it was.
    """
    of_rows, arrays = rows.to_file()
    of_space = {"n_dims": space.n_dims, "scale": space.scale, "are_bytes": space.are_bytes}
    about = {"format": FORMAT, "version": VERSION, **asked, **of_space, **of_rows}
    arrays = {"offset": space.offset, **arrays}

    def write(file: Any) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
            archive.writestr(zipfile.ZipInfo(_ABOUT, _DATE), json.dumps(about, indent=1, allow_nan=False))
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy", _DATE), "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)

    replace_atomically(path, write)


def load(path: str | os.PathLike[str]) -> tuple[dict[str, Any], VectorSpace, KeptRows]:
    """Return what a file holds: what the user asked for, the space of the vectors, and the rows.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptFileError: it is truncated, altered, or not of this kind.
        UnsupportedFileError: a later version has written it.
    """
    content = _read(path)
    try:
        return _loaded(content)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, HamtargetError) as error:
        raise CorruptFileError(
            f"{os.fspath(path)}: its parts do not fit together ({error}); restore it from a copy, or fit again"
        ) from error


def _loaded(content: Content) -> tuple[dict[str, Any], VectorSpace, KeptRows]:
    about = content.about
    n_dims, scale = int(about["n_dims"]), float(about["scale"])
    if not MIN_DIMS <= n_dims <= MAX_DIMS or not 0 < scale < np.inf:
        raise ValueError("n_dims or scale is out of range")
    offset = content.array("offset", np.float64, (n_dims,))
    if not np.isfinite(offset).all():
        raise ValueError("offset is not finite")
    space = VectorSpace(metric_of(about["metric"]), n_dims, offset, scale, bool(about["are_bytes"]))
    rows: KeptRows = (RowsInCells if "built" in about else ScannedRows).from_file(content, space)
    return {name: about[name] for name in _ASKED}, space, rows


def _read(path: str | os.PathLike[str]) -> Content:
    where = str(Path(path))
    size = os.stat(path).st_size
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            return _content(archive, size, where)
    except OSError as error:
        # A damaged directory names places outside of the file.
        if error.errno != errno.EINVAL:
            raise
        raise _corrupt(where, error) from error
    except (
        zipfile.BadZipFile,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        KeyError,
        OverflowError,
        struct.error,
    ) as error:
        raise _corrupt(where, error) from error


def _corrupt(where: str, error: Exception) -> CorruptFileError:
    return CorruptFileError(
        f"{where}: damaged, or not a file of NeighborIndex.save ({error}); restore it from a copy, or fit again"
    )


def _content(archive: zipfile.ZipFile, size: int, where: str) -> Content:
    members = archive.infolist()
    # Members are stored as they are, so together they are at most as long as the file.
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise zipfile.BadZipFile("a member is compressed")
    if sum(member.file_size for member in members) > size:
        raise zipfile.BadZipFile("members are longer than the file")
    names = [member.filename for member in members]
    if len(set(names)) != len(names) or _ABOUT not in names:
        raise zipfile.BadZipFile(f"{_ABOUT} is missing, or a member is there twice")
    if archive.getinfo(_ABOUT).file_size > _MOST_ABOUT_BYTES:
        raise zipfile.BadZipFile(f"{_ABOUT} is too long")
    about = parse_json(archive.read(_ABOUT), where=f"{where}: {_ABOUT}")
    if not isinstance(about, dict) or about.get("format") != FORMAT or not isinstance(about.get("version"), int):
        raise zipfile.BadZipFile(f"{_ABOUT} does not say {FORMAT!r}")
    if about["version"] > VERSION:
        raise UnsupportedFileError(
            f"{where}: version {about['version']}; this release reads up to {VERSION}: install a newer hamtarget"
        )
    check_bytes(size, max_bytes_of(None), where=where)
    return Content(about, {name.removesuffix(".npy"): _array(archive.read(name)) for name in names if name != _ABOUT})


def _array(content: bytes) -> NDArray[Any]:
    """Return the array of a member, whose checksum was right."""
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"an array has version {version}")
    try:
        shape, in_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    except (SyntaxError, TypeError, struct.error, tokenize.TokenError) as error:
        # A forged header makes numpy's parser fail in its own ways; it executes nothing.
        raise ValueError("an array has a damaged header") from error
    if dtype.kind not in _KINDS or dtype.hasobject or dtype.byteorder == ">" or (in_columns and len(shape) > 1):
        raise ValueError(f"an array has dtype {dtype}")
    start = stream.tell()
    count = 1
    for length in shape:
        if length < 0:
            raise ValueError(f"an array has shape {shape}")
        count *= length
    if count * dtype.itemsize != len(content) - start:
        raise ValueError(f"an array of shape {shape} has {len(content) - start:,} bytes")
    return np.frombuffer(content, dtype=dtype, offset=start, count=count).reshape(shape)
