"""Measure recall, speed, comparisons and memory of faiss's vector indexes on SIFT: the peers of the paper's figure 4.

    make bench-peers
    python -m research.benchmarks.sift_peers --cache /tmp/peers --out research/results/sift_peers.json

Searches use one thread. Building all indexes of a million rows takes about ten minutes, most of it for the graph; with
--cache they are built once. --rows measures only the first rows, with neighbours computed anew, and --queries only the
first queries. Such a run is a trial, and its figures do not count.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from hamtarget.datasets import VectorSet, open_vector_set
from hamtarget.datasets.neighbor_cache import cached_neighbors
from hamtarget.evaluation.provenance import provenance, write_json
from research.benchmarks.search_sets import data_folder
from research.paper.peers import measure_peers
from research.peers.faiss_peers import faiss_version, figure4_peers


def first_part(vectors: VectorSet, n_rows: int, n_queries: int, cache: Path | None) -> VectorSet:
    """Return the set with only the first rows of its base and the first queries, and their neighbours."""
    base, queries = vectors.base[:n_rows], vectors.queries[:n_queries]
    neighbors = vectors.neighbors[:n_queries]
    if len(base) < len(vectors.base):
        neighbors = cached_neighbors(queries, base, 100, folder=cache or data_folder())
    return replace(vectors, base=base, queries=queries, neighbors=neighbors)


def main() -> None:
    """Measure, report progress, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=data_folder() / "sift1m", help="folder of a set of vectors")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    parser.add_argument("--cache", type=Path, help="folder for built indexes")
    parser.add_argument("--rows", type=int, default=sys.maxsize, help="number of rows of the base")
    parser.add_argument("--queries", type=int, default=sys.maxsize, help="number of queries")
    parser.add_argument("--only", default="", help="only peers whose name contains this")
    parser.add_argument(
        "--repeats", type=int, default=5, help="number of timings; the median counts (default: %(default)s)"
    )
    parser.add_argument(
        "--timed-queries", type=int, default=1000, help="number of queries that are timed (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of all random choices (default: %(default)s)")
    options = parser.parse_args()

    start = time.perf_counter()

    def say(line: str) -> None:
        print(f"[{time.perf_counter() - start:6.0f} s] {line}", flush=True)

    vectors = first_part(open_vector_set(options.data), options.rows, options.queries, options.cache)
    say(f"{vectors.name}: {len(vectors.base):,} rows, {len(vectors.queries):,} queries; load {os.getloadavg()[0]:.1f}")
    peers = [peer for peer in figure4_peers(whole_bytes=vectors.base.dtype == np.uint8) if options.only in peer.name]
    rows = measure_peers(
        peers,
        vectors,
        repeats=options.repeats,
        timed_queries=options.timed_queries,
        seed=options.seed,
        cache=options.cache,
        report=say,
    )
    if options.out is not None:
        origin = provenance(seed=options.seed)
        origin["versions"]["faiss"] = faiss_version()
        setting = {"set": vectors.name, "n_rows": len(vectors.base), "n_queries": len(vectors.queries), "threads": 1}
        write_json(options.out, {"provenance": origin, "setting": setting, "rows": rows})


if __name__ == "__main__":
    main()
