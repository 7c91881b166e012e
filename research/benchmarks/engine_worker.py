"""Build one library's index in this process, and answer requests for turns; engine_peers.py starts it.

Requests and answers are lines of JSON. The libraries compute on one thread.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402

from hamtarget.codes import Codes  # noqa: E402
from research.benchmarks.search_memory import resident, settle  # noqa: E402
from research.benchmarks.search_methods import (  # noqa: E402
    FaissFlat,
    FaissHash,
    FaissIVF,
    FaissMultiHash,
    Found,
    Method,
    OurFlatIndex,
    OurMultiIndex,
    exact_settings,
)
from research.peers.code_peers import PynearMIH, PynearTree, PythonTree, threatexchange_methods  # noqa: E402

_CHECKED = 100
_SINGLE = 200
# Queries that tell how many fit into a turn.
_TRIED = 10
# Rows of an index that is built first, so that what a library allocates once is not counted.
_WARM_ROWS = 2_000
_SECONDS_OF_TURN = 4.0
# Rows and queries by which the fastest exact setting of faiss's hash indexes is found.
_SWEEP_ROWS = 200_000
_SWEEP_QUERIES = 100


def _best_of_faiss(kind: type[Method]) -> Callable[[int, int, Codes], Method]:
    """Return a function that finds the fastest exact setting of a kind of index on a part of the rows."""

    def best(n_bits: int, radius: int, codes: Codes) -> Method:
        part = codes[:: max(1, len(codes) // _SWEEP_ROWS)]
        queries = codes[: _SWEEP_QUERIES * 7 : 7]
        settings = [each for each in exact_settings(n_bits, radius) if isinstance(each, kind)]
        if kind is FaissMultiHash:
            # More flips with fewer, longer tables: what threatexchange takes for 256 bits, and the like.
            for hashes in (4, 8, 16):
                flips, bits = radius // hashes, min(32, n_bits // hashes)
                if 1 < flips <= 2 or hashes == 16:
                    settings.append(FaissMultiHash(n_bits, hashes=hashes, bits=bits, flips=flips))
        times: list[tuple[float, int]] = []
        for number, method in enumerate(settings):
            method.build(part, np.arange(len(part)))
            start = time.perf_counter()
            method.search(queries, radius)
            times.append((time.perf_counter() - start, number))
            method.index = None
        if not times:
            raise ValueError(f"no setting is exact within {radius} bits")
        return settings[min(times)[1]]

    return best


def _threatexchange(number: int) -> Callable[[int, int, Codes], Method]:
    def make(n_bits: int, radius: int, codes: Codes) -> Method:
        if (n_bits, radius) != (256, 31):
            raise ValueError("it takes PDQ hashes only, 256 bits within 31")
        return threatexchange_methods(n_bits)[number]

    return make


PEERS: dict[str, tuple[Callable[[int, int, Codes], Method], int | None]] = {
    "hamtarget MultiIndex": (lambda n_bits, radius, codes: OurMultiIndex(n_bits, radius), None),
    "hamtarget FlatIndex": (lambda n_bits, radius, codes: OurFlatIndex(n_bits), None),
    "faiss IndexBinaryMultiHash": (_best_of_faiss(FaissMultiHash), None),
    "faiss IndexBinaryHash": (_best_of_faiss(FaissHash), None),
    "faiss IndexBinaryFlat": (lambda n_bits, radius, codes: FaissFlat(n_bits), None),
    "faiss IndexBinaryIVF": (lambda n_bits, radius, codes: FaissIVF(n_bits, probes=16), None),
    "pynear MIHBinaryIndex": (lambda n_bits, radius, codes: PynearMIH(n_bits, substrings=n_bits // 16), None),
    "pynear BKTreeBinaryIndex": (lambda n_bits, radius, codes: PynearTree(n_bits), 100_000),
    "pybktree": (lambda n_bits, radius, codes: PythonTree(n_bits), 100_000),
    "threatexchange PDQIndex": (_threatexchange(0), None),
    "threatexchange PDQIndex2": (_threatexchange(1), 100_000),
    "threatexchange interface, hamtarget": (_threatexchange(2), None),
}
"""How each library's index is made, and most rows that it gets: with more it would take many minutes."""


def _one(method: Method, radius: int) -> Callable[[Codes], object]:
    """Return the call for one code, as a user of the library makes it."""
    if isinstance(method, OurMultiIndex | OurFlatIndex):
        search = method.index.search
        return lambda code: search(code[0], radius)
    return lambda code: method.search(code, radius)


def _sorted_hits(method: Method, found: Found) -> list[list[tuple[int, int]]]:
    offsets, ids, distances = found
    rows = method.rows(np.asarray(ids))
    pairs = list(zip(rows.tolist(), np.asarray(distances).astype(int).tolist(), strict=True))
    return [sorted(pairs[a:b]) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


class Turns:
    """A library's index, and what is asked of it."""

    def __init__(self, peer: str, folder: Path, n_bits: int, radius: int) -> None:
        self._folder, self._radius = folder, radius
        self._codes: Codes = np.load(folder / "codes.npy")
        make, most_rows = PEERS[peer]
        self._method = make(n_bits, radius, self._codes)
        self._all_rows = len(self._codes)
        self._codes = self._codes[:most_rows]

    def build(self) -> dict[str, Any]:
        """Build the index; return its costs, and the hits of some queries."""
        warm = self._codes[:_WARM_ROWS]
        self._method.build(warm, np.arange(len(warm)))
        self._method.search(warm[:1], self._radius)
        self._method.index = None
        settle()
        before = resident("VmRSS")
        start = time.perf_counter()
        self._method.build(self._codes, np.arange(len(self._codes)))
        took = time.perf_counter() - start
        settle()
        grown = resident("VmRSS") - before
        # With fewer rows, hits cannot be compared with those of all rows.
        is_whole = len(self._codes) == self._all_rows
        n_checked = min(_CHECKED, self._method.most_queries) if is_whole else 0
        queries = np.load(self._folder / "queries-0.npy")[:n_checked]
        return {
            "setting": self._method.setting,
            "exact": self._method.exact,
            "rows": len(self._codes),
            "build_seconds": took,
            "bytes_a_row": grown / len(self._codes),
            "hits": _sorted_hits(self._method, self._method.search(queries, self._radius)) if n_checked else [],
        }

    def turn(self, turn: int) -> dict[str, Any]:
        """Time fresh queries: one at a time, then as a batch; and some of the codes that are stored."""
        queries = np.load(self._folder / f"queries-{turn}.npy")
        one = _one(self._method, self._radius)
        times = []
        start = time.perf_counter()
        for query in queries[:_SINGLE, None]:
            began = time.perf_counter()
            one(query)
            times.append(time.perf_counter() - began)
            if time.perf_counter() - start > _SECONDS_OF_TURN:
                break
        own = self._codes[np.random.default_rng(turn).integers(0, len(self._codes), len(queries))]
        batch, batch_seconds = self._timed(queries[_SINGLE:])
        n_own, own_seconds = self._timed(own)
        return {
            "first_us": 1e6 * times[0],
            "one_us": 1e6 * float(np.median(times)),
            "queries": batch,
            "batch_seconds": batch_seconds,
            "own_codes_per_second": n_own / own_seconds,
        }

    def _timed(self, queries: Codes) -> tuple[int, float]:
        """Search for one batch of as many queries as take some seconds; return how many, and how long it took."""
        start = time.perf_counter()
        self._method.search(queries[:_TRIED], self._radius)
        n_queries = int(_SECONDS_OF_TURN * _TRIED / (time.perf_counter() - start))
        batch = queries[_TRIED:][: max(1, n_queries)]
        start = time.perf_counter()
        self._method.search(batch, self._radius)
        return len(batch), time.perf_counter() - start


def main() -> None:
    """Answer requests until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("n_bits", type=int)
    parser.add_argument("radius", type=int)
    asked = parser.parse_args()
    out = sys.stdout
    # Libraries may print; answers go to the pipe alone.
    with contextlib.redirect_stdout(sys.stderr):
        turns = Turns(asked.peer, asked.folder, asked.n_bits, asked.radius)
        for line in sys.stdin:
            request = json.loads(line)
            answer = turns.build() if request["do"] == "build" else turns.turn(request["turn"])
            out.write(json.dumps(answer) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
