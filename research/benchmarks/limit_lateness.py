"""Measure how long after its deadline a search ends, for every way in which rows are read.

    python -m research.benchmarks.limit_lateness --out research/results/limit_lateness.json

Each search would take seconds to minutes. It gets deadlines from 10 to 300 ms; its lateness is the time from the
deadline to the moment at which `LimitError` has reached the caller.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.errors import LimitError
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.query import Asked, Bounds, RunningBounds, Work
from hamtarget.search import Embeddings, FlatIndex, MultiIndex

N_DIMS = 32
N_QUERIES = 8_192


def searches(n_rows: int) -> dict[str, Callable[[RunningBounds], Any]]:
    """Return searches by what they spend their time with."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, (n_rows, 8), dtype=np.uint8)
    vectors = rng.standard_normal((n_rows, N_DIMS)).astype(np.float32)
    one = MultiIndex(64, radius=2, embeddings=Embeddings(N_DIMS))
    one.add(np.arange(n_rows), codes, vectors)
    one.compact()
    parts = MultiIndex(64, radius=2)
    for piece in np.split(rng.permutation(n_rows), [n_rows * 3 // 4, n_rows - 500]):
        parts.add(3 * piece, codes[piece])
    flat = FlatIndex(64)
    flat.add(np.arange(n_rows), codes)
    copies = MultiIndex(64, radius=2)
    copies.add(np.arange(n_rows), np.zeros_like(codes))
    queries, zeros = codes[:N_QUERIES], np.zeros((N_QUERIES, 8), dtype=np.uint8)
    logits = rng.standard_normal((N_QUERIES, 64)).astype(np.float32)
    equal = np.where(logits > 0, np.float32(1), np.float32(-1))
    half = rng.random(n_rows) < 0.5
    some = np.flatnonzero(half)
    ranked = Asked(queries, embeddings=vectors[:N_QUERIES])
    many = np.tile(codes, (16, 1))
    return {
        "own buckets": lambda bounds: one.search_batch(many, work=Work(bounds)),
        "flipped buckets": lambda bounds: one.search_batch(queries, 9, work=Work(bounds)),
        "scan, all rows are hits": lambda bounds: one.search_batch(queries, 63, work=Work(bounds)),
        "scan, several parts": lambda bounds: parts.search_batch(queries, 63, work=Work(bounds)),
        "scan, two threads": lambda bounds: one.search_batch(queries, 63, work=Work(bounds, threads=2)),
        "flat index": lambda bounds: flat.search_batch(queries, 20, work=Work(bounds)),
        "one code in all rows": lambda bounds: copies.search_batch(zeros, work=Work(bounds)),
        "large limit": lambda bounds: parts.search_batch(queries, 63, limit=n_rows // 2, work=Work(bounds)),
        "nearest": lambda bounds: one.nearest_batch(queries, 1000, work=Work(bounds)),
        "re-ranking": lambda bounds: one.search_batch(ranked, 63, rerank=10, work=Work(bounds)),
        "probing": lambda bounds: one.search_batch(
            Asked(logits=logits), budget=n_rows // 2, radius=63, work=Work(bounds)
        ),
        "probing, equal logits": lambda bounds: one.search_batch(
            Asked(logits=equal), budget=n_rows // 2, radius=63, work=Work(bounds)
        ),
        "probing, ranked by logits": lambda bounds: parts.search_batch(
            Asked(logits=logits), budget=n_rows // 2, radius=63, rerank=1000, work=Work(bounds)
        ),
        "mask": lambda bounds: one.search_batch(queries, 40, filter=half, work=Work(bounds)),
        "ids": lambda bounds: one.search_batch(queries, 40, filter=some, work=Work(bounds)),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of an index (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("research/results/limit_lateness.json"), help="JSON file")
    arguments = parser.parse_args()
    results = {}
    for name, search in searches(arguments.rows).items():
        late = sorted(_lateness(search, deadline) for deadline in np.linspace(0.01, 0.3, 20).tolist())
        results[name] = {"median_ms": statistics.median(late), "highest_ms": late[-1]}
        print(f"{name:28} median {statistics.median(late):6.1f} ms, highest {late[-1]:6.1f} ms", flush=True)
    write_json(
        arguments.out,
        {"provenance": provenance(seed=0), "setting": {"rows": arguments.rows}, "lateness": results},
    )


def _lateness(search: Callable[[RunningBounds], Any], deadline: float) -> float:
    """Return milliseconds from the deadline to the error."""
    bounds = Bounds(seconds=deadline).start()
    try:
        search(bounds)
    except LimitError:
        return -1000 * bounds.seconds_left
    raise RuntimeError(f"a search ended before its deadline of {deadline} s; give it more rows")


if __name__ == "__main__":
    main()
