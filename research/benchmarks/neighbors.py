"""Measure the search for nearest neighbours against other libraries: recall, speed, memory, time to build.

    make bench-neighbors
    python -m research.benchmarks.neighbors sift words --cache ~/peers --words words.npy

Every index is searched by a process of its own, on one thread, with the same queries in one batch. What a library does
to a query first is timed, too. Processes take turns, so that a slow moment of the machine does not hit one library
alone; the median of the rounds counts. Results go to OUT/SET.json, with a table on the terminal and OUT/neighbors.png.

First a wide grid of settings is explored, once and with few queries; then those near the targets, of every library,
are timed in rounds (--whole-grid: all of them). Building all indexes of a million rows takes long: --build-only
does it beforehand. Indexes and explorations are kept in the cache, named by set, arguments and version.
Settings are explored by the first queries of a set. --first-query 3000 times them by others, which no default and no
setting was chosen by.
What OUT/SET.json holds already, measured with the same versions, queries and rounds, is not measured again, so that an
interrupted run goes on where it stopped; --again measures anew. Sets and libraries that are not there are named and
left out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hamtarget.errors import FileError, InputError
from hamtarget.evaluation.provenance import provenance, write_json
from research.benchmarks.neighbors_choice import chosen_settings, fastest_of_each
from research.benchmarks.neighbors_plot import draw
from research.benchmarks.neighbors_results import read_result
from research.benchmarks.neighbors_table import table
from research.benchmarks.neighbors_worker import shape_of
from research.benchmarks.search_sets import data_folder
from research.datasets.neighbor_sets import SET_NAMES, NeighborSet, Sources, prepared_set
from research.peers.libraries import LIBRARIES, OURS, library_of
from research.peers.library import Library, Plan

RESULTS = Path(__file__).resolve().parents[1] / "results" / "neighbors"
# A process that takes longer hangs.
_MOST_SECONDS = 3600
# Searches that take less are repeated within a round.
_LEAST_SECONDS = 0.3
_EXPLORING_QUERIES = 500

Say = Callable[[str], None]


@dataclass(frozen=True)
class Bench:
    """The scope of a run, and its folders.

    Attributes:
        cache: folder of prepared sets and built indexes.
        libraries: the libraries to measure.
        rounds: timings of each setting.
        queries: number of queries, at most.
        first_query: place of the first of them in the set; exploration always takes the first ones of all.
        indexes: texts of which the name of an index contains one, if it is measured; empty: all indexes.
        whole_grid: True if all settings are timed in rounds, not only the best of an exploration.
        build_only: True if indexes are built, and nothing is measured.
        again: True if what is measured already is measured anew.
        threads: threads that indexes are built with.
    """

    cache: Path
    libraries: tuple[Library, ...]
    rounds: int = 3
    queries: int = 10_000
    first_query: int = 0
    indexes: tuple[str, ...] = ()
    whole_grid: bool = False
    build_only: bool = False
    again: bool = False
    threads: int = 1

    def takes(self, plan: Plan) -> bool:
        """Return True if an index is to be measured."""
        return not self.indexes or any(text in plan.label for text in self.indexes)


@dataclass(frozen=True)
class Job:
    """An index to measure, and its entry in the result."""

    library: Library
    plan: Plan
    entry: dict[str, Any]

    @property
    def name(self) -> str:
        """Name of the library and the index."""
        return f"{self.library.name} {self.plan.label}"

    @property
    def is_built(self) -> bool:
        """True if the index is in the cache."""
        return "build_seconds" in self.entry


def measure_set(vectors: NeighborSet, bench: Bench, path: Path, say: Say) -> dict[str, Any]:
    """Measure all libraries on a set; write the result file after every index, and return the result."""
    n_queries = min(bench.queries, len(vectors.queries) - bench.first_query)
    if n_queries < 1:
        raise InputError(
            f"{vectors.name} has {len(vectors.queries):,} queries; expected a first one of at most "
            f"{len(vectors.queries) - 1:,}, not {bench.first_query:,}"
        )
    result = _started(vectors, bench, path, n_queries)
    jobs = []
    for library in bench.libraries:
        if library.version() is None:
            say(f"{vectors.name}: {library.name} is MISSING (package {library.package})")
            result["missing"].append(library.name)
            continue
        plans = [plan for plan in library.plans(shape_of(vectors)) if bench.takes(plan)]
        jobs += [Job(library, plan, _entry(result, library, plan)) for plan in plans]
    for job in jobs:
        _build(vectors, bench, job, say)
    result["failed"] = [job.name for job in jobs if not job.is_built]
    if bench.build_only:
        return result
    jobs = [job for job in jobs if job.is_built]
    if not bench.whole_grid:
        jobs, result["explored"] = _chosen(vectors, bench, jobs, say)
    jobs = [job for job in jobs if not _is_done(job, bench.rounds)]
    for turn in range(bench.rounds):
        for job in jobs:
            if not _measure(vectors, bench, job, n_queries, turn, say):
                result["failed"] = sorted({*result["failed"], job.name})
                continue
            result["indexes"] = [each for each in result["indexes"] if each is not job.entry] + [job.entry]
            _write(path, result)
    _write(path, result)
    return result


def _started(vectors: NeighborSet, bench: Bench, path: Path, n_queries: int) -> dict[str, Any]:
    """Return the result so far: what the file holds of other libraries, or of an interrupted run."""
    shape = shape_of(vectors)
    setting = {
        "set": vectors.name,
        "metric": shape.metric,
        "n_rows": shape.n_rows,
        "n_dims": shape.n_dims,
        "dtype": shape.dtype,
        "n_queries": n_queries,
        "first_query": bench.first_query,
        "threads": 1,
    }
    kept: list[dict[str, Any]] = []
    try:
        before = read_result(path)
    except FileError:
        before = None
    if before is not None and before["setting"] == setting:
        measured = {library.name: library.version() for library in bench.libraries}
        for index in before["indexes"]:
            name = index["library"]
            if name not in measured or (not bench.again and index["version"] == measured[name]):
                kept.append(index)
    return {"provenance": provenance(seed=0), "setting": setting, "missing": [], "failed": [], "indexes": kept}


def _chosen(
    vectors: NeighborSet, bench: Bench, jobs: Sequence[Job], say: Say
) -> tuple[list[Job], list[dict[str, Any]]]:
    """Return the jobs with only those settings that an exploration with few queries finds good, and what it found."""
    n_queries = min(_EXPLORING_QUERIES, len(vectors.queries))
    indexes = []
    for job in jobs:
        explored = _folder(vectors, bench, job) / f"explored-{job.plan.grid_key()}.json"
        if not explored.exists():
            answer = _ask("measure", vectors, bench, job, slice(n_queries), 0.0, say)
            if answer is None:
                continue
            write_json(explored, answer)
            say(f"{vectors.name}: explored {len(answer['records'])} settings of {job.name}")
        rows = json.loads(explored.read_text())["records"]
        rows = [{**row, "seconds": [row["seconds"]], "cpu_seconds": [row["cpu_seconds"]]} for row in rows]
        indexes.append({**job.entry, "rows": rows})
    found = {"setting": {"n_queries": n_queries}, "indexes": indexes}
    chosen = chosen_settings(found)
    kept = [
        replace(job, plan=replace(job.plan, settings=chosen[job.library.name, job.plan.label]))
        for job in jobs
        if (job.library.name, job.plan.label) in chosen
    ]
    return kept, fastest_of_each(found)


def _entry(result: dict[str, Any], library: Library, plan: Plan) -> dict[str, Any]:
    for entry in result["indexes"]:
        if (entry["library"], entry["label"]) == (library.name, plan.label) and entry["arguments"] == plan.arguments:
            found: dict[str, Any] = entry
            return found
    return {
        "library": library.name,
        "version": library.version(),
        "label": plan.label,
        "arguments": dict(plan.arguments),
        "rows": [],
    }


def _is_done(job: Job, rounds: int) -> bool:
    timed = {_key(row): len(row["seconds"]) for row in job.entry["rows"]}
    return all(
        timed.get(_key({"k": k, "setting": setting}), 0) >= rounds
        for k, settings in job.plan.settings.items()
        for setting in settings
    )


def _key(row: Mapping[str, Any]) -> tuple[int, str]:
    return row["k"], json.dumps(dict(row["setting"]), sort_keys=True)


def _folder(vectors: NeighborSet, bench: Bench, job: Job) -> Path:
    key = f"{job.plan.key()} {job.library.version()} {shape_of(vectors)}"
    name = f"{job.library.name.lower()}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    return bench.cache / "indexes" / vectors.name / name


def _build(vectors: NeighborSet, bench: Bench, job: Job, say: Say) -> None:
    """Build an index, unless the cache has it, and note what that took."""
    folder = _folder(vectors, bench, job)
    built = folder / "built.json"
    if not built.exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        say(f"{vectors.name}: building {job.name} ...")
        facts = _ask("build", vectors, bench, job, slice(0), 0.0, say)
        if facts is None:
            shutil.rmtree(folder, ignore_errors=True)
            return
        write_json(built, {**facts, "load": os.getloadavg()[0]})
        say(f"{vectors.name}: built in {facts['build_seconds']:.0f} s, {facts['bytes_per_row']:.0f} bytes a row")
    job.entry.update(json.loads(built.read_text()))


def _measure(vectors: NeighborSet, bench: Bench, job: Job, n_queries: int, turn: int, say: Say) -> bool:
    """Time all settings of an index once, and add the times to its entry; return False if that fails."""
    start = time.perf_counter()
    queries = slice(bench.first_query, bench.first_query + n_queries)
    answer = _ask("measure", vectors, bench, job, queries, _LEAST_SECONDS, say)
    if answer is None:
        return False
    job.entry["resident_bytes_per_row"] = answer["resident_bytes_per_row"]
    rows = {_key(row): row for row in job.entry["rows"]}
    for record in answer["records"]:
        row = rows.get(_key(record))
        if row is None:
            row = {**record, "seconds": [], "cpu_seconds": []}
            job.entry["rows"].append(row)
        if len(row["seconds"]) < bench.rounds:
            row["seconds"].append(record["seconds"])
            row["cpu_seconds"].append(record["cpu_seconds"])
    say(
        f"{vectors.name}: round {turn + 1} of {bench.rounds}, {job.name}: {len(answer['records'])} settings in "
        f"{time.perf_counter() - start:.0f} s"
    )
    return True


def _ask(
    task: str, vectors: NeighborSet, bench: Bench, job: Job, queries: slice, least_seconds: float, say: Say
) -> dict[str, Any] | None:
    """Let a process of its own build or measure; return its answer, or None if it failed, which is said."""
    request = {
        "task": task,
        "cache": str(bench.cache),
        "folder": str(_folder(vectors, bench, job)),
        "set": vectors.name,
        "library": job.library.name,
        "label": job.plan.label,
        "arguments": dict(job.plan.arguments),
        "settings": {str(k): list(settings) for k, settings in job.plan.settings.items()},
        "threads": bench.threads,
        "queries": [queries.start or 0, queries.stop],
        "least_seconds": least_seconds,
    }
    threads = str(bench.threads if task == "build" else 1)
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    environment = {**os.environ, **dict.fromkeys(names, threads), "TF_CPP_MIN_LOG_LEVEL": "3"}
    with tempfile.TemporaryDirectory() as scratch:
        asked, answered = Path(scratch) / "request.json", Path(scratch) / "answer.json"
        asked.write_text(json.dumps(request))
        try:
            done = subprocess.run(
                [sys.executable, "-m", "research.benchmarks.neighbors_worker", str(asked), str(answered)],
                cwd=Path(__file__).resolve().parents[2],
                env=environment,
                capture_output=True,
                timeout=_MOST_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            say(f"{vectors.name}: {job.name} FAILED to {task}: no answer in {_MOST_SECONDS} s")
            return None
        if done.returncode != 0 or not answered.exists():
            last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or [f"exit {done.returncode}"]
            say(f"{vectors.name}: {job.name} FAILED to {task}: {last[0][:300]}")
            return None
        answer: dict[str, Any] = json.loads(answered.read_text())
        return answer


def _write(path: Path, result: dict[str, Any]) -> None:
    for index in result["indexes"]:
        index["rows"].sort(key=lambda row: (row["k"], json.dumps(row["setting"], sort_keys=True)))
    result["indexes"].sort(key=lambda index: (index["library"] != OURS, index["library"].lower(), index["label"]))
    write_json(path, result)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the sets that are named, report progress, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", default=[], help=f"sets: {', '.join(SET_NAMES)} (default: all)")
    parser.add_argument("--cache", type=Path, required=True, help="folder for prepared sets and built indexes")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the results")
    parser.add_argument("--data", type=Path, default=data_folder(), help="folder of data: sift1m, fashion-mnist")
    parser.add_argument("--words", type=Path, help="word vectors, a .npy file")
    parser.add_argument("--photos", type=Path, help="folder of photos")
    parser.add_argument("--only", nargs="+", default=list(LIBRARIES), metavar="LIBRARY", help="only these libraries")
    parser.add_argument(
        "--indexes", nargs="+", default=[], metavar="TEXT", help="only indexes whose name contains one of these texts"
    )
    parser.add_argument(
        "--whole-grid", action="store_true", help="time all settings, not only the best of each library"
    )
    parser.add_argument("--build-only", action="store_true", help="build the indexes that are missing, and stop")
    parser.add_argument("--again", action="store_true", help="measure anew what the result file holds already")
    parser.add_argument("--rounds", type=int, default=3, help="timings; the median counts (default: %(default)s)")
    parser.add_argument("--queries", type=int, default=10_000, help="queries at most (default: %(default)s)")
    parser.add_argument(
        "--first-query", type=int, default=0, help="place of the first query that is timed (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads for building alone")
    options = parser.parse_args(arguments)

    start = time.perf_counter()

    def say(line: str) -> None:
        print(f"[{time.perf_counter() - start:6.0f} s] {line}", file=sys.stderr, flush=True)

    bench = Bench(
        options.cache.resolve(),
        tuple(library_of(name) for name in options.only),
        rounds=options.rounds,
        queries=options.queries,
        first_query=options.first_query,
        indexes=tuple(options.indexes),
        whole_grid=options.whole_grid,
        build_only=options.build_only,
        again=options.again,
        threads=options.threads,
    )
    sources = Sources(options.data, options.words, options.photos)
    say(f"load of the machine: {os.getloadavg()[0]:.1f}")
    for name in options.sets or SET_NAMES:
        try:
            vectors = prepared_set(name, bench.cache, sources)
        except FileError as error:
            say(f"{name}: the set is ABSENT, and left out: {error}")
            continue
        result = measure_set(vectors, bench, options.out / f"{name}.json", say)
        if not bench.build_only:
            print(table(result), flush=True)
    files = [path for path in (options.out / f"{name}.json" for name in SET_NAMES) if path.exists()]
    if files:
        draw([read_result(path) for path in files], options.out / "neighbors.png")


if __name__ == "__main__":
    main()
