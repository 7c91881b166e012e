"""Measure searches of uneven and repeated codes before and after the engine was made for them.

    python -m research.benchmarks.skew_speed --pictures DIR --before ../before --out research/results/skew_speed.json

`../before` is a checkout of an earlier state with an environment in its `.venv`, DIR what picture_codes wrote. Each set
is searched by three indexes: that of the earlier state with radius + 1 substrings, that of the earlier state with the
number that it chooses, and that of this checkout. Both checkouts have processes of their own, which take turns; every
batch is fresh, and medians count. The hits of 200 queries are compared with those of a scan.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.codes import Codes
from hamtarget.errors import InputError
from hamtarget.evaluation.provenance import provenance, write_json
from research.benchmarks.search_sets import recipes, sift_sets

_ROWS = 1_000_000
_SEED = 3
_BATCHES = 7
# Queries of a batch by the bits of a code: a batch takes some milliseconds.
_QUERIES = {64: 4_000, 256: 1_000}
_PICTURES = (("phash", 4), ("phash", 8), ("phash", 12), ("dhash", 4), ("dhash", 8), ("pdq", 31))
# Names of the measured indexes: checkout, and substrings.
_INDEXES = (("before", "radius + 1"), ("before", "chosen"), ("now", "chosen"))


class Process:
    """An environment that searches one set."""

    def __init__(self, python: Path, folder: Path, radius: int) -> None:
        command = [str(python), str(Path(__file__).with_name("skew_worker.py")), str(folder), str(radius)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request."""
        if self._process.stdin is None or self._process.stdout is None:
            raise InputError("the process of a checkout has no pipes")
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def end(self) -> None:
        """Let the process end."""
        self._process.communicate()


def main() -> None:
    """Measure every set, print a line for each, and write them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pictures", type=Path, required=True, help="folder that picture_codes wrote")
    parser.add_argument("--before", type=Path, required=True, help="checkout of the earlier state")
    parser.add_argument("--rows", type=int, default=_ROWS, help="rows of a set (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("research/results/skew_speed.json"), help="JSON file")
    arguments = parser.parse_args()
    commit = subprocess.run(
        ["git", "-C", str(arguments.before), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    results: dict[str, Any] = {}
    for name, codes, queries, radius in _sets(arguments.pictures, arguments.rows):
        results[name] = _measured(codes, queries, radius, arguments.before / ".venv" / "bin" / "python")
        print(name, json.dumps(results[name]), flush=True)
        write_json(arguments.out, {"provenance": provenance(seed=_SEED), "before": commit, "sets": results})


def _sets(pictures: Path, n_rows: int) -> list[tuple[str, Codes, Codes, int]]:
    random = np.random.default_rng(_SEED)
    sets = []
    for name, radius in _PICTURES:
        codes = np.load(pictures / f"{name}.npy")
        codes = codes[random.permutation(len(codes))]
        n_queries = _BATCHES * _QUERIES[8 * codes.shape[1]]
        sets.append((f"{name} {radius}", codes[:-n_queries][:n_rows], codes[-n_queries:], radius))
    n_queries = _BATCHES * _QUERIES[64]
    for radius in (2, 4):
        drawn = recipes(n_rows)["S"].draw(n_queries)
        sets.append((f"S {radius}", drawn.codes, drawn.queries, radius))
    for drawn in sift_sets(n_rows, n_queries, seed=_SEED):
        if drawn.name == "SIFT ITQ":
            sets.append(("SIFT ITQ 2", drawn.codes, drawn.queries, drawn.radius))
    return sets


def _measured(codes: Codes, queries: Codes, radius: int, python: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"rows": len(codes), "different": len(np.unique(codes, axis=0)), "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "codes.npy", np.ascontiguousarray(codes))
        np.save(Path(folder) / "queries.npy", np.ascontiguousarray(queries))
        processes = {
            "before": Process(python, Path(folder), radius),
            "now": Process(Path(sys.executable), Path(folder), radius),
        }
        times: dict[str, list[float]] = {}
        for checkout, substrings in _INDEXES:
            found[f"{checkout}, {substrings}"] = processes[checkout].ask(substrings=substrings)
        size = len(queries) // _BATCHES
        for start in range(0, size * _BATCHES, size):
            for checkout, substrings in _INDEXES:
                answer = processes[checkout].ask(substrings=substrings, start=start, stop=start + size)
                times.setdefault(f"{checkout}, {substrings}", []).append(answer["microseconds"])
        for process in processes.values():
            process.end()
    for name, taken in times.items():
        found[name]["microseconds"] = float(np.median(taken))
    now = found["now, chosen"]["microseconds"]
    for name in ("radius + 1", "chosen"):
        found[f"times as fast as before, {name}"] = found[f"before, {name}"]["microseconds"] / now
    return found


if __name__ == "__main__":
    main()
