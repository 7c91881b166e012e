"""Measure whether `NeighborIndex` keeps its promise for queries that no default was chosen by.

    python -m research.benchmarks.fresh_queries --cache ~/peers --out research/results/neighbors_fresh.json

Some defaults were chosen by searches for the first queries of a set, those of `research.benchmarks.neighbors`. The
index that the defaults make is searched for them and for the others, with the recalls that a user may ask for. A lead
that is owed to the choice would show as recall that only the first queries have, or as work that only the others need.
"""

from __future__ import annotations

import argparse
import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search import NeighborIndex
from research.benchmarks.search_sets import data_folder
from research.datasets.neighbor_sets import Sources, prepared_set

RECALLS = (0.8, 0.9, 0.95, 0.99)
ROWS = (10, 100)
ROUNDS = 5
Parts = dict[str, slice]


def recall_of(found: NDArray[np.int64], nearest: NDArray[np.int64]) -> tuple[float, float]:
    """Return the mean share of the nearest rows that were found, and its standard error over queries."""
    shares = [len(np.intersect1d(row, truth)) / len(truth) for row, truth in zip(found, nearest, strict=True)]
    return statistics.mean(shares), statistics.stdev(shares) / len(shares) ** 0.5


def measured(
    index: NeighborIndex, queries: NDArray[Any], nearest: NDArray[np.int64], parts: Parts
) -> list[dict[str, Any]]:
    """Return a record for each number of rows and recall: recall, its error, and milliseconds a query, of each part."""
    records = []
    for k, wanted in product(ROWS, RECALLS):
        figures: dict[str, dict[str, float]] = {}
        seconds: dict[str, list[float]] = {name: [] for name in parts}
        for _ in range(ROUNDS):
            for name, part in parts.items():
                begun = time.process_time()
                found = index.nearest_batch(queries[part], k, recall=wanted).ids
                seconds[name].append((time.process_time() - begun) / len(found))
                recall, error = recall_of(found, nearest[part, :k])
                figures[name] = {"recall": recall, "error": error, "cpu_ms": 1000 * statistics.median(seconds[name])}
        records.append({"k": k, "wanted": wanted, **figures})
        print(records[-1], flush=True)
    return records


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", default="sift", help="set, as `neighbors` names it (default: %(default)s)")
    parser.add_argument("--cache", type=Path, required=True, help="folder for prepared sets")
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of data")
    parser.add_argument("--words", type=Path, help="word vectors, a .npy file")
    parser.add_argument("--first", type=int, default=3000, help="queries that choices were made by")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the results")
    given = parser.parse_args()
    chosen = prepared_set(given.set, given.cache, Sources(given.data, words=given.words))
    base, queries = np.asarray(chosen.base), np.asarray(chosen.queries)
    index = NeighborIndex(metric=chosen.metric).fit(base)
    parts = {"first": slice(0, given.first), "others": slice(given.first, len(queries))}
    records = measured(index, queries, np.asarray(chosen.neighbors), parts)
    counts = {name: len(queries[part]) for name, part in parts.items()}
    write_json(given.out, {"provenance": provenance(seed=0), "set": given.set, "queries": counts, "records": records})


if __name__ == "__main__":
    main()
