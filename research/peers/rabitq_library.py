"""RaBitQ, by its authors' library, in the benchmark of nearest neighbours: cells, and a graph of codes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.peers.library import Library, Plan, Searcher, Setting, Shape, float_rows, ready_queries

_FILE = "index.rabitq"
_LEARNED_PER_CELL = 64
_SEED = 1234
# Its rotation takes no fewer numbers; zeros are added, which change no distance.
_LEAST_DIMS = 64


class Rabitq(Library):
    """Cells with RaBitQ codes of several bits a number, and SymphonyQG."""

    name = "rabitqlib"
    package = "rabitqlib"

    def plans(self, shape: Shape) -> list[Plan]:
        """Return cells with codes of 4 and 7 bits, and a graph of 32 links."""
        _, many = shape.cells()
        probes = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
        cells = {k: [{"nprobe": count} for count in probes] for k in (10, 100)}
        breadths = (10, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
        graph = {k: [{"ef": ef} for ef in breadths if ef >= 0.4 * k] for k in (10, 100)}
        plans = [Plan(f"IVF{many}, {bits} bits", {"cells": many, "bits": bits}, cells) for bits in (4, 7)]
        return [*plans, Plan("SymphonyQG 32", {"degree": 32, "ef_construction": 200}, graph)]

    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Build the index, with faiss's k-means for cells, as its documentation does; write it in its own format."""
        import rabitqlib

        rows = _wide(float_rows(base))
        metric = "ip" if shape.metric == "cosine" else "l2"
        start = time.perf_counter()
        if "cells" in plan.arguments:
            centres, cells = _cells(rows, plan.arguments["cells"], threads)
            index = rabitqlib.IvfIndex(
                rows.shape[1], len(rows), plan.arguments["cells"], plan.arguments["bits"], metric=metric
            )
            index.build(rows, centres, cells, num_threads=threads)
        else:
            index = rabitqlib.SymqgIndex(rows.shape[1], plan.arguments["degree"], metric=metric)
            index.build(rows, plan.arguments["ef_construction"], num_threads=threads)
        seconds = time.perf_counter() - start
        index.save(str(folder / _FILE))
        return seconds

    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open the index."""
        import rabitqlib

        kind = rabitqlib.IvfIndex if "cells" in plan.arguments else rabitqlib.SymqgIndex
        return _Codes(kind.load(str(folder / _FILE)), shape)


class _Codes(Searcher):
    def __init__(self, index: Any, shape: Shape) -> None:
        self._index, self._shape = index, shape

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        ready = _wide(ready_queries(queries, self._shape))
        if "nprobe" in setting:
            found = self._index.search(ready, k, setting["nprobe"], num_threads=1)
        else:
            found = self._index.search_batch(ready, k, max(k, setting["ef"]), num_threads=1)
        ids = next(part for part in found if np.asarray(part).dtype.kind in "iu")
        return np.asarray(ids).reshape(len(queries), k).astype(np.int64)


def _wide(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    more = _LEAST_DIMS - rows.shape[1]
    return rows if more <= 0 else np.pad(rows, ((0, 0), (0, more)))


def _cells(rows: NDArray[np.float32], count: int, threads: int) -> tuple[NDArray[np.float32], NDArray[np.uint32]]:
    import faiss

    faiss.omp_set_num_threads(threads)
    means = faiss.Kmeans(
        rows.shape[1],
        count,
        niter=10,
        seed=_SEED,
        max_points_per_centroid=_LEARNED_PER_CELL,
        min_points_per_centroid=1,
    )
    means.train(rows)
    return np.asarray(means.centroids), means.index.search(rows, 1)[1].ravel().astype(np.uint32)
