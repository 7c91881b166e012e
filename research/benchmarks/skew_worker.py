"""Build indexes of one set of codes and answer requests for batches; skew_speed.py starts it in either checkout.

It uses only what hamtarget has had for long, so that an older checkout can run it. Requests and answers are lines of
JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

from hamtarget.query import Work
from hamtarget.search import FlatIndex, MultiIndex


def main() -> None:
    """Build the index with each number of substrings that is asked for, and search batches until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="has codes.npy and queries.npy")
    parser.add_argument("radius", type=int)
    arguments = parser.parse_args()
    folder, radius = arguments.folder, arguments.radius
    codes, queries = np.load(folder / "codes.npy"), np.load(folder / "queries.npy")
    n_bits = 8 * codes.shape[1]
    indexes: dict[str, MultiIndex] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked["substrings"]
        if name not in indexes:
            chosen = None if name == "chosen" else radius + 1
            began = time.perf_counter()
            indexes[name] = MultiIndex(n_bits, radius, substrings=chosen)
            indexes[name].add(np.arange(len(codes)), codes)
            _tell(built_seconds=time.perf_counter() - began, **_facts(indexes[name], codes, queries, radius))
            continue
        start, stop = asked["start"], asked["stop"]
        began = time.perf_counter()
        indexes[name].search_batch(queries[start:stop])
        _tell(microseconds=(time.perf_counter() - began) / (stop - start) * 1e6)


def _facts(index: MultiIndex, codes: np.ndarray, queries: np.ndarray, radius: int) -> dict[str, float | bool]:
    """Return what a search reads and finds, and whether the first queries find what a scan finds."""
    scan = FlatIndex(index.n_bits)
    scan.add(np.arange(len(codes)), codes)
    few = queries[:200]
    found, expected = index.search_batch(few), scan.search_batch(few, radius)
    is_exact = np.array_equal(found.ids, expected.ids) and np.array_equal(found.distances, expected.distances)
    costs = index.search_batch(queries[:2000], work=Work(costs=True))
    return {
        "substrings": index.substrings,
        "bytes_a_row": index.memory / len(codes),
        "candidates": float(np.mean([hits.cost.candidates for hits in costs if hits.cost is not None])),
        "hits": len(costs.ids) / min(2000, len(queries)),
        "is_exact": bool(is_exact),
    }


def _tell(**answer: float | bool) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
