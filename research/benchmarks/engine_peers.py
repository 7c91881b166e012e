"""Measure search within a radius beside every library that can be installed, each in a process of its own.

    python -m research.benchmarks.engine_peers --pictures DIR --out research/results/engine_peers.json

Two libraries in one process slow each other down by their threads. Here each builds its index in its own process, and
waits; the processes are then asked in turns, one at a time, for queries that none of them has seen. `DIR` is what
research/datasets/picture_codes.py wrote. Hits are compared before anything is timed. docs/search-benchmark.md has the
table, which `--table FILE` prints.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.evaluation.provenance import provenance, write_json
from research.benchmarks.engine_worker import PEERS
from research.benchmarks.search_sets import CodeSet, recipes

_SEED = 11
_QUERIES_OF_TURN = 2_000
# A peer that takes longer to build, or for its first queries, is left out of that set.
_PATIENCE = 240
_NAMES_OF_SETS = ("L", "S", "H", "uniform 256", "pHash 4", "pHash 8", "dHash 4", "PDQ 31")


class Worker:
    """One library with one set, in a process that waits for requests."""

    def __init__(self, peer: str, folder: Path, n_bits: int, radius: int) -> None:
        self.peer = peer
        command = [
            sys.executable,
            "-m",
            "research.benchmarks.engine_worker",
            peer,
            str(folder),
            str(n_bits),
            str(radius),
        ]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            RuntimeError: the process ended.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise RuntimeError("the process has no pipes")
        clock = threading.Timer(_PATIENCE, self._process.kill)
        clock.start()
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        line = stdout.readline()
        clock.cancel()
        if not line:
            error = self._process.stderr.read() if self._process.stderr else ""
            raise RuntimeError(
                error.strip().splitlines()[-1][:300] if error.strip() else f"it ended, or took more than {_PATIENCE} s"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


def code_sets(names: list[str], n_rows: int, n_queries: int, pictures: Path | None) -> list[CodeSet]:
    """Return the sets, with fresh queries for all turns."""
    sets = []
    for name in names:
        if name in ("L", "S", "H"):
            sets.append(recipes(n_rows)[name].draw(n_queries))
        elif name == "uniform 256":
            random = np.random.default_rng(_SEED)
            codes = random.integers(0, 256, (n_rows, 32), dtype=np.uint8)
            flips = np.packbits(random.random((n_queries, 256)) < 0.06, axis=1)
            queries = codes[random.integers(0, n_rows, n_queries)] ^ flips
            sets.append(CodeSet(name, 256, 31, codes, queries, {"generator": "uniform", "seed": _SEED}))
        elif pictures is None:
            print(f"SKIPPED {name}: --pictures does not name a folder of picture codes", flush=True)
        else:
            kind, radius = name.split()
            codes = np.load(pictures / f"{kind.lower()}.npy")
            order = np.random.default_rng(_SEED).permutation(len(codes))
            queries, rows = codes[order[:n_queries]], codes[np.sort(order[n_queries : n_queries + n_rows])]
            origin = {"codes": kind, "of": "photos and altered views; queries are views that are not stored"}
            sets.append(CodeSet(name, 8 * codes.shape[1], int(radius), rows, queries, origin))
    return sets


def measure(code_set: CodeSet, peers: list[str], turns: int) -> dict[str, Any]:
    """Return the figures of every library with one set."""
    result: dict[str, Any] = {"rows": len(code_set.codes), "n_bits": code_set.n_bits, "radius": code_set.radius}
    result |= {"origin": code_set.origin, "peers": {}, "skipped": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "codes.npy", code_set.codes)
        for turn, queries in enumerate(np.array_split(code_set.queries, turns + 1)):
            np.save(folder / f"queries-{turn}.npy", np.ascontiguousarray(queries))
        workers = []
        for peer in peers:
            worker = Worker(peer, folder, code_set.n_bits, code_set.radius)
            try:
                built = worker.ask(do="build")
                _agree(peer, built, result)
                result["peers"][peer] = {**built, "turns": []}
                workers.append(worker)
                print(f"{code_set.name}: {peer} built in {built['build_seconds']:.1f} s", flush=True)
            except RuntimeError as error:
                worker.end()
                result["skipped"][peer] = str(error)
                print(f"SKIPPED {peer} on {code_set.name}: {error}", flush=True)
        for turn in range(1, turns + 1):
            for worker in list(workers):
                load = os.getloadavg()[0]
                try:
                    result["peers"][worker.peer]["turns"].append({**worker.ask(do="turn", turn=turn), "load": load})
                except RuntimeError as error:
                    worker.end()
                    workers.remove(worker)
                    del result["peers"][worker.peer]
                    result["skipped"][worker.peer] = str(error)
        for worker in workers:
            worker.end()
    for peer, found in result["peers"].items():
        found |= _medians(found["turns"])
        print(f"{code_set.name}: {peer:40} {found['queries_per_second']:12,.0f} q/s", flush=True)
    return result


def _agree(peer: str, built: dict[str, Any], result: dict[str, Any]) -> None:
    """Compare the hits of the first queries with ours, which are built first.

    Raises:
        RuntimeError: an exact library finds something else.
    """
    ours = result.setdefault("first_hits", built["hits"])
    n_queries = len(built["hits"])
    if built["exact"] and built["hits"] != ours[:n_queries]:
        raise RuntimeError(f"{peer} finds other hits than ours")
    # Rows are compared, whatever their order.
    if not n_queries:
        # It has fewer rows than ours.
        del built["hits"]
        return
    wanted = [set(map(tuple, hits)) for hits in ours[:n_queries]]
    found = [set(map(tuple, hits)) for hits in built["hits"]]
    n_wanted = sum(map(len, wanted))
    built["recall"] = sum(len(a & b) for a, b in zip(wanted, found, strict=True)) / n_wanted if n_wanted else 1.0
    del built["hits"]


def _medians(turns: list[dict[str, Any]]) -> dict[str, float]:
    return {
        "queries_per_second": float(np.median([turn["queries"] / turn["batch_seconds"] for turn in turns])),
        "first_of_turn_us": float(np.median([turn["first_us"] for turn in turns])),
        "one_us": float(np.median([turn["one_us"] for turn in turns])),
        "own_codes_per_second": float(np.median([turn["own_codes_per_second"] for turn in turns])),
    }


def table(results: dict[str, Any]) -> str:
    """Return the results as a table in Markdown, a block for each set."""
    lines = []
    for name, found in results["sets"].items():
        lines += [
            f"**{name}**: {found['rows']:,} x {found['n_bits']} bits, within {found['radius']}",
            "",
            "| library | rows | recall | batch, q/s | one code, us | first of a turn, us | own codes, rows/s "
            "| build, s | bytes/row |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        order = sorted(found["peers"].items(), key=lambda item: -item[1]["queries_per_second"])
        for peer, row in order:
            lines.append(
                f"| {peer} {row['setting']} | {row['rows']:,} | {_recall(row)} | {row['queries_per_second']:,.0f} "
                f"| {row['one_us']:,.1f} | {row['first_of_turn_us']:,.0f} | {row['own_codes_per_second']:,.0f} "
                f"| {row['build_seconds']:.1f} | {row['bytes_a_row']:.0f} |"
            )
        lines += ["", *(f"Left out: {peer}, {why}." for peer, why in found["skipped"].items()), ""]
    return "\n".join(lines)


def _recall(row: dict[str, Any]) -> str:
    return f"{row['recall']:.3f}" if "recall" in row else "fewer rows"


def main() -> None:
    """Measure all sets, print and write; or print a file as a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--sets", nargs="*", default=list(_NAMES_OF_SETS), choices=_NAMES_OF_SETS)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--pictures", type=Path, help="folder that research/datasets/picture_codes.py wrote")
    parser.add_argument("--out", type=Path, default=Path("research/results/engine_peers.json"))
    parser.add_argument("--table", type=Path, help="print this file as a table, and measure nothing")
    asked = parser.parse_args()
    if asked.table is not None:
        print(table(json.loads(asked.table.read_text(encoding="utf-8"))))
        return
    start = time.perf_counter()
    results: dict[str, Any] = {"sets": {}, "load_before": os.getloadavg()[0]}
    for code_set in code_sets(asked.sets, asked.rows, (asked.turns + 1) * _QUERIES_OF_TURN, asked.pictures):
        results["sets"][code_set.name] = measure(code_set, asked.peers, asked.turns)
        results["minutes"] = (time.perf_counter() - start) / 60
        write_json(asked.out, {**results, "provenance": provenance(seed=_SEED)})
    print(table(results))


if __name__ == "__main__":
    main()
