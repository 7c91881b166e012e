"""Measure an index of 64-bit codes as it grows, from a million rows to a hundred million; each size in its own process.

    python -m research.benchmarks.scale_growth --out research/results/scale_growth.json

For each size: building, memory, searches within 2 bits, adding 1,000 rows at a time while parts are merged and others
search, deleting, opening the saved file without verification, and the self-join. Codes are clustered like the set L of
search_sets.py. 100 million rows need about 14 GiB of memory and a free disk of 4 GB (--folder); leave them out on a
smaller machine: `--sizes 1e6 3e6 1e7`. A size that is in the file already is measured again and replaced.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.query import Work
from hamtarget.search import MultiIndex, pairs_within
from research.benchmarks.process_memory import forget_peak, peak_bytes, resident_bytes
from research.benchmarks.search_sets import recipes

_SIZES = (1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
_RADIUS = 2
_BATCH = 20_000
_REPEATS = 9
_ADDED = 1_000
_FEWEST_ADDS, _MOST_ADDS = 300, 6_000
_DELETES = 300


class Growth:
    """One index of `n_rows` rows, and what is measured of it."""

    def __init__(self, n_rows: int) -> None:
        """Draw codes and queries, and rows to be added later from the same clusters."""
        self.n_rows = n_rows
        # Young rows are merged into all others when they are one in 64: add enough to see that happen.
        self.n_adds = int(np.clip(n_rows // 32 // _ADDED * 5 // 4, _FEWEST_ADDS, _MOST_ADDS))
        n_new = self.n_adds * _ADDED
        drawn = replace(recipes(1)["L"], n_rows=n_rows).draw(_BATCH * _REPEATS + n_new)
        self.codes, self.queries, self.new = drawn.codes, drawn.queries[:-n_new], drawn.queries[-n_new:]
        self.index = MultiIndex(64, _RADIUS)

    def measure(self, folder: Path) -> dict[str, Any]:
        """Measure everything, in the order in which an index lives."""
        found: dict[str, Any] = {"n_rows": self.n_rows, "build": self._build()}
        found["search"] = self._searches()
        found["add"] = self._adds()
        found["delete"] = _latencies([_timed(partial(self.index.delete, [31 * i])) for i in range(_DELETES)])
        found["file"] = self._file(folder)
        del self.index
        found["self_join"] = self._self_join()
        return found

    def _build(self) -> dict[str, float]:
        before = resident_bytes()
        forget_peak()
        seconds, _ = _timed(lambda: self.index.add(np.arange(self.n_rows), self.codes))
        return {
            "seconds": seconds,
            "rows_a_second": self.n_rows / seconds,
            "bytes_a_row": self.index.memory / self.n_rows,
            "peak_bytes_a_row": (peak_bytes() - before) / self.n_rows,
        }

    def _batch(self, number: int) -> Codes:
        start = number % _REPEATS * _BATCH
        return self.queries[start : start + _BATCH]

    def _microseconds(self, number: int) -> float:
        """Return the processor's time of this thread for a query of a batch: merges of another thread do not count."""
        return _timed(lambda: self.index.search_batch(self._batch(number)))[1] / _BATCH * 1e6

    def _searches(self) -> dict[str, float]:
        self._microseconds(0)
        microseconds = float(np.median([self._microseconds(number) for number in range(_REPEATS)]))
        hits = self.index.search_batch(self._batch(0))
        return {
            "microseconds": microseconds,
            "queries_a_second": 1e6 / microseconds,
            "hits_a_query": len(hits.rows) / _BATCH,
        }

    def _adds(self) -> dict[str, Any]:
        """Add rows as fast as possible, then slowly; compare searches meanwhile with a compact index."""
        ids = np.arange(self.n_rows, self.n_rows + len(self.new)).reshape(self.n_adds, _ADDED)
        codes = self.new.reshape(self.n_adds, _ADDED, 8)
        forget_peak()
        before = resident_bytes()
        at_once = self.n_adds * 4 // 5
        times = [_timed(partial(self.index.add, ids[i], codes[i])) for i in range(at_once)]
        parts, during = self.index.core.n_parts, [self._microseconds(number) for number in range(_REPEATS)]
        self.index.core.settle()
        settled = [self._microseconds(number) for number in range(_REPEATS)]
        beside = self._searches_beside(lambda i: self.index.add(ids[i], codes[i]), range(at_once, self.n_adds))
        peak = peak_bytes() - before
        self.index.compact()
        self._microseconds(0)
        compact = float(np.median([self._microseconds(number) for number in range(3 * _REPEATS)]))
        return {
            "rows_each": _ADDED,
            "latency": _latencies(times),
            "parts_at_the_end": parts,
            "compact_microseconds": compact,
            "search_ratio_right_after": float(np.median(during)) / compact,
            "search_ratio_after_merges": float(np.median(settled)) / compact,
            "search_ratio_beside_adds": float(np.median(beside)) / compact,
            "peak_bytes_a_row": peak / self.n_rows,
        }

    def _searches_beside(self, add: Callable[[int], None], numbers: range) -> list[float]:
        """Search again and again while another thread adds 1,000 rows every 20 ms."""
        done = threading.Event()

        def write() -> None:
            for number in numbers[:200]:
                add(number)
                time.sleep(0.02)
            done.set()

        writer = threading.Thread(target=write)
        writer.start()
        found: list[float] = []
        while not done.is_set():
            found.append(self._microseconds(len(found)))
        writer.join()
        return found

    def _file(self, folder: Path) -> dict[str, float]:
        path = folder / "index"
        saving, _ = _timed(lambda: self.index.save(path))
        began = time.perf_counter()
        opened = MultiIndex.open(path, verify=False)
        opening = time.perf_counter() - began
        opened.search(self.queries[0])
        searching = time.perf_counter() - began - opening
        size = path.stat().st_size
        path.unlink()
        return {"bytes": size, "save_seconds": saving, "open_seconds": opening, "first_search_seconds": searching}

    def _self_join(self) -> dict[str, float]:
        before = resident_bytes()
        forget_peak()
        n_pairs = 0
        began = time.perf_counter()
        for pairs in pairs_within(self.codes, _RADIUS, work=Work(threads=2)):
            n_pairs += len(pairs.a)
        seconds = time.perf_counter() - began
        return {"seconds": seconds, "pairs": n_pairs, "peak_bytes_a_row": (peak_bytes() - before) / self.n_rows}


def _timed(call: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a call, and those of the processor in this thread."""
    began, worked = time.perf_counter(), time.thread_time()
    call()
    return time.perf_counter() - began, time.thread_time() - worked


def _latencies(times: list[tuple[float, float]]) -> dict[str, float]:
    """Return milliseconds: of the clock, and of the processor, which other programs do not lengthen."""
    clock, processor = 1e3 * np.array(times).T
    return {**_spread(clock, ""), **_spread(processor, "processor_"), "calls": len(times)}


def _spread(numbers: NDArray[np.float64], prefix: str) -> dict[str, float]:
    return {
        f"{prefix}median_ms": float(np.median(numbers)),
        f"{prefix}p99_ms": float(np.quantile(numbers, 0.99)),
        f"{prefix}most_ms": float(numbers.max()),
    }


def _measured_alone(n_rows: int, folder: Path) -> dict[str, Any]:
    """Measure one size in a process of its own, so that its peaks of memory are its own."""
    command = [sys.executable, "-m", __spec__.name, "--worker", str(n_rows), "--folder", str(folder)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def main() -> None:
    """Measure all sizes, print a line for each, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="+", default=list(_SIZES), help="rows (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("research/results/scale_growth.json"), help="JSON file")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for the saved index")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            print(json.dumps(Growth(arguments.worker).measure(Path(folder))))
        return
    sizes: dict[str, Any] = {}
    if arguments.out.exists():
        sizes = json.loads(arguments.out.read_text("utf-8"))["sizes"]
    for size in map(int, arguments.sizes):
        found = sizes[str(size)] = {**_measured_alone(size, arguments.folder), "load": os.getloadavg()[0]}
        build, added = found["build"], found["add"]
        print(
            f"{size:>11,} rows: {build['rows_a_second']:,.0f} rows/s, {build['bytes_a_row']:.1f} bytes a row; "
            f"{found['search']['queries_a_second']:,.0f} q/s; add p99 {added['latency']['p99_ms']:.1f} ms, "
            f"most {added['latency']['most_ms']:.0f} ms; beside adds x{added['search_ratio_beside_adds']:.2f}; "
            f"open {found['file']['open_seconds']:.3f} s; self-join {found['self_join']['seconds']:.1f} s",
            flush=True,
        )
        in_order = dict(sorted(sizes.items(), key=lambda item: int(item[0])))
        write_json(arguments.out, {"sizes": in_order, "provenance": provenance(seed=1)})


if __name__ == "__main__":
    main()
