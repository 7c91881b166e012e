"""Measure what a second thread gains in a batch, beside what a second process gains that shares nothing.

    python -m research.benchmarks.thread_gain --out research/results/thread_gain.json

Two processes with an index each are the most that two cores can do on this machine: where memory is what both wait for,
they gain less than two times, and so do threads. Sets L, S and H of search_sets; medians of several batches.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.query import Work
from hamtarget.search import MultiIndex
from research.benchmarks.search_sets import CodeSet, recipes

SETS = ("L", "S", "H")
_BATCH = 10_000
_BATCHES = 8
_ROUNDS = 5


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("research/results/thread_gain.json"), help="JSON file")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (default: %(default)s)")
    arguments = parser.parse_args()
    sets = {}
    for name in SETS:
        sets[name] = measure(recipes(arguments.rows)[name].draw(_BATCH * _BATCHES))
        print(name, sets[name], flush=True)
    results = {"rows": arguments.rows, "batch": _BATCH, "sets": sets, "load": os.getloadavg()[0]}
    write_json(arguments.out, {"provenance": provenance(seed=0), **results})


def measure(drawn: CodeSet) -> dict[str, Any]:
    """Return microseconds of a query by one thread, by two, and by each of two processes."""
    index = _index(drawn)
    batches = np.split(drawn.queries, _BATCHES)
    # Memory of results is kept after a few batches.
    for threads in (1, 2):
        _microseconds(index, batches, threads)
    rounds = [[_microseconds(index, batches, threads) for threads in (1, 2)] for _ in range(_ROUNDS)]
    one, two = (float(np.median(times)) for times in zip(*rounds, strict=True))
    del index
    each = _two_processes(drawn)
    return {
        "one_thread_us": one,
        "two_threads_us": two,
        "two_processes_us": each / 2,
        "gain_of_threads": one / two,
        "gain_of_processes": 2 * one / each,
    }


def _index(drawn: CodeSet) -> MultiIndex:
    index = MultiIndex(drawn.n_bits, drawn.radius)
    index.add(np.arange(len(drawn.codes)), drawn.codes)
    return index


def _microseconds(index: MultiIndex, batches: list[Codes], threads: int) -> float:
    times = []
    for batch in batches:
        start = time.perf_counter()
        found = index.search_batch(batch, work=Work(threads=threads))
        times.append(time.perf_counter() - start)
        del found
    return float(np.median(times)) / _BATCH * 1e6


def _two_processes(drawn: CodeSet) -> float:
    """Return microseconds of a query in each of two processes that search at the same time."""
    context = multiprocessing.get_context("fork")
    barrier, answers = context.Barrier(2), context.SimpleQueue()
    processes = [context.Process(target=_search_alone, args=(drawn, barrier, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    found = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return float(np.median(found))


def _search_alone(drawn: CodeSet, barrier: Barrier, answers: Any) -> None:
    index, batches = _index(drawn), np.split(drawn.queries, _BATCHES)
    _microseconds(index, batches, 1)
    barrier.wait()
    answers.put(float(np.median([_microseconds(index, batches, 1) for _ in range(_ROUNDS)])))


if __name__ == "__main__":
    main()
