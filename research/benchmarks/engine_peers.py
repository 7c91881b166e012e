"""Measure search within a radius beside every library that can be installed, each in a process of its own.

    python -m research.benchmarks.engine_peers --pictures DIR --out research/results/engine_peers.json

Two libraries in one process slow each other down by their threads. Here each builds its index in its own process, and
waits; the processes are then asked in turns, one at a time, for queries that none of them has seen. `DIR` is what
research/datasets/picture_codes.py wrote. Hits are compared before anything is timed. Libraries that find all pairs of a
set are asked for them, too. A library that fails, is too slow or is not installed is left out of that set, and the
result says why. `--table FILE` prints the tables of a result, or writes them into a page:

    python -m research.benchmarks.engine_peers --table FILE --page docs/search-benchmark.md
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from research.benchmarks.engine_join import JOINS
from research.benchmarks.engine_table import SETS, in_page, table
from research.benchmarks.engine_worker import CHECKED, PEERS
from research.benchmarks.search_sets import CodeSet, recipes

_SEED = 11
_QUERIES_OF_TURN = 8_000
# A peer that takes longer to build, or for a turn, is left out of that set; and so is a search for all pairs.
_PATIENCE = 120
_PATIENCE_OF_JOIN = 240
# A search for all pairs that takes longer than this is done once.
_LONG_JOIN = 10.0
# Rows of which all pairs are searched where a library cannot do it with all.
_FEWER_ROWS_OF_JOIN = 100_000
# Of random codes, no two are near; so that there are pairs to be found, one row in so many is a copy.
_ROWS_TO_A_COPY = 100
_NOT_INSTALLED = "is not installed"
_PACKAGES = ("faiss-cpu", "hammingbird", "imagededup", "pybktree", "pynear", "threatexchange", "usearch")


class LeftOut(Exception):
    """A library is left out of a set; the message is the reason."""


class NotAsked(LeftOut):
    """A library is not made for such a set."""


class Worker:
    """One library with one set, in a process that waits for requests."""

    def __init__(self, peer: str, folder: Path, n_bits: int, radius: int) -> None:
        self.peer = peer
        # In a file, since a full pipe would stop the process.
        self._errors = tempfile.TemporaryFile(mode="w+", encoding="utf-8")
        self._process = subprocess.Popen(
            _python("engine_worker", peer, str(folder), str(n_bits), str(radius)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer to a request.

        Raises:
            LeftOut: the library failed, or took too long.
        """
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise LeftOut("the process has no pipes")
        late = threading.Event()

        def stop() -> None:
            late.set()
            self._process.kill()

        clock = threading.Timer(_PATIENCE, stop)
        clock.start()
        with contextlib.suppress(BrokenPipeError):
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
        line = stdout.readline()
        clock.cancel()
        if not line:
            raise LeftOut(_too_slow(_PATIENCE) if late.is_set() else self._last_words())
        answer: dict[str, Any] = json.loads(line)
        if "unsuited" in answer:
            raise NotAsked(answer["unsuited"])
        if "error" in answer:
            raise LeftOut(answer["error"])
        return answer

    def _last_words(self) -> str:
        self._process.wait()
        self._errors.seek(0)
        return _ended(self._process.returncode, self._errors.read())

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def _python(script: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", f"research.benchmarks.{script}", *arguments]


def _too_slow(seconds: float) -> str:
    return f"it took more than {seconds:.0f} s"


def _ended(code: int, errors: str) -> str:
    """Return why a process ended: memory, a missing library, a signal, or the last line that it wrote."""
    last = (errors.strip().splitlines() or [""])[-1]
    if "memory allocation" in errors or "MemoryError" in last or code == -signal.SIGKILL:
        return "it ran out of memory"
    missing = re.fullmatch(r"ModuleNotFoundError: No module named '(\w+).*'", last)
    if missing is not None:
        return f"{missing[1]} {_NOT_INSTALLED}"
    if code < 0:
        return f"it was ended by signal {signal.Signals(-code).name}"
    return last[:300] or f"it ended with status {code}"


def code_sets(names: list[str], n_rows: int, n_queries: int, pictures: Path | None) -> list[CodeSet]:
    """Return the sets, with fresh queries for all turns."""
    sets = []
    for name in names:
        kind, _, radius = name.partition(" ")
        if not radius:
            sets.append(recipes(n_rows)[name].draw(n_queries))
        elif kind == "uniform":
            sets.append(_uniform(name, int(radius), n_rows, n_queries))
        elif pictures is None:
            print(f"SKIPPED {name}: --pictures does not name a folder of picture codes", flush=True)
        else:
            codes = np.load(pictures / f"{kind.lower()}.npy")
            order = np.random.default_rng(_SEED).permutation(len(codes))
            # In no order: the first rows, which some libraries get alone, are of all photos.
            queries, rows = codes[order[:n_queries]], codes[order[n_queries : n_queries + n_rows]]
            origin = {"codes": kind, "of": "photos and altered views; queries are views that are not stored"}
            sets.append(CodeSet(name, 8 * codes.shape[1], int(radius), rows, queries, origin))
    return sets


def _uniform(name: str, radius: int, n_rows: int, n_queries: int) -> CodeSet:
    """Return random codes of 256 bits. Queries and some rows are copies of rows, half the radius away on average."""
    random = np.random.default_rng(_SEED)
    codes = random.integers(0, 256, (n_rows, 32), dtype=np.uint8)
    share = radius / 2 / 256

    def altered(of: Codes) -> Codes:
        flips: Codes = np.packbits(random.random((len(of), 256), dtype=np.float32) < share, axis=1)
        return of ^ flips

    copies = np.arange(1, n_rows, _ROWS_TO_A_COPY)
    codes[copies] = altered(codes[copies - 1])
    queries = altered(codes[random.integers(0, n_rows, n_queries)])
    origin = {"generator": "uniform", "flipped": share, "rows_to_a_copy": _ROWS_TO_A_COPY, "seed": _SEED}
    return CodeSet(name, 256, radius, codes, queries, origin)


def measure(code_set: CodeSet, peers: list[str], turns: int, seconds: float) -> dict[str, Any]:
    """Return the figures of every library with one set."""
    result: dict[str, Any] = {"rows": len(code_set.codes), "n_bits": code_set.n_bits, "radius": code_set.radius}
    result |= {"origin": code_set.origin, "peers": {}, "skipped": {}, "not_asked": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "codes.npy", code_set.codes)
        for turn, queries in enumerate(np.array_split(code_set.queries, turns + 1)):
            np.save(folder / f"queries-{turn}.npy", np.ascontiguousarray(queries))
        wanted = scanned(code_set.codes, np.load(folder / "queries-0.npy")[:CHECKED], code_set.radius)
        workers = []
        for peer in peers:
            sets = PEERS[peer].sets
            if sets is not None and code_set.name not in sets:
                result["not_asked"][peer] = f"it is measured on {' and '.join(sets)} only"
                continue
            worker = Worker(peer, folder, code_set.n_bits, code_set.radius)
            try:
                built = worker.ask(do="build")
                result["peers"][peer] = {**_compared(built, wanted), "turns": []}
                workers.append(worker)
                print(f"{code_set.name}: {peer} built in {built['build_seconds']:.1f} s", flush=True)
            except LeftOut as reason:
                worker.end()
                _leave_out(code_set.name, peer, reason, result)
        for turn in range(1, turns + 1):
            for worker in list(workers):
                load = os.getloadavg()[0]
                try:
                    found = worker.ask(do="turn", turn=turn, seconds=seconds)
                    result["peers"][worker.peer]["turns"].append({**found, "load": load})
                except LeftOut as reason:
                    worker.end()
                    workers.remove(worker)
                    del result["peers"][worker.peer]
                    _leave_out(code_set.name, worker.peer, reason, result)
        for worker in workers:
            worker.end()
    for peer, found in result["peers"].items():
        found |= _medians(found["turns"])
        print(f"{code_set.name}: {peer:40} {found['queries_per_second']:12,.0f} q/s", flush=True)
    return result


def _leave_out(set_name: str, peer: str, reason: LeftOut, result: dict[str, Any]) -> None:
    result["not_asked" if isinstance(reason, NotAsked) else "skipped"][peer] = str(reason)
    print(f"{'NOT ASKED' if isinstance(reason, NotAsked) else 'SKIPPED'} {peer} on {set_name}: {reason}", flush=True)


def scanned(codes: Codes, queries: Codes, radius: int) -> list[set[tuple[int, int]]]:
    """Return the hits of each query, rows and distances, by a plain scan in numpy."""
    found = []
    words = codes.view(np.uint64)
    for query in queries.view(np.uint64):
        distances = np.zeros(len(codes), dtype=np.uint16)
        for column, word in zip(words.T, query, strict=True):
            distances += np.bitwise_count(column ^ word)
        near = np.flatnonzero(distances <= radius)
        found.append(set(zip(near.tolist(), distances[near].tolist(), strict=True)))
    return found


def _compared(built: dict[str, Any], wanted: list[set[tuple[int, int]]]) -> dict[str, Any]:
    """Return what building gave, with the recall of the first queries instead of their hits.

    A library with fewer rows has the first of them.

    Raises:
        LeftOut: the library is exact, and finds something else.
    """
    found = [{(row, distance) for row, distance in hits} for hits in built["hits"]]
    there = [{hit for hit in hits if hit[0] < built["rows"]} for hits in wanted[: len(found)]]
    if built["exact"] and found != there:
        raise LeftOut("it finds other hits than a plain scan")
    n_hits = sum(map(len, there))
    n_found = sum(len(a & b) for a, b in zip(there, found, strict=True))
    return {
        **{key: value for key, value in built.items() if key != "hits"},
        "compared_queries": len(found),
        "compared_hits": n_hits,
        "recall": n_found / n_hits if n_hits else 1.0,
    }


def _medians(turns: list[dict[str, Any]]) -> dict[str, float]:
    return {
        "queries_per_second": float(np.median([turn["queries"] / turn["batch_seconds"] for turn in turns])),
        "first_of_turn_us": float(np.median([turn["first_us"] for turn in turns])),
        "one_us": float(np.median([turn["one_us"] for turn in turns])),
        "own_codes_per_second": float(np.median([turn["own_codes_per_second"] for turn in turns])),
    }


def all_pairs(code_set: CodeSet, libraries: list[str], turns: int, memory: float) -> dict[str, Any]:
    """Return what finding all pairs of a set took, by the number of rows.

    A library that cannot do it with all rows is asked again for fewer, and so are the others.
    """
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "codes.npy"
        np.save(path, code_set.codes)
        for n_rows in (len(code_set.codes), _FEWER_ROWS_OF_JOIN):
            if str(n_rows) in result or n_rows > len(code_set.codes):
                continue
            found = _joined(code_set, path, n_rows, libraries, turns, memory)
            result[str(n_rows)] = found
            if all(reason.endswith(_NOT_INSTALLED) for reason in found["skipped"].values()):
                break
    return result


def _joined(
    code_set: CodeSet, path: Path, n_rows: int, libraries: list[str], turns: int, memory: float
) -> dict[str, Any]:
    result: dict[str, Any] = {"radius": code_set.radius, "rows": n_rows, "libraries": {}, "skipped": {}}
    asked = list(libraries)
    for _ in range(turns):
        for name in list(asked):
            load = os.getloadavg()[0]
            try:
                found = _join(name, path, code_set.radius, n_rows, memory)
                same = {key: found[key] for key in ("pairs", "checked_pairs", "digest")}
                # Ours are asked first; later turns compare with themselves, too.
                if result.setdefault("found", same) != same:
                    raise LeftOut("it finds other pairs than ours")
            except LeftOut as reason:
                asked.remove(name)
                result["libraries"].pop(name, None)
                result["skipped"][name] = str(reason)
                print(f"SKIPPED {name} on {code_set.name}, {n_rows:,} rows: {reason}", flush=True)
                continue
            row = result["libraries"].setdefault(name, {"seconds": [], "load": [], "peak_gb": 0.0})
            row["seconds"].append(found["seconds"])
            row["load"].append(load)
            row |= {"setting": found["setting"], "peak_gb": max(row["peak_gb"], found["peak_gb"])}
            print(f"{code_set.name}: {name} found {found['pairs']:,} pairs in {found['seconds']:.2f} s", flush=True)
            if found["seconds"] > _LONG_JOIN:
                asked.remove(name)
    return result


def _join(name: str, path: Path, radius: int, n_rows: int, memory: float) -> dict[str, Any]:
    """Find all pairs in a new process.

    Raises:
        LeftOut: the library failed, took too long or needed too much memory.
    """
    command = _python("engine_join", name, str(path), str(radius), "--rows", str(n_rows), "--memory", str(memory))
    try:
        done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=_PATIENCE_OF_JOIN)
    except subprocess.TimeoutExpired:
        raise LeftOut(_too_slow(_PATIENCE_OF_JOIN)) from None
    if done.returncode:
        raise LeftOut(_ended(done.returncode, done.stderr))
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _loads(results: dict[str, Any]) -> list[float]:
    """Return the load of the machine at the beginning of each turn."""
    peers = [peer for found in results["sets"].values() for peer in found["peers"].values()]
    joins = [
        each for found in results["joins"].values() for rows in found.values() for each in rows["libraries"].values()
    ]
    return [turn["load"] for peer in peers for turn in peer["turns"]] + [
        load for join in joins for load in join["load"]
    ]


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def main() -> None:
    """Measure all sets, print and write; or print a file as tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.5, help="most of each part of a turn (default: 1.5)")
    parser.add_argument("--memory", type=float, default=14.0, help="GiB that a search for all pairs may take")
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=SETS)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--joins", nargs="*", default=list(JOINS), choices=list(JOINS))
    parser.add_argument("--pictures", type=Path, help="folder that research/datasets/picture_codes.py wrote")
    parser.add_argument("--out", type=Path, default=Path("research/results/engine_peers.json"))
    parser.add_argument("--table", type=Path, help="print this file as tables, and measure nothing")
    parser.add_argument("--page", type=Path, help="write the tables of --table into this page instead of printing them")
    asked = parser.parse_args()
    if asked.table is not None:
        tables = table(json.loads(asked.table.read_text(encoding="utf-8")), asked.table.name)
        if asked.page is None:
            print(tables)
        else:
            asked.page.write_text(in_page(asked.page.read_text(encoding="utf-8"), tables), encoding="utf-8")
        return
    if asked.page is not None:
        parser.error("--page needs --table: the results whose tables the page is to have")
    start = time.perf_counter()
    results: dict[str, Any] = {"sets": {}, "joins": {}, "load_before": os.getloadavg()[0], "libraries": _versions()}
    results |= {"turns": asked.turns, "seconds": asked.seconds, "queries_of_turn": _QUERIES_OF_TURN}
    results |= {"memory_of_join_gib": asked.memory}
    for code_set in code_sets(asked.sets, asked.rows, (asked.turns + 1) * _QUERIES_OF_TURN, asked.pictures):
        if asked.peers:
            results["sets"][code_set.name] = measure(code_set, asked.peers, asked.turns, asked.seconds)
        if asked.joins:
            results["joins"][code_set.name] = all_pairs(code_set, asked.joins, asked.turns, asked.memory)
        loads = _loads(results)
        results["load"] = {"lowest": min(loads), "highest": max(loads)} if loads else {}
        results["minutes"] = (time.perf_counter() - start) / 60
        print(f"{code_set.name}: done after {results['minutes']:.1f} minutes", flush=True)
        write_json(asked.out, {**results, "provenance": provenance(seed=_SEED)})
    print(f"python -m research.benchmarks.engine_peers --table {asked.out} prints the tables")


if __name__ == "__main__":
    main()
