"""ScaNN in the benchmark of nearest neighbours."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from research.peers.library import Library, Plan, Searcher, Setting, Shape, float_rows, ready_queries


class Scann(Library):
    """Leaves, 4-bit codes scanned by byte shuffles, and reordering by stored vectors."""

    name = "ScaNN"
    package = "scann"

    def plans(self, shape: Shape) -> list[Plan]:
        """Return trees of two sizes, with reordering by float32 and by int8."""
        few, many = shape.cells()
        builds: list[dict[str, Any]] = [
            {"leaves": few, "block": 2, "reorder": "FLOAT32", "threshold": 0.2},
            {"leaves": many, "block": 2, "reorder": "FLOAT32", "threshold": 0.2},
            {"leaves": many, "block": 2, "reorder": "INT8", "threshold": 0.2},
            {"leaves": many, "block": 4, "reorder": "INT8", "threshold": 0.2},
        ]
        if shape.metric == "cosine":
            # Rows in a second leaf as well (SOAR), which ScaNN offers for dot products only.
            builds.append({"leaves": many, "block": 2, "reorder": "INT8", "threshold": 0.2, "soar": 1.5})
        else:
            # Noise shaping is meant for dot products: measured with and without it.
            builds.append({"leaves": many, "block": 2, "reorder": "INT8", "threshold": None})
        searched = (2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384)
        reordered = {10: (20, 40, 80, 160, 320, 640), 100: (100, 200, 400, 800)}
        settings = {
            k: [{"leaves_to_search": leaves, "reorder": count} for count in counts for leaves in searched]
            for k, counts in reordered.items()
        }
        return [
            Plan(
                f"{build['leaves']} leaves, block {build['block']}, {build['reorder']}"
                + ("" if build["threshold"] is None else f", AQ {build['threshold']}")
                + (", SOAR" if "soar" in build else ""),
                build,
                settings,
            )
            for build in builds
        ]

    def build(self, plan: Plan, base: NDArray[Any], shape: Shape, folder: Path, threads: int) -> float:
        """Build with all threads, and write in ScaNN's own format."""
        from scann.scann_ops.py import scann_builder, scann_ops_pybind

        rows = float_rows(base)
        arguments = plan.arguments
        start = time.perf_counter()
        measure = "dot_product" if shape.metric == "cosine" else "squared_l2"
        learned = min(len(rows), 250_000)
        tree = {"num_leaves": arguments["leaves"], "num_leaves_to_search": 32, "training_sample_size": learned}
        if "soar" in arguments:
            tree["soar_lambda"] = arguments["soar"]
        threshold = arguments["threshold"] if arguments["threshold"] is not None else float("nan")
        searcher = (
            scann_ops_pybind.builder(rows, 100, measure)
            .set_n_training_threads(threads)
            .tree(**tree)
            .score_ah(arguments["block"], anisotropic_quantization_threshold=threshold, training_sample_size=learned)
            .reorder(200, quantize=scann_builder.ReorderType[arguments["reorder"]])
            .build()
        )
        seconds = time.perf_counter() - start
        searcher.serialize(str(folder), relative_path=True)
        return seconds

    def open(self, plan: Plan, shape: Shape, folder: Path) -> Searcher:
        """Open the index for searches on one thread."""
        from scann.scann_ops.py import scann_ops_pybind

        searcher = scann_ops_pybind.load_searcher(os.fspath(folder))
        searcher.set_num_threads(1)
        return _Tree(searcher, shape)


class _Tree(Searcher):
    def __init__(self, searcher: Any, shape: Shape) -> None:
        self._searcher, self._shape = searcher, shape

    def search(self, queries: NDArray[Any], k: int, setting: Setting) -> NDArray[Any]:
        found, _ = self._searcher.search_batched(
            ready_queries(queries, self._shape),
            final_num_neighbors=k,
            pre_reorder_num_neighbors=setting["reorder"],
            leaves_to_search=setting["leaves_to_search"],
        )
        return np.asarray(found)
