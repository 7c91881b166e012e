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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402

from hamtarget.codes import Codes  # noqa: E402
from research.benchmarks.search_memory import resident, settle  # noqa: E402
from research.benchmarks.search_methods import (  # noqa: E402
    FaissFlat,
    FaissHash,
    FaissHNSW,
    FaissIVF,
    FaissMultiHash,
    Found,
    Method,
    OurFlatIndex,
    OurMultiIndex,
    Usearch,
    exact_settings,
)
from research.peers.code_peers import (  # noqa: E402
    CodePeer,
    Hammingbird,
    NearestWithin,
    PynearMIH,
    PynearTree,
    PythonTree,
    imagededup_methods,
    threatexchange_methods,
)

# Queries whose hits are compared.
CHECKED = 100
_SINGLE = 200
# Rows of an index that is built first, so that what a library allocates once is not counted.
_WARM_ROWS = 2_000
# Rows and queries by which the fastest setting of a library's hash index is found.
_SWEEP_ROWS = 200_000
_SWEEP_QUERIES = 100
# A setting that takes longer than the fastest so far, and longer than this, is not the fastest.
_SWEEP_SECONDS = 2.0
# Rows of those that would take many minutes with more.
_FEWER_ROWS = 100_000
_ROWS_OF_GRAPHS = 200_000
_SETS_OF_TREES = ("pHash 4", "PDQ 31")
_SETS_OF_GRAPHS = ("pHash 8", "PDQ 31")

Make = Callable[[int, int, Codes], Method]


class Unsuited(ValueError):
    """A library cannot be asked for such codes or such a radius."""


@dataclass(frozen=True)
class Peer:
    """A library's index in the comparison.

    Attributes:
        make: returns it for codes of so many bits, a radius, and these codes.
        most_rows: rows that it gets at most: with more it would take many minutes.
        sets: the sets that it is asked for; all by default.
    """

    make: Make
    most_rows: int | None = None
    sets: tuple[str, ...] | None = None


def _fastest(settings: Callable[[int, int], Sequence[Method]]) -> Make:
    """Return a function that finds the fastest setting of an index on a part of the rows."""

    def fastest(n_bits: int, radius: int, codes: Codes) -> Method:
        part = codes[:: max(1, len(codes) // _SWEEP_ROWS)]
        queries = codes[: _SWEEP_QUERIES * 7 : 7]
        best: tuple[float, Method] | None = None
        # By the time of the processor: other work on the machine must not choose.
        for method in settings(n_bits, radius):
            method.build(part, np.arange(len(part)))
            start = time.process_time()
            for query in queries:
                _call(method, query[None], radius)()
                took = time.process_time() - start
                if best is not None and took > max(_SWEEP_SECONDS, best[0]):
                    break
            if best is None or took < best[0]:
                best = took, method
            method.index = None
        if best is None:
            raise Unsuited(f"no setting is exact within {radius} bits and fast enough to be tried")
        return best[1]

    return fastest


def _settings_of_faiss(kind: type[Method]) -> Callable[[int, int], list[Method]]:
    def settings(n_bits: int, radius: int) -> list[Method]:
        found: list[Method] = [each for each in exact_settings(n_bits, radius) if isinstance(each, kind)]
        if kind is FaissMultiHash:
            # More flips with fewer, longer tables: what threatexchange takes for 256 bits, and the like.
            for hashes in (4, 8, 16):
                flips, bits = radius // hashes, min(32, n_bits // hashes)
                if 1 < flips <= 2 or hashes == 16:
                    found.append(FaissMultiHash(n_bits, hashes=hashes, bits=bits, flips=flips))
        return found

    return settings


def _settings_of_pynear(n_bits: int, radius: int) -> list[Method]:
    # Of substrings of 64 bits it would try too many flips, unless there are enough of them to need none.
    lengths = [bits for bits in (16, 32, 8, 64) if bits < 64 or radius < n_bits // bits]
    return [PynearMIH(n_bits, substrings=n_bits // bits) for bits in lengths]


def _threatexchange(number: int) -> Make:
    def make(n_bits: int, radius: int, codes: Codes) -> Method:
        if (n_bits, radius) != (256, 31):
            raise Unsuited("it takes PDQ hashes only, 256 bits within 31")
        return threatexchange_methods(n_bits)[number]

    return make


def _imagededup_scan(n_bits: int, radius: int, codes: Codes) -> Method:
    if n_bits != 64:
        raise Unsuited("it takes hashes of 64 bits only")
    return imagededup_methods(n_bits)[1]


def _graph(kind: Callable[..., Method]) -> Peer:
    return Peer(
        lambda n_bits, radius, codes: NearestWithin(kind(n_bits, links=16, breadth=128)),
        _ROWS_OF_GRAPHS,
        _SETS_OF_GRAPHS,
    )


PEERS: dict[str, Peer] = {
    "hamtarget MultiIndex": Peer(lambda n_bits, radius, codes: OurMultiIndex(n_bits, radius)),
    "hamtarget FlatIndex": Peer(lambda n_bits, radius, codes: OurFlatIndex(n_bits)),
    "hammingbird Index": Peer(lambda n_bits, radius, codes: Hammingbird(n_bits, radius)),
    "faiss IndexBinaryMultiHash": Peer(_fastest(_settings_of_faiss(FaissMultiHash))),
    "faiss IndexBinaryHash": Peer(_fastest(_settings_of_faiss(FaissHash))),
    "faiss IndexBinaryFlat": Peer(lambda n_bits, radius, codes: FaissFlat(n_bits)),
    "faiss IndexBinaryIVF": Peer(lambda n_bits, radius, codes: FaissIVF(n_bits, probes=16)),
    "faiss IndexBinaryHNSW": _graph(FaissHNSW),
    "usearch": _graph(Usearch),
    "pynear MIHBinaryIndex": Peer(_fastest(_settings_of_pynear)),
    "pynear BKTreeBinaryIndex": Peer(lambda n_bits, radius, codes: PynearTree(n_bits), _FEWER_ROWS, _SETS_OF_TREES),
    "pybktree": Peer(lambda n_bits, radius, codes: PythonTree(n_bits), _FEWER_ROWS, _SETS_OF_TREES),
    "imagededup BKTree": Peer(lambda n_bits, radius, codes: imagededup_methods(n_bits)[0], _FEWER_ROWS, _SETS_OF_TREES),
    "imagededup BruteForceCython": Peer(_imagededup_scan, _FEWER_ROWS, _SETS_OF_TREES),
    "threatexchange PDQIndex": Peer(_threatexchange(0)),
    "threatexchange PDQIndex2": Peer(_threatexchange(1), _FEWER_ROWS, ("PDQ 31",)),
    "threatexchange interface, hamtarget": Peer(_threatexchange(2)),
}
"""All indexes that are compared, ours first."""


def _call(method: Method, queries: Codes, radius: int) -> Callable[[], object]:
    """Return the call for a batch, with the queries in the form in which the library takes them."""
    if isinstance(method, CodePeer):
        asked = method.asked(queries)
        return lambda: method.answer(asked, radius)
    return lambda: method.search(queries, radius)


def _call_one(method: Method, query: Codes, radius: int) -> Callable[[], object]:
    """Return the call for one code, as a user of the library makes it."""
    if isinstance(method, OurMultiIndex | OurFlatIndex):
        search, code = method.index.search, query[0]
        return lambda: search(code, radius)
    if isinstance(method, CodePeer):
        asked = method.asked(query)
        return lambda: method.answer_one(asked, radius)
    return lambda: method.search(query, radius)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    kept = call()
    took = time.perf_counter() - start
    # Freed after the clock stopped.
    del kept
    return took


def _sorted_hits(method: Method, found: Found) -> list[list[tuple[int, int]]]:
    offsets, ids, distances = found
    rows = method.rows(np.asarray(ids))
    pairs = list(zip(rows.tolist(), np.asarray(distances).astype(int).tolist(), strict=True))
    return [sorted(pairs[a:b]) for a, b in zip(offsets[:-1], offsets[1:], strict=True)]


class Turns:
    """A library's index, and what is asked of it."""

    def __init__(self, peer: str, folder: Path, n_bits: int, radius: int) -> None:
        self._folder, self._radius = folder, radius
        self._codes: Codes = np.load(folder / "codes.npy")[: PEERS[peer].most_rows]
        self._method = PEERS[peer].make(n_bits, radius, self._codes)

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
        queries = np.load(self._folder / "queries-0.npy")[: min(CHECKED, self._method.most_queries)]
        return {
            "setting": self._method.setting,
            "exact": self._method.exact,
            "rows": len(self._codes),
            "build_seconds": took,
            "bytes_a_row": grown / len(self._codes),
            "hits": _sorted_hits(self._method, self._method.search(queries, self._radius)),
        }

    def turn(self, turn: int, seconds: float) -> dict[str, Any]:
        """Time fresh queries: one at a time, then as a batch; and some of the codes that are stored.

        Each of the three takes about so many seconds at most.
        """
        queries = np.load(self._folder / f"queries-{turn}.npy")
        times: list[float] = []
        for query in queries[:_SINGLE, None]:
            times.append(_seconds(_call_one(self._method, query, self._radius)))
            if sum(times) > seconds:
                break
        # A query in a batch rarely takes longer than one alone.
        n_queries = max(1, int(seconds / np.median(times)))
        batch = queries[_SINGLE:][:n_queries]
        own = self._codes[np.random.default_rng(turn).integers(0, len(self._codes), len(batch))]
        batch_seconds = _seconds(_call(self._method, batch, self._radius))
        own_seconds = _seconds(_call(self._method, own, self._radius))
        return {
            "first_us": 1e6 * times[0],
            "one_us": 1e6 * float(np.median(times)),
            "queries": len(batch),
            "batch_seconds": batch_seconds,
            "own_codes_per_second": len(own) / own_seconds,
        }


def main() -> None:
    """Answer requests until the input ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("peer", choices=list(PEERS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("n_bits", type=int)
    parser.add_argument("radius", type=int)
    asked = parser.parse_args()
    out = sys.stdout
    turns: Turns | None = None
    # Libraries may print; answers go to the pipe alone.
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            request = json.loads(line)
            answer: dict[str, Any]
            try:
                if turns is None:
                    turns = Turns(asked.peer, asked.folder, asked.n_bits, asked.radius)
                answer = turns.build() if request["do"] == "build" else turns.turn(request["turn"], request["seconds"])
            except Unsuited as error:
                answer = {"unsuited": str(error)}
            except ModuleNotFoundError as error:
                answer = {"error": f"{error.name} is not installed"}
            # Whatever goes wrong inside of a library: it is left out, and the others are measured.
            except Exception as error:  # noqa: BLE001
                answer = {"error": f"{type(error).__name__}: {error}"[:300]}
            out.write(json.dumps(answer) + "\n")
            out.flush()


if __name__ == "__main__":
    main()
