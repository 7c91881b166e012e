"""Measure look-ups of 256-bit codes within 31 bits while rows come and go: what a service that matches PDQ hashes does.

    python -m research.benchmarks.wide_look_ups --rows 10000000 --out research/results/wide_look_ups.json

Uniform codes, or those of a .npy file (--codes) and copies that differ in about 64 bits, until there are --rows.
Half of the queries are copies of stored codes with 0 to 31 flipped bits, and each must find its row; the others are far
from everything. A writer adds and deletes 1,000 rows a second, 100 at a time, all the while. Look-ups are timed in
batches on two threads, and one at a time.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.query import Work
from hamtarget.search import MultiIndex
from research.benchmarks.process_memory import forget_peak, peak_bytes

N_BITS, RADIUS = 256, 31
_WRITES_A_SECOND, _ROWS_A_WRITE = 10, 100
_BATCH = 2_000


def flipped(codes: Codes, most: int, random: np.random.Generator) -> Codes:
    """Return copies of codes, each with 0 to `most` bits flipped."""
    counts = random.integers(0, most + 1, len(codes))
    places = random.random((len(codes), N_BITS)).argsort(axis=1).argsort(axis=1)
    return codes ^ np.packbits(places < counts[:, None], axis=1, bitorder="little")


def base_codes(path: Path | None, n_rows: int, random: np.random.Generator) -> Codes:
    """Return the codes to search in."""
    if path is None:
        return random.integers(0, 256, (n_rows, N_BITS // 8), dtype=np.uint8)
    real = np.load(path, allow_pickle=False)[:n_rows]
    parts = [real]
    while sum(map(len, parts)) < n_rows:
        # As many bits as two unlike photos differ by at least: such rows are no copies of each other.
        noise = random.integers(0, 256, real.shape, dtype=np.uint8) & random.integers(
            0, 256, real.shape, dtype=np.uint8
        )
        parts.append(real ^ noise)
    return np.concatenate(parts)[:n_rows]


class Writer(threading.Thread):
    """Adds and deletes rows at a steady pace until it is told to stop."""

    def __init__(self, index: MultiIndex, first_id: int) -> None:
        super().__init__(name="writer")
        self.longest_seconds = 0.0
        self.n_written = 0
        self._index, self._next = index, first_id
        self._stop_asked = threading.Event()

    def run(self) -> None:
        """Write, and note how long the slowest write took."""
        random = np.random.default_rng(2)
        due = time.perf_counter()
        while not self._stop_asked.wait(max(0.0, due - time.perf_counter())):
            due += 1 / _WRITES_A_SECOND
            start = time.perf_counter()
            ids = np.arange(self._next, self._next + _ROWS_A_WRITE)
            self._index.add(ids, random.integers(0, 256, (_ROWS_A_WRITE, N_BITS // 8), dtype=np.uint8))
            if self.n_written:
                self._index.delete(ids - _ROWS_A_WRITE)
            self.longest_seconds = max(self.longest_seconds, time.perf_counter() - start)
            self._next += _ROWS_A_WRITE
            self.n_written += 1

    def stop(self) -> None:
        """End after the write at hand."""
        self._stop_asked.set()
        self.join()


def measure(codes: Codes, seconds: float, random: np.random.Generator) -> dict[str, Any]:
    """Build the index, search it while it is written to, and return all figures."""
    n_rows = len(codes)
    index = MultiIndex(N_BITS, RADIUS)
    forget_peak()
    begin = time.perf_counter()
    index.add(np.arange(n_rows), codes)
    built = time.perf_counter() - begin
    explained = index.explain()
    writer = Writer(index, n_rows)
    writer.start()
    batches, singles, missed, n_asked = [], [], 0, 0
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        rows = random.integers(0, n_rows, _BATCH // 2)
        near = flipped(codes[rows], RADIUS, random)
        queries = np.concatenate([near, random.integers(0, 256, near.shape, dtype=np.uint8)])
        begin = time.perf_counter()
        found = index.search_batch(queries, work=Work(threads=2))
        batches.append(time.perf_counter() - begin)
        missed += sum(all(hit.id != row for hit in found[i]) for i, row in enumerate(rows.tolist()))
        n_asked += len(rows)
        for query in queries[:: len(queries) // 200]:
            begin = time.perf_counter()
            index.search(query)
            singles.append(time.perf_counter() - begin)
    writer.stop()
    alone: NDArray[np.float64] = 1e3 * np.array(singles)
    return {
        "rows": n_rows,
        "build_seconds": built,
        "peak_bytes_a_row": peak_bytes() / n_rows,
        "bytes_a_row": index.memory / len(index),
        "substrings": explained.tables.substrings,
        "look_ups_a_second": _BATCH / float(np.median(batches)),
        "one_milliseconds": {"median": float(np.median(alone)), "p99": float(np.percentile(alone, 99))},
        "longest_write_milliseconds": 1e3 * writer.longest_seconds,
        "rows_added_and_deleted": writer.n_written * _ROWS_A_WRITE,
        "near_copies_asked_for": n_asked,
        "near_copies_missed": missed,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--codes", type=Path, help=".npy file of real codes, uint8 of shape (rows, 32)")
    parser.add_argument("--seconds", type=float, default=60.0, help="time of the look-ups (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    found = measure(base_codes(options.codes, options.rows, random), options.seconds, random)
    print(found)
    if options.out is not None:
        write_json(options.out, {"provenance": provenance(seed=0), "real_codes": options.codes is not None, **found})


if __name__ == "__main__":
    main()
