"""Time searches with each number of substrings, and compare the number that the index chooses with the best of all.

    python -m research.benchmarks.plan_speed --out research/results/plan_speed.json

Codes are uniform, queries too, and one thread searches. Times are CPU times of the process; all numbers of substrings
of a case are timed in turns, and the smallest time of each counts: nothing makes a search faster by chance. "before" is
radius + 1 substrings with whole codes in every table; it is left out where it would take more than `--most-gb`.
`--large` adds cases of 10 million rows.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search.tables import SubstringChoice, choose_substrings, substring_choices

# Bits, rows, and radii.
CASES = (
    (64, 100_000, (2, 4, 6, 8)),
    (64, 1_000_000, (2, 4, 6, 8, 10)),
    (128, 100_000, (3, 8, 16)),
    (128, 1_000_000, (3, 8, 16)),
    (256, 100_000, (7, 15, 31)),
    (256, 1_000_000, (7, 15, 31)),
    (1024, 100_000, (31, 100)),
)
LARGE = ((64, 10_000_000, (2, 4, 6, 8, 10)), (256, 10_000_000, (31,)))
# Numbers of substrings that are expected to take more than so many times the cheapest are not tried.
_HOPELESS = 3.0
# Name of the plan before, where no number of substrings that is tried has the same tables.
_BEFORE = 0
_REPEATS = 5
_SECONDS_A_REPEAT = 0.1
_MOST_QUERIES = 4_000


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("research/results/plan_speed.json"), help="JSON file")
    parser.add_argument("--bits", type=int, action="append", help="only codes of so many bits; repeatable")
    parser.add_argument("--rows", type=int, action="append", help="only so many rows; repeatable")
    parser.add_argument("--most-gb", type=float, default=6.0, help="memory of all indexes (default: %(default)s)")
    parser.add_argument("--large", action="store_true", help="add 10 million rows")
    parser.add_argument("--seed", type=int, default=0, help="of codes and queries (default: %(default)s)")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = []
    for n_bits, n_rows, radii in CASES + (LARGE if arguments.large else ()):
        if n_bits not in (arguments.bits or [n_bits]) or n_rows not in (arguments.rows or [n_rows]):
            continue
        random = np.random.default_rng(arguments.seed)
        codes = random.integers(0, 256, (n_rows, n_bits // 8), dtype=np.uint8)
        queries = random.integers(0, 256, (_MOST_QUERIES, n_bits // 8), dtype=np.uint8)
        for radius in radii:
            results.append(case(codes, queries, radius, most_bytes=1e9 * arguments.most_gb))
            print(in_a_line(results[-1]), flush=True)
            write_json(arguments.out, {"provenance": provenance(seed=arguments.seed), "cases": results})


def case(codes: NDArray[np.uint8], queries: NDArray[np.uint8], radius: int, *, most_bytes: float) -> dict[str, Any]:
    """Time one radius with every number of substrings that may be the best."""
    n_rows, n_bits = len(codes), 8 * codes.shape[1]
    choices = substring_choices(n_rows, n_bits, radius)
    chosen = choose_substrings(n_rows, n_bits, radius).substrings
    lowest = min(choice.cost for choice in choices)
    tried = [each for each in choices if each.cost <= _HOPELESS * lowest or each.substrings == chosen]
    plans = {each.substrings: (each.substrings, each.excerpt_bytes) for each in tried}
    before = radius + 1
    if plans.get(before) != (before, 0) and n_rows * before * (n_bits // 8 + 4) <= most_bytes:
        before = _BEFORE
        plans[before] = (radius + 1, 0)
    searches = _in_groups(codes, queries, radius, plans, most_bytes)
    by_number = {each.substrings: each for each in tried}
    best = min((name for name in plans if name != _BEFORE), key=lambda name: searches[name]["us"])
    return {
        "n_bits": n_bits,
        "n_rows": n_rows,
        "radius": radius,
        "chosen": chosen,
        "best": best,
        "chosen_to_best": searches[chosen]["us"] / searches[best]["us"],
        "before": searches.get(before),
        "before_to_chosen": searches[before]["us"] / searches[chosen]["us"] if before in searches else None,
        "scan_expected_us": _native.scan_cost(n_rows, n_bits // 8) / 1000,
        "tried": [{**searches[name], **_expected(by_number[name])} for name in sorted(plans) if name != _BEFORE],
    }


def in_a_line(found: dict[str, Any]) -> str:
    """Return the outcome of a case as a line of text."""
    chosen = next(each for each in found["tried"] if each["substrings"] == found["chosen"])
    text = (
        f"{found['n_bits']:5} bits {found['n_rows']:11,} rows r={found['radius']:<3} chosen {found['chosen']:3} "
        f"{chosen['us']:9.2f} us ({chosen['bytes_per_row']:6.1f} bytes a row), best {found['best']:3} "
        f"({found['chosen_to_best']:.2f})"
    )
    before = found["before"]
    if before is None:
        return text
    bytes_per_row, ratio = before["bytes_per_row"], found["before_to_chosen"]
    return f"{text}, before {before['us']:9.2f} us ({bytes_per_row:.1f} bytes): {ratio:.2f} times"


def _expected(choice: SubstringChoice) -> dict[str, Any]:
    return {
        "substrings": choice.substrings,
        "excerpt_bytes": choice.excerpt_bytes,
        "expected_us": choice.cost / 1000,
        "expected_buckets": choice.buckets,
        "expected_candidates": choice.candidates,
    }


def _in_groups(
    codes: NDArray[np.uint8],
    queries: NDArray[np.uint8],
    radius: int,
    plans: dict[int, tuple[int, int]],
    most_bytes: float,
) -> dict[int, dict[str, Any]]:
    """Time all plans in turns, or in several groups where all indexes together take too much memory."""
    results: dict[int, dict[str, Any]] = {}
    group: dict[int, _native.MultiIndex] = {}
    for name, (substrings, excerpt_bytes) in plans.items():
        index = _native.MultiIndex(codes.shape[1], substrings, radius, excerpt_bytes=excerpt_bytes)
        began = time.process_time()
        index.add(np.arange(len(codes)), codes)
        results[name] = {
            "build_seconds": time.process_time() - began,
            "bytes_per_row": index.memory / len(codes),
        }
        group[name] = index
        if sum(each.memory for each in group.values()) > most_bytes / 2:
            _time(group, queries, radius, results)
            group = {}
    _time(group, queries, radius, results)
    return results


def _time(
    group: dict[int, _native.MultiIndex],
    queries: NDArray[np.uint8],
    radius: int,
    results: dict[int, dict[str, Any]],
) -> None:
    counts = {}
    for name, index in group.items():
        took, costs = _search(index, queries[:50], radius)
        counts[name] = int(min(len(queries), max(50, 50 * _SECONDS_A_REPEAT / max(took, 1e-6))))
        results[name] |= {"buckets": float(costs[:, 0].mean()), "candidates": float(costs[:, 1].mean())}
    times: dict[int, list[float]] = {name: [] for name in group}
    for _ in range(_REPEATS):
        for name, index in group.items():
            times[name].append(1e6 * _search(index, queries[: counts[name]], radius)[0] / counts[name])
    for name in group:
        results[name] |= {"us": min(times[name]), "median_us": float(np.median(times[name]))}


def _search(index: _native.MultiIndex, queries: NDArray[np.uint8], radius: int) -> tuple[float, NDArray[np.int64]]:
    began = time.process_time()
    *_, costs = index.search(_native.Search(queries, radius), 1)
    return time.process_time() - began, costs.reshape(-1, 3)


if __name__ == "__main__":
    main()
