"""Codes of picture files: read in several processes, encoded here, kept in the content cache.

A file that was encoded before is not decoded again, whatever its name is now; a file that has not changed since is not
even opened. So a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import PictureForm, form_of
from hamtarget._reading import reason_of
from hamtarget.codes import Codes
from hamtarget.datasets.content_cache import DIGEST_BYTES, ContentCache, digest_of
from hamtarget.datasets.pictures.images import read_image
from hamtarget.datasets.pictures.picture_formats import picture_size
from hamtarget.datasets.reading_pool import results_in_order
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import ImageError
from hamtarget.progress import Progress

# Part of the name of every cache. A change of what is kept, or of how pictures are read, needs a new version.
_VERSION = 1
# Files that a task reads; their codes are kept together, so an interruption costs one task of each process.
_TASK_FILES = 64
# Files that are looked up in the cache at a time.
_LOOKED_UP = 4096
# Fewer files than these are read sooner than processes start.
_WORTH_PROCESSES = 256
# A larger file is no picture that would be decoded: 80 million pixels of 16 bytes are larger, but nobody has them.
_MAX_FILE = 1 << 30
# A file may change twice within one tick of the clock that its time is taken from.
_TICK_NS = 2 * 10**9
_SIZES = struct.Struct("<II")


@dataclass(frozen=True, eq=False)
class PictureCodes:
    """Codes of the pictures that could be read.

    Attributes:
        rows: (pictures,) number of each among the paths that were given, ascending.
        codes: (pictures, bytes) packed.
        sizes: (pictures, 2) width and height in pixels, upright.
        n_bytes: (pictures,) sizes of the files.
        digests: (pictures, 20) digests of the files' contents.
        broken: by path, why a picture could not be read.
    """

    rows: NDArray[np.int64]
    codes: Codes
    sizes: NDArray[np.uint32]
    n_bytes: NDArray[np.int64]
    digests: NDArray[np.uint8]
    broken: dict[str, str]


def encode_files(
    paths: Sequence[str],
    encoder: Encoder,
    *,
    workers: int | None = None,
    cache_folder: Path | None = None,
    progress: Progress | None = None,
) -> PictureCodes:
    """Return the codes of picture files; those that cannot be read are named.

    Args:
        paths: of the files.
        encoder: takes pictures.
        workers: processes that read; 0: this one; None: one for each core, where there are enough files.
        cache_folder: of the content cache; None: the usual one.
        progress: called with the files that are done and all files.

    Raises:
        InputError: the encoder takes no pictures, or `workers` is below 0.
        ImageError: a process that reads ended unexpectedly.
    """
    table = _Table(len(paths), encoder.n_bits // 8)
    kept = _Kept(f"codes {_VERSION} {fingerprint(encoder)}", encoder.n_bits // 8 + _SIZES.size, cache_folder)
    form = form_of(encoder)
    with contextlib.closing(kept.open()) as values, contextlib.closing(_seen_files(cache_folder)) as seen:
        unread = list(_look_up(paths, table, values, seen))
        done = len(paths) - len(unread)
        if progress is not None and done:
            progress(done, len(paths))
        tasks = ([paths[row] for row in unread[start : start + _TASK_FILES]] for start in _starts(unread))
        if workers is None:
            workers = _cores() if len(unread) >= _WORTH_PROCESSES else 0
        first = 0
        results = results_in_order(_ReadTask(form, kept), tasks, workers=min(workers, len(_starts(unread))))
        with contextlib.closing(results):
            for found in results:
                rows = unread[first : first + len(found)]
                _keep(rows, paths, found, table, encoder, values, seen)
                first += len(found)
                if progress is not None:
                    progress(done + first, len(paths))
    return table.finished()


def fingerprint(encoder: Encoder) -> str:
    """Return what tells an encoder from every other: a digest of the files that it saves, and of its picture form."""
    digest = hashlib.blake2b(repr(form_of(encoder)).encode(), digest_size=16)
    with tempfile.TemporaryDirectory() as folder:
        encoder.save(folder)
        for file in sorted(Path(folder).rglob("*")):
            if file.is_file():
                content = file.read_bytes()
                digest.update(f"{file.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


@dataclass(frozen=True)
class _Kept:
    """The content cache of codes; other processes open it, too."""

    maker: str
    value_bytes: int
    folder: Path | None

    def open(self) -> ContentCache:
        return ContentCache(self.maker, value_bytes=self.value_bytes, folder=self.folder)


def _seen_files(folder: Path | None) -> ContentCache:
    """Return the cache of digests of files that are as they were: same place, size and times."""
    return ContentCache(f"digests of files {_VERSION}", value_bytes=DIGEST_BYTES, folder=folder)


@dataclass(frozen=True, eq=False)
class _Picture:
    """A file that a worker process read: its code if it was kept, else its pixels.

    Attributes:
        state: key of the file as it was when it was opened; None if it may change unnoticed.
    """

    digest: bytes
    n_bytes: int
    state: bytes | None
    value: bytes | None
    pixels: NDArray[Any] | None
    size: tuple[int, int]


@dataclass(frozen=True)
class _ReadTask:
    """Reads files in a worker process."""

    form: PictureForm
    kept: _Kept

    def __call__(self, paths: list[str]) -> list[_Picture | str]:
        """Return, for each file, the picture or the reason why it cannot be read."""
        found: list[_Picture | str] = []
        with self.kept.open() as cache, warnings.catch_warnings():
            # Pillow warns of damaged notes in a file whose pixels are whole.
            warnings.simplefilter("ignore")
            for path in paths:
                try:
                    found.append(self._read(path, cache))
                except ImageError as error:
                    found.append(str(error))
        return found

    def _read(self, path: str, cache: ContentCache) -> _Picture:
        content, status = _content_of(path)
        digest = digest_of(content)
        state = _state_of(path, status)
        value = cache.get([digest]).get(digest)
        if value is not None:
            return _Picture(digest, len(content), state, value, None, (0, 0))
        try:
            pixels = read_image(content, self.form)
        except ImageError as error:
            # It knows the bytes, and not the path.
            raise ImageError(f"{path}: {str(error).partition(': ')[2]}") from error
        return _Picture(digest, len(content), state, None, pixels, picture_size(content))


def _content_of(path: str) -> tuple[bytes, os.stat_result]:
    try:
        # A pipe would be waited for.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ImageError(f"{path}: is no ordinary file; expected an image file")
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            if status.st_size > _MAX_FILE:
                raise ImageError(f"{path}: {status.st_size:,} bytes; expected an image of at most {_MAX_FILE:,}")
            return file.read(_MAX_FILE), status
    except OSError as error:
        raise ImageError(f"{path}: {reason_of(error)}; expected an image file") from error


def _state_of(path: str, status: os.stat_result) -> bytes | None:
    """Return a key of a file and its state, which another content changes; None if it changed just now."""
    if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) < _TICK_NS:
        return None
    numbers = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return digest_of(repr(numbers).encode() + b"\0" + os.fsencode(os.path.abspath(path)))


class _Table:
    """Codes and sizes of all files, filled in any order."""

    def __init__(self, n_files: int, code_bytes: int) -> None:
        self.codes = np.zeros((n_files, code_bytes), dtype=np.uint8)
        self.sizes = np.zeros((n_files, 2), dtype=np.uint32)
        self.n_bytes = np.zeros(n_files, dtype=np.int64)
        self.digests = np.zeros((n_files, DIGEST_BYTES), dtype=np.uint8)
        self.is_read = np.zeros(n_files, dtype=bool)
        self.broken: dict[str, str] = {}

    def put(self, row: int, value: bytes, digest: bytes, n_bytes: int) -> None:
        """Put the code and the sizes of a file, as the cache keeps them."""
        code_bytes = self.codes.shape[1]
        self.codes[row] = np.frombuffer(value, np.uint8, code_bytes)
        self.sizes[row] = _SIZES.unpack_from(value, code_bytes)
        self.n_bytes[row] = n_bytes
        self.digests[row] = np.frombuffer(digest, np.uint8)
        self.is_read[row] = True

    def finished(self) -> PictureCodes:
        """Return the files that could be read."""
        rows = np.flatnonzero(self.is_read)
        if len(rows) == len(self.codes):
            # Not copied: most often all can be read.
            return PictureCodes(rows, self.codes, self.sizes, self.n_bytes, self.digests, self.broken)
        return PictureCodes(
            rows, self.codes[rows], self.sizes[rows], self.n_bytes[rows], self.digests[rows], self.broken
        )


def _look_up(paths: Sequence[str], table: _Table, values: ContentCache, seen: ContentCache) -> Iterator[int]:
    """Put into the table what the cache knows of unchanged files, and yield the rows of the others."""
    for start in range(0, len(paths), _LOOKED_UP):
        states: dict[int, tuple[bytes, int]] = {}
        for row in range(start, min(start + _LOOKED_UP, len(paths))):
            with contextlib.suppress(OSError):
                status = os.stat(paths[row])
                state = _state_of(paths[row], status)
                if state is not None:
                    states[row] = state, status.st_size
        digests = seen.get(state for state, _ in states.values())
        known = values.get(digests.values())
        for row in range(start, min(start + _LOOKED_UP, len(paths))):
            state, n_bytes = states.get(row, (b"", 0))
            digest = digests.get(state)
            value = None if digest is None else known.get(digest)
            if digest is None or value is None:
                yield row
            else:
                table.put(row, value, digest, n_bytes)


def _keep(
    rows: list[int],
    paths: Sequence[str],
    found: list[_Picture | str],
    table: _Table,
    encoder: Encoder,
    values: ContentCache,
    seen: ContentCache,
) -> None:
    """Encode the pictures of a task, and put them into the table and the cache."""
    pictures = [(row, each) for row, each in zip(rows, found, strict=True) if isinstance(each, _Picture)]
    table.broken.update((paths[row], each) for row, each in zip(rows, found, strict=True) if isinstance(each, str))
    # Files with the same bytes need one code.
    new = {each.digest: each for _, each in pictures if each.pixels is not None}
    made: dict[bytes, bytes] = {}
    if new:
        codes = encoder.encode(np.stack([each.pixels for each in new.values() if each.pixels is not None]))
        made = {
            digest: code.tobytes() + _SIZES.pack(*each.size)
            for (digest, each), code in zip(new.items(), codes, strict=True)
        }
        values.put(made)
    for row, each in pictures:
        table.put(row, each.value or made[each.digest], each.digest, each.n_bytes)
    # Last: a file that was seen has its code in the cache.
    seen.put({each.state: each.digest for _, each in pictures if each.state is not None})


def _starts(rows: Sequence[int]) -> range:
    return range(0, len(rows), _TASK_FILES)


def _cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
