"""Sets of vectors to measure search with: rows to learn from, rows to search in, queries and their true neighbours.

True neighbours that a set does not have are computed once, and kept in a file beside the data or in the cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._files import write_atomically
from hamtarget.datasets import open_vectors
from hamtarget.datasets.archives import read_npz
from hamtarget.datasets.content_cache import cache_folder
from hamtarget.datasets.vector_files import Vectors, checked_vectors, read_arrays, row_blocks
from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    FileError,
    HamtargetError,
    ShapeError,
    UnsupportedFileError,
)
from hamtarget.evaluation import exact_neighbors
from hamtarget.progress import Progress

# A set without vectors to learn from uses at most this many of its base: as many as SIFT 1M has.
LEARN_ROWS = 100_000

_ROLES = {
    "base": "base",
    "learn": "learn",
    "query": "queries",
    "queries": "queries",
    "groundtruth": "neighbors",
    "neighbors": "neighbors",
}
_FILE = re.compile(
    rf"(?:(?P<prefix>.+)_)?(?P<role>{'|'.join(_ROLES)})(?:-(?P<piece>\d+))?\.(?:fvecs|ivecs|bvecs|npy|npz)",
    re.IGNORECASE,
)
_EXPECTED = (
    "base, learn and query, each as .npz (key 'vectors'), .npy, .fvecs or .bvecs, such as base.npy, base-0.npz and "
    "base-1.npz, or sift_base.fvecs; or one .hdf5 of ann-benchmarks"
)
# Queries on which the neighbours that came with a set are checked: they must be in the order of their distances.
_QUERIES_TRIED = 16
_ORDER_TOLERANCE = 1e-3
# Part of the key of kept neighbours. A change of the computation or of the file needs a new version.
_VERSION = "hamtarget exact neighbors 1"
_MAX_HEADER = 10_000


@dataclass(frozen=True, eq=False)
class VectorSet:
    """Vectors to learn from, to search in and to search with, and the true nearest neighbours.

    Attributes:
        learn: (rows, columns); methods train on these rows only.
        base: (rows, columns), the rows that are searched; ids are their numbers.
        queries: (queries, columns).
        neighbors: (queries, k) ids of the nearest rows of `base` by Euclidean distance, nearest first.
        name: name of the folder or file. It also says if `learn` is part of `base`.
    """

    learn: Vectors
    base: Vectors
    queries: Vectors
    neighbors: NDArray[np.int64]
    name: str

    def __repr__(self) -> str:
        return (
            f"VectorSet({self.name!r}) [{len(self.learn):,} to learn from, {len(self.base):,} to search in, "
            f"{len(self.queries):,} queries, {self.base.shape[1]} columns of {self.base.dtype}]"
        )


def open_vector_set(
    path: str | os.PathLike[str], *, k: int = 100, seed: int = 0, progress: Progress | None = None
) -> VectorSet:
    """Open the set of vectors in a folder, or in an HDF5 file of ann-benchmarks.

    A folder holds base, learn and query, each in one file or in pieces numbered from 0 (`base-0.npz`, `base-1.npz`),
    in any format of `open_vectors`. The names may share a prefix (`sift_base.fvecs`). Neighbours are read from
    `groundtruth` or `neighbors` files (`sift_groundtruth.ivecs`) or from the key `neighbors` of the query's npz. If
    there are none, they are computed exactly and kept in a file beside the data.

    An HDF5 file has `train` (the base), `test` (the queries) and perhaps `neighbors`, but no rows to learn from. A
    random part of the base, at most 100,000 rows, is used instead, and `name` says so. Rows of angular sets are scaled
    to length 1, so that neighbours by Euclidean distance are neighbours by angle.

    Args:
        path: the folder or file.
        k: neighbours for each query, if they have to be computed.
        seed: of the choice of rows to learn from, if the set has none.
        progress: called with the number of queries done and of all queries, if neighbours have to be computed.

    Returns:
        A set with the arrays `learn`, `base` and `queries`, the true `neighbors` of the queries, as row numbers of the
        base, nearest first, and its `name`.

    Raises:
        FileError: a file is missing.
        CorruptFileError: a file is damaged, or the neighbours do not belong to this base.
        UnsupportedFileError: an HDF5 file uses another distance than Euclidean or angular.
        ShapeError: base, learn and queries differ in columns, or there is not one row of neighbours for each query.
        DtypeError: elements are not real numbers.
        NotFiniteError: an element is NaN or infinite.

    Example:
        >>> import numpy as np
        >>> random = np.random.default_rng(0)
        >>> for name, rows in (("base", 1000), ("learn", 100), ("query", 10)):
        ...     np.save(f"{name}.npy", random.normal(size=(rows, 4)))
        >>> vectors = open_vector_set(".", k=5)
        >>> vectors
        VectorSet(...) [100 to learn from, 1,000 to search in, 10 queries, 4 columns of float64]
        >>> vectors.neighbors.shape
        (10, 5)
    """
    path = Path(path)
    if not path.is_dir():
        if not path.exists():
            raise FileError(f"{path} does not exist; expected a folder with {_EXPECTED}")
        return _open_hdf5_set(path, k=k, seed=seed, progress=progress)
    files = _files_by_role(path)
    archives = sorted(file for file in path.iterdir() if file.suffix.lower() in (".hdf5", ".h5"))
    if not files and len(archives) == 1:
        return _open_hdf5_set(archives[0], k=k, seed=seed, progress=progress)
    missing = [role for role in ("base", "learn", "queries") if role not in files]
    if missing:
        found = ", ".join(sorted(file.name for file in path.iterdir())[:20]) or "nothing"
        raise FileError(f"{path} holds {found}; no {', '.join(missing)}: expected {_EXPECTED}")
    base, learn, queries = (_joined(files[role]) for role in ("base", "learn", "queries"))
    neighbors = _neighbors_of(files)
    name = path.resolve().name
    return _checked(learn, base, queries, neighbors, name=name, folder=path, k=k, progress=progress)


def _files_by_role(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each role, pieces in order.

    Raises:
        FileError: two files claim the same place, or a piece is missing.
    """
    claims: dict[str, dict[int, list[Path]]] = {}
    prefixes = set()
    for file in sorted(folder.iterdir()):
        match = _FILE.fullmatch(file.name)
        if match is None:
            continue
        prefixes.add(match["prefix"] or "")
        role = _ROLES[match["role"].lower()]
        claims.setdefault(role, {}).setdefault(int(match["piece"] or 0), []).append(file)
    if len(prefixes) > 1:
        raise FileError(
            f"{folder} holds files with the prefixes {', '.join(map(repr, sorted(prefixes)))}; expected one set: "
            "move each set into a folder of its own"
        )
    files = {}
    for role, pieces in claims.items():
        for several in pieces.values():
            if len(several) > 1:
                names = " and ".join(file.name for file in several)
                raise FileError(f"{folder} holds {names}; expected one of them: remove or rename the others")
        absent = sorted(set(range(max(pieces) + 1)) - set(pieces))
        if absent:
            names = ", ".join(pieces[number][0].name for number in sorted(pieces))
            raise FileError(f"{folder} holds {names}; piece {absent[0]} of {role} is missing: pieces count from 0")
        files[role] = [pieces[number][0] for number in sorted(pieces)]
    return files


def _joined(files: Sequence[Path]) -> Vectors:
    """Return the rows of one or several files."""
    parts = [open_vectors(file, key=_vectors_key(file)) for file in files]
    for file, part in zip(files, parts, strict=True):
        if (part.shape[1], part.dtype) != (parts[0].shape[1], parts[0].dtype):
            raise ShapeError(
                f"{file} has {part.shape[1]} columns of {part.dtype}; expected {parts[0].shape[1]} of "
                f"{parts[0].dtype}, as {files[0].name} has"
            )
    # One file alone stays mapped.
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _vectors_key(file: Path) -> str | None:
    """Return the key of the vectors in an npz that may also hold neighbours."""
    return "vectors" if file.suffix.lower() == ".npz" and "vectors" in read_arrays(file) else None


def _neighbors_of(files: Mapping[str, Sequence[Path]]) -> NDArray[Any] | None:
    if "neighbors" in files:
        return _joined(files["neighbors"])
    parts = []
    for file in files["queries"]:
        arrays = read_arrays(file) if file.suffix.lower() == ".npz" else {}
        if "neighbors" in arrays:
            parts.append(checked_vectors(arrays["neighbors"](), where=f"{file}, array 'neighbors'"))
    return np.concatenate(parts) if parts else None


def _open_hdf5_set(path: Path, *, k: int, seed: int, progress: Progress | None) -> VectorSet:
    arrays = read_arrays(path, ["train", "test"])
    distance = _distance_of(path)
    if distance not in ("euclidean", "angular"):
        raise UnsupportedFileError(f"{path} has the distance {distance!r}; expected 'euclidean' or 'angular'")
    base, queries = (checked_vectors(arrays[key](), where=f"{path}, array {key!r}") for key in ("train", "test"))
    if distance == "angular":
        base, queries = _unit(base), _unit(queries)
    neighbors = arrays["neighbors"]() if "neighbors" in arrays else None
    n_learn = min(LEARN_ROWS, len(base))
    rows = np.sort(np.random.default_rng(seed).choice(len(base), n_learn, replace=False))
    name = f"{path.stem} (learn: {n_learn:,} rows of base, seed {seed})"
    return _checked(base[rows], base, queries, neighbors, name=name, folder=path.parent, k=k, progress=progress)


def _distance_of(path: Path) -> str:
    import h5py

    with h5py.File(path, "r") as file:
        distance = file.attrs.get("distance", "euclidean")
    return distance.decode() if isinstance(distance, bytes) else str(distance)


def _unit(vectors: Vectors) -> NDArray[np.float32]:
    """Return rows scaled to length 1. Rows of zeros stay as they are."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)


def _checked(
    learn: Vectors,
    base: Vectors,
    queries: Vectors,
    neighbors: NDArray[Any] | None,
    *,
    name: str,
    folder: Path,
    k: int,
    progress: Progress | None,
) -> VectorSet:
    """Return the set if its parts fit each other. Neighbours are computed if there are none."""
    columns = {part: array.shape[1] for part, array in (("base", base), ("learn", learn), ("queries", queries))}
    if len(set(columns.values())) > 1:
        found = ", ".join(f"{part} {count}" for part, count in columns.items())
        raise ShapeError(f"{folder}: columns differ ({found}); expected the same in all three")
    if neighbors is None:
        ids = cached_neighbors(queries, base, min(k, len(base)), folder=folder, progress=progress)
    else:
        ids = _checked_neighbors(neighbors, queries, base, where=str(folder))
    return VectorSet(learn, base, queries, ids, name)


def _checked_neighbors(neighbors: NDArray[Any], queries: Vectors, base: Vectors, *, where: str) -> NDArray[np.int64]:
    if neighbors.dtype.kind not in "iu":
        raise DtypeError(f"{where}: neighbors are {neighbors.dtype}; expected integers, row numbers of base")
    if neighbors.ndim != 2 or len(neighbors) != len(queries):
        raise ShapeError(
            f"{where}: neighbors have shape {neighbors.shape}; expected ({len(queries)}, k), one row for each query"
        )
    ids = neighbors.astype(np.int64)
    wrong = np.flatnonzero(((ids < 0) | (ids >= len(base))).any(axis=1))
    if len(wrong):
        raise CorruptFileError(
            f"{where}: neighbors of query {wrong[0]:,} are row {ids[wrong[0]].max():,}; base has {len(base):,} rows: "
            "neighbors and base do not belong together, or base is truncated"
        )
    for query in np.unique(np.linspace(0, len(ids) - 1, _QUERIES_TRIED).astype(np.int64)):
        differences = base[ids[query]].astype(np.float64) - queries[query]
        distances = np.sqrt(np.einsum("ij,ij->i", differences, differences))
        # Some sets were computed in float32, hence the tolerance; rows of another base are far outside of it.
        if (np.diff(distances) < -_ORDER_TOLERANCE * max(1e-30, distances.max())).any():
            raise CorruptFileError(
                f"{where}: neighbors of query {query:,} are not in the order of their Euclidean distances; "
                "they belong to another base, to pieces in another order, or to another distance: remove them to have "
                "them computed"
            )
    return ids


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


def content_checksum(*arrays: NDArray[Any], label: str) -> bytes:
    """Return the SHA-256 of the element types, shapes and elements of arrays, and of `label`, which names its use."""
    checksum = hashlib.sha256(label.encode())
    for array in arrays:
        checksum.update(f" {array.dtype.str} {array.shape} ".encode())
        for _, block in row_blocks(array):
            checksum.update(np.ascontiguousarray(block).data)
    return checksum.digest()
