"""Build or measure one index of one library, in a process of its own: `neighbors` starts it.

python -m research.benchmarks.neighbors_worker REQUEST.json RESULT.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.evaluation.provenance import write_json
from research.datasets.neighbor_sets import NeighborSet, open_prepared
from research.peers.libraries import LIBRARIES
from research.peers.library import Plan, Searcher, Setting, Shape, saved_bytes

_WARMING_QUERIES = 200


def shape_of(vectors: NeighborSet) -> Shape:
    """Return the facts about a set that settings depend on."""
    rows, columns = vectors.base.shape
    return Shape(rows, columns, vectors.metric, "uint8" if vectors.base.dtype == np.uint8 else "float32")


def recalls(found: NDArray[Any], neighbors: NDArray[np.int64], k: int) -> tuple[float, float]:
    """Return the share of queries whose nearest is among the k found, and the share of the k nearest that is found."""
    nearest = (found[:, :k] == neighbors[:, :1]).any(axis=1).mean()
    true = neighbors[:, :k]
    # Ids of a row do not repeat, so that equal ones after sorting are hits; -1, for nothing found, is in no list.
    both = np.sort(np.concatenate([found[:, :k].astype(np.int64), true], axis=1), axis=1)
    hits = ((both[:, 1:] == both[:, :-1]) & (both[:, 1:] >= 0)).sum()
    return float(nearest), float(hits / true.size)


def measure(
    searcher: Searcher,
    vectors: NeighborSet,
    settings: dict[int, list[Setting]],
    which: slice,
    *,
    least_seconds: float,
) -> list[dict[str, Any]]:
    """Return a record for each k and setting: recall, seconds and CPU seconds for these queries in one batch.

    A search that takes less than `least_seconds` is repeated up to this sum, and the mean is taken.
    """
    queries = np.array(vectors.queries[which])
    neighbors = np.asarray(vectors.neighbors[which])
    records: list[dict[str, Any]] = []
    for k, choices in settings.items():
        for number, setting in enumerate(choices):
            if number == 0:
                searcher.search(queries[:_WARMING_QUERIES], k, setting)
            repeats, wall, cpu = 0, 0.0, 0.0
            while repeats == 0 or wall < least_seconds:
                wall_start, cpu_start = time.perf_counter(), time.process_time()
                found = searcher.search(queries, k, setting)
                cpu += time.process_time() - cpu_start
                wall += time.perf_counter() - wall_start
                repeats += 1
            nearest, recall = recalls(np.asarray(found), neighbors, k)
            records.append(
                {
                    "k": k,
                    "setting": dict(setting),
                    "nearest_found": nearest,
                    "recall": recall,
                    "seconds": wall / repeats,
                    "cpu_seconds": cpu / repeats,
                    "bytes_per_row": searcher.bytes_per_row(setting),
                }
            )
    return records


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Do what a request asks for."""
    cache, folder = Path(request["cache"]), Path(request["folder"])
    vectors = open_prepared(request["set"], cache)
    shape = shape_of(vectors)
    library = LIBRARIES[request["library"]]
    settings = {int(k): choices for k, choices in request["settings"].items()}
    plan = Plan(request["label"], request["arguments"], settings)
    if request["task"] == "build":
        cpu_start = time.process_time()
        seconds = library.build(plan, vectors.base, shape, folder, request["threads"])
        return {
            "build_seconds": seconds,
            "build_cpu_seconds": time.process_time() - cpu_start,
            "bytes_per_row": saved_bytes(folder) / shape.n_rows,
        }
    before = _resident()
    start = time.perf_counter()
    searcher = library.open(plan, shape, folder)
    opened = time.perf_counter() - start
    which = slice(*request["queries"])
    records = measure(searcher, vectors, settings, which, least_seconds=request["least_seconds"])
    grown = max(0, _resident() - before)
    return {"records": records, "open_seconds": opened, "resident_bytes_per_row": grown / shape.n_rows}


def _resident() -> int:
    """Return the memory of this process that is not a file's, in bytes; 0 where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def main() -> None:
    """Read the request, answer it, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("request", type=Path, help="JSON file that `neighbors` wrote")
    parser.add_argument("result", type=Path, help="JSON file to write")
    arguments = parser.parse_args()
    write_json(arguments.result, answer(json.loads(arguments.request.read_text())))


if __name__ == "__main__":
    main()
