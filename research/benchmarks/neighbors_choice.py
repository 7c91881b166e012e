"""Choose, from a wide exploration, the settings that the benchmark of nearest neighbours measures with --quick.

    python -m research.benchmarks.neighbors_choice out/explored/*.json --out research/results/neighbors/chosen

Of every library those settings are kept that are its fastest at a target, or nearly, and some along its curve. Speeds
are compared by CPU time, so that other work on the machine does not decide.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hamtarget.evaluation.provenance import write_json
from research.benchmarks.neighbors_results import TARGETS, Point, Target, frontier, points_of, read_result

_BEST_AT_TARGET = 2
_ON_CURVE = 5
# A recall measured on fewer queries may differ by this; a setting a little below a target may reach it.
_UNSURE = 0.004
_CURVE_FROM = 0.7


def chosen_settings(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the settings worth measuring: one entry for each index of each library, with its settings by k."""
    points = points_of(result, clock="cpu_seconds")
    kept: dict[tuple[str, str], dict[int, list[Mapping[str, Any]]]] = {}
    for library in dict.fromkeys(point.library for point in points):
        own = [point for point in points if point.library == library]
        for target in TARGETS:
            for point in _worth(own, target):
                settings = kept.setdefault((library, point.index), {}).setdefault(point.k, [])
                if point.setting not in settings:
                    settings.append(point.setting)
    return [
        {"library": library, "label": label, "settings": {str(k): choices for k, choices in settings.items()}}
        for (library, label), settings in kept.items()
    ]


def _worth(points: list[Point], target: Target) -> list[Point]:
    of_k = [point for point in points if point.k == target.k]
    for least in (target.least + _UNSURE, target.least - _UNSURE):
        reaching = sorted(
            (point for point in of_k if point.value(target) >= least), key=lambda point: -point.queries_per_second
        )
        of_k_best = reaching[:_BEST_AT_TARGET]
        yield_from = of_k_best if least > target.least else of_k_best[:1]
        if least > target.least:
            found = list(yield_from)
        else:
            found += [point for point in yield_from if point not in found]
    curve = [point for point in frontier(of_k, target) if point.value(target) >= _CURVE_FROM]
    step = max(1, len(curve) // _ON_CURVE)
    return [*found, *(point for point in curve[::step] if point not in found)]


def main() -> None:
    """Choose for each set that was explored, and write a file for it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="result files of a wide exploration")
    parser.add_argument("--out", type=Path, required=True, help="folder for the choices, a file for each set")
    options = parser.parse_args()
    for path in options.results:
        result = read_result(path)
        chosen = chosen_settings(result)
        write_json(
            options.out / path.name,
            {"provenance": result["provenance"], "setting": result["setting"], "chosen": chosen},
        )
        count = sum(len(choices) for entry in chosen for choices in entry["settings"].values())
        print(f"{result['setting']['set']}: {count} settings of {len(chosen)} indexes")


if __name__ == "__main__":
    main()
