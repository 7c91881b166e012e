"""Scalable Vector Search (SVS) in the benchmark of nearest neighbours: a Vamana graph over compressed vectors."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from research.peers.library import Library, Plan, Searcher, Setting, Shape, float_rows, ready_queries

_WINDOWS = (10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448)


class Svs(Library):
    """A Vamana graph with locally-adaptive vector quantisation (LVQ)."""

    name = "SVS"
    package = "scalable-vs"

    def plans(self, shape: Shape) -> list[Plan]:
        """Return graphs over vectors of 8 bits, and of 4 bits with a residual of 8."""
        settings = {k: [{"window": window} for window in _WINDOWS if window >= 0.4 * k] for k in (10, 100)}
        return [
            Plan(
                f"Vamana 32, LVQ{primary}" + (f"x{residual}" if residual else ""),
                {"primary": primary, "residual": residual, "degree": 32, "window": 128},
                settings,
            )
            for primary, residual in ((8, 0), (4, 8))
        ]

    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Build the graph over compressed rows, and write both in SVS's own format."""
        import svs

        rows = float_rows(base)
        arguments = plan.arguments
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            vectors = str(Path(scratch) / "base.fvecs")
            svs.write_vecs(rows, vectors)
            start = time.perf_counter()
            loader = svs.LVQLoader(
                svs.VectorDataLoader(vectors, svs.DataType.float32, shape.n_dims),
                primary=arguments["primary"],
                residual=arguments["residual"],
                padding=32,
                strategy=svs.LVQStrategy.Turbo,
            )
            parameters = svs.VamanaBuildParameters(
                alpha=0.95 if shape.metric == "cosine" else 1.2,
                graph_max_degree=arguments["degree"],
                window_size=arguments["window"],
                prune_to=arguments["degree"] - 4,
            )
            index = svs.Vamana.build(parameters, loader, _distance(shape), num_threads=threads)
            seconds = time.perf_counter() - start
        index.save(str(folder / "config"), str(folder / "graph"), str(folder / "data"))
        return seconds

    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open the index for searches on one thread."""
        import svs

        loader = svs.LVQLoader(str(folder / "data"), padding=32, strategy=svs.LVQStrategy.Turbo)
        graph = svs.GraphLoader(str(folder / "graph"))
        return _Vamana(svs.Vamana(str(folder / "config"), graph, loader, _distance(shape), num_threads=1), shape)


class _Vamana(Searcher):
    def __init__(self, index: Any, shape: Shape) -> None:
        self._index, self._shape = index, shape

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        self._index.search_window_size = max(k, setting["window"])
        found: NDArray[Any] = self._index.search(ready_queries(queries, self._shape), k)[0]
        return found


def _distance(shape: Shape) -> Any:
    import svs

    return svs.DistanceType.MIP if shape.metric == "cosine" else svs.DistanceType.L2
