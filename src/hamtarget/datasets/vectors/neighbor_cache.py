"""Compute exact neighbours once, and keep them in a file beside the data or in the cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._files import write_atomically
from hamtarget.datasets.cache_folder import cache_folder
from hamtarget.datasets.vectors.archives import read_npz
from hamtarget.datasets.vectors.ground_truth import exact_neighbors
from hamtarget.datasets.vectors.vector_files import content_checksum
from hamtarget.errors import HamtargetError
from hamtarget.progress import Progress

# Part of every key. A change of the computation or of the file needs a new version.
_VERSION = "hamtarget exact neighbors 1"
_MAX_HEADER = 10_000


def cached_neighbors(
    queries: NDArray[Any], base: NDArray[Any], k: int, *, folder: Path, progress: Progress | None = None
) -> NDArray[np.int64]:
    """Return what `exact_neighbors` returns, from a file if there is one for this content; else compute and write it.

    The file is `exact-neighbors-<checksum of queries, base and k>.npz` in `folder` or, if that is read-only, in
    `cache_folder()`. A damaged file is computed again and replaced. It is no error if no file can be written.

    Args:
        queries: as in `exact_neighbors`.
        base: as in `exact_neighbors`.
        k: as in `exact_neighbors`.
        folder: the folder of the data.
        progress: called with the number of queries done and of all queries, if neighbours have to be computed.
    """
    key = content_checksum(queries, base, label=f"{_VERSION} {k}")
    # A quarter of the key is enough that no two contents share a name.
    name = f"exact-neighbors-{key.hex()[:16]}.npz"
    folders = [folder, cache_folder()]
    for place in folders:
        found = _read(place / name, key, (len(queries), k))
        if found is not None:
            return found
    neighbors = exact_neighbors(queries, base, k, progress=progress)
    for place in folders:
        if _read_only(place):
            continue
        # A full disk must not cost the hours that the neighbours took.
        with contextlib.suppress(OSError):
            write_atomically(place / name, _packed(neighbors, key))
            break
    return neighbors


def _packed(neighbors: NDArray[np.int64], key: bytes) -> bytes:
    content = io.BytesIO()
    np.savez_compressed(content, neighbors=neighbors, checksum=_checksum(neighbors, key))
    return content.getvalue()


def _read(path: Path, key: bytes, shape: tuple[int, int]) -> NDArray[np.int64] | None:
    """Return the neighbours in a file, or None if it does not exist, is damaged, or is of other content."""
    most = _MAX_HEADER + math.prod(shape) * np.dtype(np.int64).itemsize
    try:
        neighbors: NDArray[np.int64] = read_npz(path, "neighbors", most)
        checksum = read_npz(path, "checksum", most)
    except HamtargetError:
        return None
    if neighbors.dtype != np.int64 or neighbors.shape != shape:
        return None
    return neighbors if np.array_equal(checksum, _checksum(neighbors, key)) else None


def _checksum(neighbors: NDArray[np.int64], key: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(hashlib.sha256(key + neighbors.tobytes()).digest(), dtype=np.uint8)


def _read_only(folder: Path) -> bool:
    """Return True if the folder exists and its permissions forbid writing, even where a superuser could."""
    return folder.exists() and (not os.access(folder, os.W_OK) or not folder.stat().st_mode & 0o222)
