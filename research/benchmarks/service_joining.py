"""Measure what a query costs in batches of several sizes: what a service could save by joining requests.

    python -m research.benchmarks.service_joining --out research/results/service_joining.json

1,000,000 random 64-bit codes, one thread; the time is the processor's. A service joins requests that wait at the same
time into one search; more than one turn of the slow lane (100 ms) is never joined.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import numpy as np

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.query import Work
from hamtarget.search import MultiIndex

N_BITS = 64
RADIUS = 2
SIZES = (1, 16, 64, 128, 256, 1024, 4096)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the index (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each size (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    load = os.getloadavg()
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 256, (arguments.rows, N_BITS // 8), dtype=np.uint8)
    index = MultiIndex(N_BITS, RADIUS)
    index.add(np.arange(len(codes)), codes)
    queries = codes[generator.integers(0, len(codes), max(SIZES))].copy()
    queries[:, 0] ^= 1
    table: dict[str, dict[int, float]] = {}
    for kind in ("nearest", "search"):
        took: dict[int, list[float]] = {size: [] for size in SIZES}
        for _ in range(arguments.rounds):
            for size in SIZES:
                took[size].append(_microseconds(index, kind, queries, size))
        table[kind] = {size: round(statistics.median(found), 2) for size, found in took.items()}
        print(kind, "microseconds a query, by size of the batch:", table[kind], flush=True)
    if arguments.out is not None:
        setting = {"rows": arguments.rows, "rounds": arguments.rounds, "radius": RADIUS, "limit_or_k": 10}
        result = {"provenance": provenance(seed=0), "load_before": load, "load_after": os.getloadavg()}
        write_json(arguments.out, {**result, "setting": setting, "microseconds_a_query": table})


def _microseconds(index: MultiIndex, kind: str, queries: Codes, size: int) -> float:
    """Return the processor's time for a query in batches of a size."""
    n_queries = max(size, 1024)
    began = time.thread_time()
    for start in range(0, n_queries, size):
        batch = queries[start : start + size]
        if kind == "nearest":
            index.nearest_batch(batch, 10, work=Work(costs=True))
        else:
            index.search_batch(batch, limit=10, work=Work(costs=True))
    return 1e6 * (time.thread_time() - began) / n_queries


if __name__ == "__main__":
    main()
