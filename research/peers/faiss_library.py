"""faiss in the benchmark of nearest neighbours: cells with 4-bit codes, RaBitQ, and graphs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.peers.library import Library, Plan, Searcher, Setting, Shape, float_rows, ready_queries

_FILE = "index.faiss"
_PROBES = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
_BREADTHS = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
# Rows that cells and codes are learned from, for each cell.
_LEARNED_PER_CELL = 64
_SEED = 1234


class Faiss(Library):
    """Indexes by the names of faiss's index factory."""

    name = "faiss"
    package = "faiss-cpu"

    def plans(self, shape: Shape) -> list[Plan]:
        """Return cells with 4-bit codes of three sizes, with RaBitQ, and graphs with and without 8-bit rows."""
        few, many = shape.cells()
        fewest, most = shape.cells_around()
        refine = "Refine(SQ8_direct)" if shape.whole_bytes else "Refine(SQ8)"
        descriptions = [
            f"IVF{few},PQ{shape.n_dims // 4}x4fs,{refine}",
            f"IVF{many},PQ{shape.n_dims // 4}x4fs,{refine}",
            f"IVF{many}_HNSW32,PQ{shape.n_dims // 4}x4fs,{refine}",
            f"IVF{many},PQ{shape.n_dims // 2}x4fs,{refine}",
            f"IVF{many},RaBitQfs,{refine}",
            f"IVF{many},RaBitQ,{refine}",
        ]
        descriptions += [
            f"{padded}IVF{cells},PQ{parts}x4fs,{refine}"
            for cells in (fewest, many, most)
            for padded, parts in _parts(shape.n_dims)
        ]
        if not shape.whole_bytes:
            descriptions.append(f"IVF{many},PQ{shape.n_dims // 4}x4fs,RFlat")
        plans = [_cells_plan(description) for description in dict.fromkeys(descriptions)]
        for description in ("HNSW32", "HNSW32_SQ8"):
            settings = {k: [{"efSearch": ef} for ef in _BREADTHS] for k in (10, 100)}
            plans.append(Plan(description, {"factory": description, "efConstruction": 100}, settings))
        return plans

    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Learn, add all rows, and write the index in faiss's own format."""
        import faiss

        faiss.omp_set_num_threads(threads)
        metric = faiss.METRIC_INNER_PRODUCT if shape.metric == "cosine" else faiss.METRIC_L2
        rows = float_rows(base)
        start = time.perf_counter()
        index: Any = faiss.index_factory(shape.n_dims, plan.arguments["factory"], metric)
        if "IVF" in plan.arguments["factory"]:
            ivf = faiss.extract_index_ivf(index)
            ivf.cp.seed = _SEED
            ivf.cp.min_points_per_centroid = 1
            learned = np.random.default_rng(_SEED).permutation(len(rows))[: _LEARNED_PER_CELL * ivf.nlist]
            index.train(rows[np.sort(learned)])
        else:
            index.hnsw.efConstruction = plan.arguments["efConstruction"]
            index.train(rows[:100_000])
        index.add(rows)
        seconds = time.perf_counter() - start
        faiss.write_index(index, str(folder / _FILE))
        return seconds

    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open the index."""
        import faiss

        index = faiss.read_index(str(folder / _FILE))
        faiss.omp_set_num_threads(1)
        return _Graph(index, shape) if "HNSW32" == plan.label[:6] else _Cells(index, shape)


class _Cells(Searcher):
    def __init__(self, index: Any, shape: Shape) -> None:
        import faiss

        self._index, self._shape = index, shape
        self._ivf = faiss.extract_index_ivf(index)
        self._sketches_only = faiss.downcast_index(index.base_index)
        quantizer = faiss.downcast_index(self._ivf.quantizer)
        if hasattr(quantizer, "hnsw"):
            quantizer.hnsw.efSearch = 128

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        self._ivf.nprobe = setting["nprobe"]
        ready = ready_queries(queries, self._shape)
        if setting["k_factor"] == 0:
            found: NDArray[Any] = self._sketches_only.search(ready, k)[1]
            return found
        self._index.k_factor = setting["k_factor"]
        found = self._index.search(ready, k)[1]
        return found

    def bytes_per_row(self, setting: Setting) -> float | None:
        """Return the size of the sketches alone where rows are not refined; stored vectors are not needed then."""
        import faiss

        if setting["k_factor"] > 0:
            return None
        return float(len(faiss.serialize_index(self._sketches_only)) / self._shape.n_rows)


class _Graph(Searcher):
    def __init__(self, index: Any, shape: Shape) -> None:
        self._index, self._shape = index, shape

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        self._index.hnsw.efSearch = setting["efSearch"]
        found: NDArray[Any] = self._index.search(ready_queries(queries, self._shape), k)[1]
        return found


def _parts(n_dims: int) -> list[tuple[str, int]]:
    """Return numbers of 4-bit codes a row, a quarter, three eighths and half of its numbers, each with its padding.

    Codes have equally many numbers each; where they would not, zeros are added to a row.
    """
    found = []
    for parts in (n_dims // 4, 3 * n_dims // 8, n_dims // 2):
        padded = -(-n_dims // parts) * parts
        found.append(("" if padded == n_dims else f"Pad{padded},", parts))
    return found


def _cells_plan(description: str) -> Plan:
    # A k_factor of 0 stands for no refinement: what the 4-bit codes find is returned.
    factors = {10: (0, 2, 4, 8, 16, 32, 64), 100: (0, 1, 2, 4, 8)}
    settings = {
        k: [{"nprobe": probes, "k_factor": factor} for factor in choices for probes in _PROBES]
        for k, choices in factors.items()
    }
    return Plan(description, {"factory": description}, settings)
