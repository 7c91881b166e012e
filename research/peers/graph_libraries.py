"""Libraries of navigable graphs in the benchmark of nearest neighbours: hnswlib, usearch and voyager."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.peers.library import Library, Plan, Searcher, Setting, Shape, float_rows, ready_queries

_FILE = "index.bin"
_BREADTHS = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)


def _breadths(name: str) -> dict[int, list[Setting]]:
    """Return the same breadths for k of 10 and of 100, where none below k is of use."""
    return {k: [{name: breadth} for breadth in _BREADTHS if breadth >= 0.4 * k] for k in (10, 100)}


class Hnswlib(Library):
    """The reference implementation of HNSW, over float32 vectors."""

    name = "hnswlib"
    package = "hnswlib"

    def plans(self, shape: Shape) -> list[Plan]:
        """Return one graph: 32 links in the lowest layer, 16 in the others."""
        return [Plan("M 16", {"M": 16, "ef_construction": 200}, _breadths("ef"))]

    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Add all rows, and write in hnswlib's own format."""
        import hnswlib

        rows = float_rows(base)
        start = time.perf_counter()
        index = hnswlib.Index("ip" if shape.metric == "cosine" else "l2", shape.n_dims)
        index.init_index(len(rows), **plan.arguments)
        index.add_items(rows, num_threads=threads)
        seconds = time.perf_counter() - start
        index.save_index(str(folder / _FILE))
        return seconds

    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open the index."""
        import hnswlib

        index = hnswlib.Index("ip" if shape.metric == "cosine" else "l2", shape.n_dims)
        index.load_index(str(folder / _FILE))
        return _Hnswlib(index, shape)


class _Hnswlib(Searcher):
    def __init__(self, index: Any, shape: Shape) -> None:
        self._index, self._shape = index, shape

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        self._index.set_ef(max(k, setting["ef"]))
        found: NDArray[Any] = self._index.knn_query(ready_queries(queries, self._shape), k, num_threads=1)[0]
        return found


class Usearch(Library):
    """usearch, over float32 vectors or vectors of a byte a number."""

    name = "usearch"
    package = "usearch"

    def plans(self, shape: Shape) -> list[Plan]:
        """Return a graph over bytes, and one over float32 where rows are not bytes already."""
        dtypes = ["i8"] if shape.whole_bytes else ["f32", "i8"]
        return [
            Plan(
                f"{dtype}, connectivity 32",
                {"dtype": dtype, "connectivity": 32, "expansion_add": 128},
                _breadths("expansion"),
            )
            for dtype in dtypes
        ]

    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Add all rows, and write in usearch's own format."""
        index = self._empty(plan, shape)
        scale = _scale(base) if plan.arguments["dtype"] == "i8" and shape.metric == "l2" else 1.0
        start = time.perf_counter()
        rows = _bytes_or_floats(base, plan, shape, scale)
        index.add(np.arange(len(rows)), rows, threads=threads, copy=True)
        seconds = time.perf_counter() - start
        index.save(str(folder / _FILE))
        np.save(folder / "scale.npy", scale)
        return seconds

    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open the index."""
        index = self._empty(plan, shape)
        index.load(str(folder / _FILE))
        return _Usearch(index, plan, shape, float(np.load(folder / "scale.npy")))

    def _empty(self, plan: Plan, shape: Shape) -> Any:
        from usearch.index import Index

        return Index(
            ndim=shape.n_dims,
            metric="cos" if shape.metric == "cosine" else "l2sq",
            dtype=plan.arguments["dtype"],
            connectivity=plan.arguments["connectivity"],
            expansion_add=plan.arguments["expansion_add"],
        )


class _Usearch(Searcher):
    def __init__(self, index: Any, plan: Plan, shape: Shape, scale: float) -> None:
        self._index, self._plan, self._shape, self._scale = index, plan, shape, scale

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        self._index.expansion_search = setting["expansion"]
        ready = _bytes_or_floats(queries, self._plan, self._shape, self._scale)
        matches = self._index.search(ready, k, threads=1)
        return np.asarray(matches.keys).reshape(len(queries), k).astype(np.int64)


class Voyager(Library):
    """Spotify's HNSW, made of hnswlib, over float32 vectors."""

    name = "voyager"
    package = "voyager"

    def plans(self, shape: Shape) -> list[Plan]:
        """Return one graph, of as many links as that of hnswlib."""
        return [Plan("M 16", {"M": 16, "ef_construction": 200}, _breadths("query_ef"))]

    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Add all rows, and write in voyager's own format."""
        import voyager

        rows = float_rows(base)
        start = time.perf_counter()
        space = voyager.Space.InnerProduct if shape.metric == "cosine" else voyager.Space.Euclidean
        index = voyager.Index(space, shape.n_dims, **plan.arguments, max_elements=len(rows))
        index.add_items(rows, num_threads=threads)
        seconds = time.perf_counter() - start
        index.save(str(folder / _FILE))
        return seconds

    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open the index."""
        import voyager

        return _Voyager(voyager.Index.load(str(folder / _FILE)), shape)


class _Voyager(Searcher):
    def __init__(self, index: Any, shape: Shape) -> None:
        self._index, self._shape = index, shape

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        breadth = max(k, setting["query_ef"])
        found = self._index.query(ready_queries(queries, self._shape), k, num_threads=1, query_ef=breadth)[0]
        return np.asarray(found).astype(np.int64)


def _scale(base: NDArray[Any]) -> float:
    return 1.0 / float(np.abs(np.asarray(base, dtype=np.float32)).max())


def _bytes_or_floats(rows: NDArray[Any], plan: Plan, shape: Shape, scale: float) -> NDArray[Any]:
    """Return rows as usearch stores them: bytes shifted to int8, which keeps distances; others of -1 to 1."""
    if shape.whole_bytes:
        return (np.asarray(rows, dtype=np.int16) - 128).astype(np.int8)
    if plan.arguments["dtype"] == "i8" and shape.metric == "l2":
        scaled = np.rint(127 * scale * np.asarray(rows, dtype=np.float32))
        return np.asarray(np.clip(scaled, -127, 127), dtype=np.int8)
    return float_rows(rows)
