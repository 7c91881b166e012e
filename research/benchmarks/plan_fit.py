"""Fit the costs of a search to the times that plan_speed measured: those by which an index chooses its substrings.

    python -m research.benchmarks.plan_fit research/results/plan_speed.json

Prints the costs in the order of `COSTS`, and for each case how much slower the chosen number of substrings is than the
best. The costs are then written into native/core/table_plan.hpp by hand. Chance decides which costs are tried, from the
seed; most of them stand for much the same plans.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native

COSTS = (
    "cache_bytes",
    "bucket",
    "far_bucket",
    "entry",
    "entry_byte",
    "far_byte",
    "noticed_bytes",
    "fetched_code",
)
# A choice that is so much slower than the best counts as well as the best.
_TOLERANCE = 1.03
_WEIGHT_OF_CHOICES = 5.0


class Fit(NamedTuple):
    """How well costs explain the times."""

    loss: float
    slower: list[float]
    """For each case, the time of the chosen number of substrings by that of the best."""


def main() -> None:
    """Read, fit and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", help="results of plan_speed")
    parser.add_argument("--trials", type=int, default=300, help="costs that are tried (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the trials (default: %(default)s)")
    arguments = parser.parse_args()
    cases = [case for file in arguments.files for case in json.loads(file.read_text())["cases"]]
    random = np.random.default_rng(arguments.seed)
    costs = np.array([getattr(_native.SearchCosts(), name) for name in COSTS])
    best = judged(costs, cases)
    print(f"loss {best.loss:.3f} with the costs of today; the worst choice takes {max(best.slower):.2f} times the best")
    for _ in range(arguments.trials):
        trial = costs * np.exp(random.normal(0, 0.15, len(costs)) * (random.random(len(costs)) < 0.4))
        fit = judged(trial, cases)
        if fit.loss < best.loss:
            costs, best = trial, fit
    print(f"loss {best.loss:.3f} with:", dict(zip(COSTS, costs.round(4).tolist(), strict=True)))
    for case, slower in zip(cases, best.slower, strict=True):
        print(f"{case['n_bits']:5} bits {case['n_rows']:11,} rows r={case['radius']:<3} {slower:.2f}")


def judged(costs: NDArray[np.float64], cases: list[dict[str, Any]]) -> Fit:
    """Return how well these costs explain the times, within each case, and how good the choices are that follow."""
    trial = _native.SearchCosts()
    for name, cost in zip(COSTS, costs.tolist(), strict=True):
        setattr(trial, name, cost)
    slower, errors = [], []
    for case in cases:
        times = np.array([each["us"] for each in case["tried"]])
        expected = np.array([_expected(case, each["substrings"], trial) for each in case["tried"]])
        slower.append(float(times[expected.argmin()] / times.min()))
        logs = np.log(expected / times)
        errors.append(logs - logs.mean())
    excess = np.maximum(np.array(slower) - _TOLERANCE, 0).sum()
    return Fit(float(_WEIGHT_OF_CHOICES * excess + np.concatenate(errors).std()), slower)


def _expected(case: dict[str, Any], substrings: int, costs: _native.SearchCosts) -> float:
    *_, nanoseconds = _native.table_choice(case["n_bits"] // 8, case["radius"], case["n_rows"], substrings, costs=costs)
    return nanoseconds


if __name__ == "__main__":
    main()
