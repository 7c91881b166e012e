"""Time the nearest rows where none is near, by MultiIndex and by a scan; and searches with and without a limit.

    python -m research.benchmarks.nearest_speed --out research/results/nearest_speed.json

Codes and queries are uniform for `nearest`: nothing is near, and tables cannot help. For limits they are the sets L, S
and H of search_sets. One thread; CPU times of the process, in turns, medians.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search import FlatIndex, MultiIndex
from research.benchmarks.search_sets import recipes

# Bits and radius of an index.
KINDS = ((64, 2), (128, 3), (256, 7), (256, 31), (1024, 31))
LIMIT = 10
_N_QUERIES = 256
_REPEATS = 7


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("research/results/nearest_speed.json"), help="JSON file")
    parser.add_argument("--rows", type=int, default=200_000, help="rows (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of codes and queries (default: %(default)s)")
    arguments = parser.parse_args()
    random = np.random.default_rng(arguments.seed)
    nearest: list[dict[str, Any]] = []
    for n_bits, radius in KINDS:
        codes = random.integers(0, 256, (arguments.rows, n_bits // 8), dtype=np.uint8)
        queries = random.integers(0, 256, (_N_QUERIES, n_bits // 8), dtype=np.uint8)
        tables, scan = MultiIndex(n_bits, radius), FlatIndex(n_bits)
        for index in (tables, scan):
            index.add(np.arange(len(codes)), codes)
        times = in_turns(partial(tables.nearest_batch, queries, 10), partial(scan.nearest_batch, queries, 10))
        nearest.append({"n_bits": n_bits, "radius": radius, "tables_to_scan": times[0] / times[1]})
        print(nearest[-1], flush=True)
    limits: list[dict[str, Any]] = []
    for name in ("L", "S", "H"):
        drawn = recipes(arguments.rows)[name].draw(2_000)
        index = MultiIndex(drawn.n_bits, drawn.radius)
        index.add(np.arange(len(drawn.codes)), drawn.codes)
        times = in_turns(
            partial(index.search_batch, drawn.queries, limit=LIMIT), partial(index.search_batch, drawn.queries)
        )
        limits.append({"set": name, "limit": LIMIT, "limited_to_all": times[0] / times[1]})
        print(limits[-1], flush=True)
    results = {"rows": arguments.rows, "nearest": nearest, "limits": limits}
    write_json(arguments.out, {"provenance": provenance(seed=arguments.seed), **results})


def in_turns(*calls: Callable[[], object]) -> list[float]:
    """Return the median CPU seconds of each call, called in turns."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(_REPEATS):
        for call, taken in zip(calls, times, strict=True):
            began = time.process_time()
            call()
            taken.append(time.process_time() - began)
    return [float(np.median(taken)) for taken in times]


if __name__ == "__main__":
    main()
