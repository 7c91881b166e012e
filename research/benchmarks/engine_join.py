"""Find all pairs of a set of codes within a radius by one library in this process; engine_peers.py starts it.

    python -m research.benchmarks.engine_join hammingbird codes.npy 2 --memory 14

Prints a line of JSON. The library computes on one thread. First it finds the pairs of a few rows, whose digest tells
whether two libraries find the same; then those of all rows, which is timed, with the index that it needs.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"):
    os.environ[_variable] = "1"

import numpy as np  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from hamtarget.codes import Codes  # noqa: E402
from hamtarget.query import Work  # noqa: E402
from hamtarget.search import pairs_within  # noqa: E402
from research.benchmarks.search_memory import resident  # noqa: E402
from research.peers.code_peers import HAMMINGBIRD_JOINS, hammingbird_pairs  # noqa: E402

# Rows whose pairs are compared with those of other libraries.
CHECKED_ROWS = 20_000
# Rows by which the fastest of a library's functions is found.
_SWEEP_ROWS = 50_000


class OurPairs:
    """`hamtarget.search.pairs_within`."""

    setting = ""

    def choose(self, codes: Codes, radius: int) -> None:
        """Choose nothing: there is one function."""

    def count(self, codes: Codes, radius: int) -> int:
        """Find all pairs, in blocks; return how many there are."""
        return sum(len(block.a) for block in pairs_within(codes, radius, work=Work(threads=1)))

    def pairs(self, codes: Codes, radius: int) -> NDArray[np.int64]:
        """Return all pairs: row, later row, distance."""
        blocks = [
            np.stack(block, axis=1).astype(np.int64) for block in pairs_within(codes, radius, work=Work(threads=1))
        ]
        return np.concatenate([np.empty((0, 3), np.int64), *blocks])


class HammingbirdPairs:
    """The fastest of hammingbird's functions for all pairs of a set."""

    setting = HAMMINGBIRD_JOINS[1]

    def choose(self, codes: Codes, radius: int) -> None:
        """Choose the function that is the fastest on a part of the rows."""
        times = []
        for function in HAMMINGBIRD_JOINS:
            find = hammingbird_pairs(function)
            start = time.process_time()
            # One of them takes a radius below the number of bytes only.
            with contextlib.suppress(ValueError):
                find(codes[:_SWEEP_ROWS], radius)
                times.append((time.process_time() - start, function))
        self.setting = min(times)[1]

    def count(self, codes: Codes, radius: int) -> int:
        """Find all pairs, as a list; return how many there are."""
        return len(hammingbird_pairs(self.setting)(codes, radius))

    def pairs(self, codes: Codes, radius: int) -> NDArray[np.int64]:
        """Return all pairs: row, later row, distance."""
        return np.array(hammingbird_pairs(self.setting)(codes, radius), dtype=np.int64).reshape(-1, 3)


JOINS: dict[str, Callable[[], OurPairs | HammingbirdPairs]] = {
    "hamtarget pairs_within": OurPairs,
    "hammingbird": HammingbirdPairs,
}
"""The libraries that have a search for all pairs of a set; ours first."""


def digest_of(pairs: NDArray[np.int64]) -> str:
    """Return a digest of pairs, whatever their order."""
    ordered = pairs[np.lexsort(pairs.T[::-1])]
    return hashlib.sha256(np.ascontiguousarray(ordered).tobytes()).hexdigest()[:16]


def join(name: str, codes: Codes, radius: int) -> dict[str, Any]:
    """Return what finding all pairs took, how many there are, and a digest of those of the first rows."""
    library = JOINS[name]()
    library.choose(codes, radius)
    checked = library.pairs(codes[:CHECKED_ROWS], radius)
    start = time.perf_counter()
    n_pairs = library.count(codes, radius)
    took = time.perf_counter() - start
    return {
        "setting": library.setting,
        "seconds": took,
        "pairs": n_pairs,
        "checked_pairs": len(checked),
        "digest": digest_of(checked),
        "peak_gb": resident("VmHWM") / 1e9,
    }


def main() -> None:
    """Find all pairs, and print what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=list(JOINS))
    parser.add_argument("codes", type=Path, help="codes as a file of numpy")
    parser.add_argument("radius", type=int)
    parser.add_argument("--rows", type=int, help="take the first so many rows (default: all)")
    parser.add_argument("--memory", type=float, default=14.0, help="most memory of the process, in GiB (default: 14)")
    asked = parser.parse_args()
    most = int(asked.memory * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    codes = np.ascontiguousarray(np.load(asked.codes)[: asked.rows])
    with contextlib.redirect_stdout(sys.stderr):
        found = join(asked.library, codes, asked.radius)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
