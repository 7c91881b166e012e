"""Scalable Vector Search (SVS) in the benchmark of nearest neighbours: a Vamana graph, also over compressed rows."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.peers.library import Library, Plan, Searcher, Setting, Shape, float_rows, ready_queries

_WINDOWS = (10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448)
_DEGREE = 32


class Svs(Library):
    """A Vamana graph over bytes or numbers of 16 bits, and with locally-adaptive vector quantisation (LVQ)."""

    name = "SVS"
    package = "scalable-vs"

    def plans(self, shape: Shape) -> list[Plan]:
        """Return a graph over plain vectors; where the package offers it, graphs over 8 bits, and 4 with a residual."""
        settings = {k: [{"window": window} for window in _WINDOWS if window >= 0.4 * k] for k in (10, 100)}
        dtype = "uint8" if shape.whole_bytes else "float16"
        plans = [Plan(f"Vamana 32, {dtype}", {"dtype": dtype, "window": 128}, settings)]
        # Where the processor is another, LVQ ends the process.
        if _has_lvq():
            plans += [
                Plan(
                    f"Vamana 32, LVQ{primary}" + (f"x{residual}" if residual else ""),
                    {"primary": primary, "residual": residual, "window": 128},
                    settings,
                )
                for primary, residual in ((8, 0), (4, 8))
            ]
        return plans

    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Build the graph, and write it and the rows in SVS's own format."""
        import svs

        parameters = svs.VamanaBuildParameters(
            alpha=0.95 if shape.metric == "cosine" else 1.2,
            graph_max_degree=_DEGREE,
            window_size=plan.arguments["window"],
            prune_to=_DEGREE - 4,
        )
        if "dtype" in plan.arguments:
            plain = np.ascontiguousarray(base, dtype=plan.arguments["dtype"])
            start = time.perf_counter()
            index = svs.Vamana.build(parameters, plain, _distance(shape), num_threads=threads)
            seconds = time.perf_counter() - start
        else:
            index, seconds = _compressed(plan, parameters, base, shape, folder, threads)
        index.save(str(folder / "config"), str(folder / "graph"), str(folder / "data"))
        return seconds

    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open the index for searches on one thread."""
        import svs

        data, query_type = str(folder / "data"), svs.DataType.float32
        if "dtype" in plan.arguments:
            rows = svs.VectorDataLoader(data)
            query_type = svs.DataType.uint8 if shape.whole_bytes else query_type
        else:
            rows = svs.LVQLoader(data, padding=32, strategy=svs.LVQStrategy.Turbo)
        graph = svs.GraphLoader(str(folder / "graph"))
        opened = svs.Vamana(str(folder / "config"), graph, rows, _distance(shape), query_type=query_type, num_threads=1)
        return _Vamana(opened, shape, bytes_as_they_are=query_type != svs.DataType.float32)


class _Vamana(Searcher):
    def __init__(self, index: Any, shape: Shape, *, bytes_as_they_are: bool) -> None:
        self._index, self._shape, self._bytes_as_they_are = index, shape, bytes_as_they_are

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        self._index.search_window_size = max(k, setting["window"])
        ready = np.ascontiguousarray(queries) if self._bytes_as_they_are else ready_queries(queries, self._shape)
        found: NDArray[Any] = self._index.search(ready, k)[0]
        return found


def _compressed(
    plan: Plan, parameters: Any, base: NDArray[Any], shape: Shape, folder: Path, threads: int
) -> tuple[Any, float]:
    """Return a graph over rows that are compressed, and the seconds that it took."""
    import svs

    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        vectors = str(Path(scratch) / "base.fvecs")
        svs.write_vecs(float_rows(base), vectors)
        start = time.perf_counter()
        loader = svs.LVQLoader(
            svs.VectorDataLoader(vectors, svs.DataType.float32, shape.n_dims),
            primary=plan.arguments["primary"],
            residual=plan.arguments["residual"],
            padding=32,
            strategy=svs.LVQStrategy.Turbo,
        )
        index = svs.Vamana.build(parameters, loader, _distance(shape), num_threads=threads)
        return index, time.perf_counter() - start


def _has_lvq() -> bool:
    try:
        return "GenuineIntel" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def _distance(shape: Shape) -> Any:
    import svs

    return svs.DistanceType.MIP if shape.metric == "cosine" else svs.DistanceType.L2
