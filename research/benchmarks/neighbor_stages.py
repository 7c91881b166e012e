"""Measure where a search for neighbours of vectors spends its time, stage by stage.

    python -m research.benchmarks.neighbor_stages --rows 1000000 --cells 4096

Vectors are generated: uint8, in clusters. Each stage is the difference of two searches of which one does less: it
visits one cell that is given, or reads one row, or compares one row. Times are CPU time of one thread, the shortest of
several runs, for one query of a batch and for single queries. Nothing is written: figures depend on the data, ratios of
stages less so.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native
from hamtarget.search.neighbors.training import train_centres, train_codebooks

_N_DIMS = 128
_REPEATS = 5


def generated(n_rows: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """Return rows around 1,000 points, whose first dimensions differ most."""
    spread = np.linspace(40, 10, _N_DIMS)
    points = random.normal(size=(1000, _N_DIMS)) * spread
    rows = np.empty((n_rows, _N_DIMS), dtype=np.uint8)
    for first in range(0, n_rows, 100_000):
        some = points[random.integers(1000, size=min(100_000, n_rows - first))]
        rows[first : first + len(some)] = np.clip(some + random.normal(size=some.shape) * spread * 0.7 + 100, 0, 255)
    return rows


def microseconds(search: Callable[[NDArray[np.float32]], object], batches: list[NDArray[np.float32]]) -> float:
    """Return the CPU time of one query, in microseconds."""
    best = float("inf")
    for _ in range(_REPEATS):
        begin = time.thread_time()
        for queries in batches:
            search(queries)
        best = min(best, time.thread_time() - begin)
    return 1e6 * best / sum(map(len, batches))


def main() -> None:
    """Build an index and print the time of each stage."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cells", type=int, default=4096)
    parser.add_argument("--dims-per-part", type=int, default=3)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--budget", type=int, default=8000)
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--kernel", choices=_native.neighbor_kernels(), default=None)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    rows = generated(options.rows, random)
    sample = rows[random.choice(len(rows), min(len(rows), 30 * options.cells), replace=False)].astype(np.float32)
    centres = train_centres(sample, options.cells, random, lambda share: None)
    residuals = sample[:30_000] - centres[_native.nearest_centres(sample[:30_000], centres)[0]]
    codebooks = train_codebooks(residuals, options.dims_per_part, random, lambda share: None)
    core = _native.NeighborCore(_N_DIMS, "l2", "uint8", centres, codebooks, kernel=options.kernel)
    core.add(np.arange(len(rows)), rows, threads=2)
    queries = generated(options.queries, random).astype(np.float32)
    bytes_of = {name: round(count / len(rows), 1) for name, count in core.bytes().items()}
    print(f"{len(rows):,} rows, {options.cells:,} cells; bytes a row: {bytes_of}")  # noqa: T201
    budget, comparisons = options.budget, options.comparisons
    for name, batches in (
        ("a batch", [queries]),
        ("single queries", [queries[i : i + 1] for i in range(min(500, len(queries)))]),
    ):
        tables = microseconds(
            lambda some: core.search_cells(some, np.zeros((len(some), 1), np.int32), 1, 1, 1), batches
        )
        cells = microseconds(lambda some: core.search(some, 1, 1, 1), batches)
        reading = microseconds(lambda some: core.search(some, 1, budget, 1), batches)
        everything = microseconds(lambda some: core.search(some, 10, budget, comparisons), batches)
        print(  # noqa: T201
            f"{name}: {everything:.1f} us; tables {tables:.1f}, choosing cells {cells - tables:.1f}, "
            f"reading {budget:,} sketches {reading - cells:.1f}, choosing {comparisons} rows and comparing them "
            f"{everything - reading:.1f}"
        )


if __name__ == "__main__":
    main()
