"""Measure speed and memory of exact search within a radius, beside faiss and usearch, on the same codes.

    make bench-search
    python -m research.benchmarks.search_speed --rows 1000000 --out research/results/search_speed.json

Every method uses one thread. Exact methods must find the same hits before anything is timed. Then all are timed in
turns, and the median of the repeats counts. docs/search-benchmark.md says what is measured and how. A run with fewer
rows or sets than the defaults is a trial, and its figures do not count.
"""

from __future__ import annotations

import argparse
import os
import time
from functools import partial
from pathlib import Path
from typing import Any

# Set before numpy is imported, so that the linear algebra of ITQ uses no more threads than the searches.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search import MultiIndex
from research.benchmarks import search_memory
from research.benchmarks.search_figures import figures, table
from research.benchmarks.search_methods import (
    Faiss,
    FaissFlat,
    FaissHash,
    FaissHNSW,
    FaissIVF,
    FaissMultiHash,
    Method,
    OurFlatIndex,
    OurMultiIndex,
    OurMultiIndexWithIds,
    Usearch,
    exact_settings,
    library,
    versions,
)
from research.benchmarks.search_plot import plot
from research.benchmarks.search_sets import CodeSet, data_folder, recipes, sift_sets
from research.benchmarks.search_timing import build_race, in_turns, nearest_race, one_by_one, radius_race, seconds

N_QUERIES = 10_000
K = 100
# Queries by which the best setting of faiss is found. A setting that is far behind after the first ones gets no more.
_SWEEP_QUERIES, _SWEEP_FIRST, _FAR_BEHIND = 2_000, 200, 2.0
# A machine with a higher load in the last minute is not idle.
_IDLE_LOAD = 0.5
_GENERATED = ("L", "S", "H", "L x 10", "128 bits", "256 bits")
_PLAIN_SETS = ("L", "S", "H")


class Run:
    """One run of the benchmark: its results so far, and its progress on the terminal."""

    def __init__(self, *, n_rows: int, repeats: int, seed: int) -> None:
        self.n_rows, self.repeats, self.seed = n_rows, repeats, seed
        self.results: dict[str, Any] = {"sets": {}, "skipped": []}
        self._start = time.perf_counter()
        self._load = os.getloadavg()[0]
        if self._load > _IDLE_LOAD:
            self.say(f"WARNING: other work keeps {self._load:.1f} cores busy: the times of this run are not reliable")

    def save(self, path: Path) -> None:
        """Write the results so far."""
        origin = provenance(seed=self.seed)
        origin["versions"] |= versions()
        setting = {"repeats": self.repeats, "threads": 1, "batch": N_QUERIES, "k": K, "n_rows": self.n_rows}
        machine = {"load_before": self._load, "huge_pages": huge_pages(), "minutes": self._seconds() / 60}
        result = {"provenance": origin, "setting": setting | machine, "figures": figures(self.results)}
        write_json(path, {**result, **self.results})

    def _seconds(self) -> float:
        return time.perf_counter() - self._start

    def say(self, text: str) -> None:
        """Print progress, with the seconds since the start."""
        print(f"[{self._seconds():5.0f} s] {text}", flush=True)

    def skip(self, what: str, why: str) -> None:
        """Record and print that something was not measured."""
        self.results["skipped"].append({"what": what, "why": why})
        self.say(f"SKIPPED {what}: {why}")

    def measure_set(self, code_set: CodeSet) -> None:
        """Measure everything on one set."""
        found = self.results["sets"][code_set.name] = code_set.describe()
        self.say(
            f"{code_set.name}: {len(code_set.codes):,} x {code_set.n_bits} bits, radius {code_set.radius}: "
            f"{found['candidates']['mean']:,.1f} candidates, {found['hits']['mean']:,.1f} hits a query"
        )
        ids = np.arange(len(code_set.codes))
        peers, found["sweep"] = self.best_peers(code_set)
        methods: list[Method] = [OurMultiIndex(code_set.n_bits, code_set.radius)]
        if code_set.name in _PLAIN_SETS:
            methods.append(OurMultiIndexWithIds(code_set.n_bits, code_set.radius))
        scans: list[Method] = [OurFlatIndex(code_set.n_bits), FaissFlat(code_set.n_bits)]
        methods += [*peers, *scans]
        for method in methods:
            method.build(code_set.codes, ids)
        found["radius_search"] = radius_race(code_set, methods, self.repeats)
        self.say_rows(found["radius_search"]["rows"])
        if code_set.radius == 2 and code_set.name != "L x 10":
            counting = FaissFlat(code_set.n_bits, heap=False)
            counting.build(code_set.codes, ids)
            found["nearest"] = nearest_race(code_set, [scans[0], methods[0], scans[1], counting], K, self.repeats)
            self.say(f"{K} nearest")
            self.say_rows(found["nearest"]["rows"])
        if code_set.name == "S":
            self.one_query(code_set, methods)
        if code_set.name in _PLAIN_SETS:
            builders = [methods[0], next(peer for peer in peers if peer.setting == "3x21")]
            found["build"] = build_race(code_set, builders, self.repeats)
            for row in found["build"]:
                self.say(f"build  {row['method']} {row['setting']}: {row['rows_per_second']:,.0f} rows/s")

    def best_peers(self, code_set: CodeSet) -> tuple[list[Faiss], list[dict[str, Any]]]:
        """Return the plain multi-hash and the fastest setting of each exact hash index of faiss, and all tried ones."""
        ids = np.arange(len(code_set.codes))
        queries = code_set.queries[:_SWEEP_QUERIES]
        tried: list[dict[str, Any]] = []
        best: dict[str, tuple[float, Faiss]] = {}
        for method in sweep_settings(code_set):
            method.build(code_set.codes, ids)
            n_queries = _SWEEP_FIRST
            each = seconds(partial(method.search, queries[:_SWEEP_FIRST], code_set.radius)) / n_queries
            if each < _FAR_BEHIND * min((speed for speed, _ in best.values()), default=np.inf):
                n_queries = len(queries)
                times = [seconds(partial(method.search, queries, code_set.radius)) for _ in range(2)]
                each = min(times) / n_queries
            method.index = None
            row = {"method": method.name, "setting": method.setting}
            tried.append({**row, "n_queries": n_queries, "queries_per_second": 1 / each})
            if each < best.get(method.name, (np.inf, method))[0]:
                best[method.name] = (each, method)
        peers = {str(method): method for _, method in best.values()}
        if code_set.n_bits == 64:
            plain = FaissMultiHash(64, hashes=3, bits=21)
            peers = {str(plain): plain} | peers
        self.say("fastest settings of faiss: " + "; ".join(peers))
        return list(peers.values()), tried

    def one_query(self, code_set: CodeSet, methods: list[Method]) -> None:
        """Time one query at a time from Python, by our index and by the plain multi-hash."""
        ours, plain = methods[0], next(method for method in methods if method.setting == "3x21")
        assert isinstance(ours, OurMultiIndex)
        assert isinstance(plain, Faiss)
        index: MultiIndex = ours.index
        found = {
            ours.name: one_by_one(code_set, lambda query: index.search(query, code_set.radius), self.repeats),
            str(plain): one_by_one(
                code_set, lambda query: plain.index.range_search(query[None], code_set.radius + 1), self.repeats
            ),
        }
        self.results["one_query"] = found
        for name, row in found.items():
            self.say(f"one query  {name}: median {row['median_us']:.2f} us, p99 {row['p99_us']:.2f} us")

    def growth(self, small: CodeSet, large: CodeSet) -> None:
        """Time our index with `large` and with `small`, in turns."""
        indexes = {}
        for code_set in (small, large):
            indexes[code_set.name] = OurMultiIndex(code_set.n_bits, code_set.radius)
            indexes[code_set.name].build(code_set.codes, np.arange(len(code_set.codes)))
        calls = {
            code_set.name: partial(indexes[code_set.name].search, code_set.queries, code_set.radius)
            for code_set in (small, large)
        }
        in_turns(calls, 1)
        times = in_turns(calls, self.repeats)
        self.results["growth"] = {
            name: {"n_repeats": len(took), "queries_per_second": N_QUERIES / float(np.median(took))}
            for name, took in times.items()
        }

    def approximate(self, code_set: CodeSet) -> None:
        """Time the k nearest by indexes that may miss some, beside exact ones."""
        ids = np.arange(len(code_set.codes))
        scan, graph = (Usearch(code_set.n_bits, links=16, breadth=128, exact=exact) for exact in (True, False))
        inverted = [FaissIVF(code_set.n_bits, probes=probes) for probes in (8, 32)]
        methods: list[Method] = [
            OurFlatIndex(code_set.n_bits),
            OurMultiIndex(code_set.n_bits, code_set.radius),
            *inverted,
            FaissHNSW(code_set.n_bits, links=16, breadth=128),
            graph,
        ]
        for method in methods:
            self.say(f"{method}: built in {seconds(partial(method.build, code_set.codes, ids)):.1f} s")
        scan.index = graph.index
        found = nearest_race(code_set, [*methods, scan], K, self.repeats)
        self.results["approximate"] = {"set": code_set.name, **found}
        self.say_rows(found["rows"])

    def memory(self) -> None:
        """Measure the bytes per row of each index, each in a process of its own."""
        self.results["memory"] = []
        for name in _PLAIN_SETS:
            for method in (*search_memory.METHODS, *search_memory.PEERS):
                row = search_memory.measure(method, name, self.n_rows)
                self.results["memory"].append(row)
                self.say(f"memory  {method}, set {name}: {row['bytes_a_row']:.1f} bytes a row")

    def say_rows(self, rows: list[dict[str, Any]]) -> None:
        """Print queries a second, and recall where it is not 1."""
        for row in rows:
            recall = f", recall {row['recall']:.3f}" if row.get("recall", 1.0) < 1.0 else ""
            name = f"{row['method']} {row['setting']}".rstrip()
            self.say(f"    {name:<48} {row['queries_per_second']:>12,.0f} queries/s ({row['n_queries']:,}){recall}")


def sweep_settings(code_set: CodeSet) -> list[Faiss]:
    """Return the settings of faiss to try on a set: all that can be the best or, for huge tables, a few."""
    if code_set.name == "L x 10":
        return [FaissMultiHash(64, hashes=3, bits=21), FaissHash(64, bits=24, flips=2)]
    return exact_settings(code_set.n_bits, code_set.radius)


def huge_pages() -> str | None:
    """Return what Linux says about transparent huge pages, which speed up random reads of memory."""
    try:
        return Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text(encoding="utf-8").strip()
    except OSError:
        return None


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a set")
    parser.add_argument(
        "--repeats", type=int, default=5, help="number of timings; the median counts (default: %(default)s)"
    )
    parser.add_argument(
        "--sets",
        nargs="*",
        default=["SIFT", *_GENERATED],
        choices=["SIFT", *_GENERATED],
        help="only these sets of codes",
    )
    parser.add_argument("--skip", nargs="*", default=[], choices=["memory", "approximate"], help="parts to leave out")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the SIFT encoders; the generated sets have their own"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("research/results/search_speed.json"), help="JSON file for the results"
    )
    arguments = parser.parse_args()
    # If a peer is not installed, this fails at once instead of minutes later.
    library("faiss"), library("usearch.index")

    run = Run(n_rows=arguments.rows, repeats=arguments.repeats, seed=arguments.seed)
    drawn: dict[str, CodeSet] = {}
    if "SIFT" in arguments.sets:
        try:
            drawn |= {code_set.name: code_set for code_set in sift_sets(run.n_rows, N_QUERIES, seed=run.seed)}
        except FileNotFoundError as error:
            why = f"{Path(str(error.filename)).name} is not under sift1m in {data_folder().name}; set HAMTARGET_DATA"
            run.skip("codes of real descriptors", why)
    made = {name: recipe for name, recipe in recipes(run.n_rows).items() if name in arguments.sets}
    for name in [*drawn, *made]:
        if name in made:
            drawn[name] = made[name].draw(N_QUERIES)
        run.measure_set(drawn[name])
        run.save(arguments.out)
    if {"L", "L x 10"} <= drawn.keys():
        run.growth(drawn["L"], drawn["L x 10"])
    if "memory" not in arguments.skip:
        run.memory()
        run.save(arguments.out)
    if "approximate" not in arguments.skip:
        run.approximate(drawn.get("SIFT ITQ") or drawn.get("L") or recipes(run.n_rows)["L"].draw(N_QUERIES))

    run.save(arguments.out)
    plot(run.results, arguments.out.with_suffix(".png"))
    rows = figures(run.results)
    print(table(rows))
    met = sum(row["met"] is True for row in rows)
    print(f"{met} of {len(rows)} targets met (a target was set before its figure was first measured)")
    run.say(f"wrote {arguments.out.name} and {arguments.out.with_suffix('.png').name}")


if __name__ == "__main__":
    main()
