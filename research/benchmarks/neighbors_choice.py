"""Choose from a wide exploration the settings that the benchmark of nearest neighbours times in rounds.

Of every library those settings are kept that are its fastest at a target, or nearly, and some along its curve. Speeds
are compared by CPU time, so that other work on the machine does not decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from research.benchmarks.neighbors_results import CURVE, TARGETS, Point, Target, fastest, frontier, points_of

_BEST_AT_TARGET = 2
_ON_CURVE = 6
# A recall measured on few queries may differ by this: a setting a little below a target may reach it.
_UNSURE = 0.005
_CURVE_FROM = 0.7

Chosen = dict[tuple[str, str], dict[int, list[Mapping[str, Any]]]]
"""Settings by library and index, and by k."""


def chosen_settings(result: Mapping[str, Any]) -> Chosen:
    """Return the settings worth timing of what an exploration measured.

    Settings that a library finds by itself for a wanted recall are always among them, unless it refuses that recall.
    """
    points = points_of(result, clock="cpu_seconds")
    chosen: Chosen = {}
    for library in dict.fromkeys(point.library for point in points):
        own = [point for point in points if point.library == library]
        # An index that refuses a recall has found nothing.
        kept = [point for point in own if not point.by_hand and point.recall > 0]
        for target in TARGETS:
            kept += _fastest_around(own, target)
        kept += _along(own)
        for point in kept:
            settings = chosen.setdefault((library, point.index), {}).setdefault(point.k, [])
            if point.setting not in settings:
                settings.append(point.setting)
    return chosen


def fastest_of_each(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return a record for each index that was explored: its fastest setting at each target, and its speed.

    So a reader sees what an index had to offer that was not timed in rounds.
    """
    points = points_of(result, clock="cpu_seconds")
    records = []
    for index in result["indexes"]:
        own = [point for point in points if (point.library, point.index) == (index["library"], index["label"])]
        best = {target.name: fastest(own, target) for target in TARGETS}
        shown = {
            name: {"setting": dict(point.setting), "queries_per_cpu_second": point.queries_per_second}
            for name, point in best.items()
            if point is not None
        }
        records.append({"library": index["library"], "label": index["label"], "fastest": shown})
    return records


def _fastest_around(points: list[Point], target: Target) -> list[Point]:
    """Return the fastest settings that surely reach a target, and the fastest that perhaps does."""
    by_speed = sorted((point for point in points if point.k == target.k), key=lambda point: -point.queries_per_second)
    surely = [point for point in by_speed if point.value(target) >= target.least + _UNSURE]
    perhaps = [point for point in by_speed if abs(point.value(target) - target.least) < _UNSURE]
    return surely[:_BEST_AT_TARGET] + perhaps[:1]


def _along(points: list[Point]) -> list[Point]:
    """Return some settings along a library's curve, for the picture."""
    curve = [point for point in frontier(points, CURVE) if point.value(CURVE) >= _CURVE_FROM]
    return curve[:: max(1, -(-len(curve) // _ON_CURVE))]
