"""Figures that pages quote and no result file holds as such: means over seeds, the fastest setting of a library.

`research.figures` finds them in a file as if they stood there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from research.benchmarks.neighbors_results import TARGETS, fastest, points_of
from research.paper.image_table import summary
from research.peers.libraries import OURS


def summaries_of(file: str, content: Any) -> dict[str, Any]:
    """Return what can be computed from a result file, by name.

    Args:
        file: its path in `research/results`.
        content: what it holds.
    """
    path = Path(file)
    if path.parent.name == "neighbors":
        return {"fastest": _fastest(content)}
    if path.name == "table1.json":
        return {"means": _by_cell(content, mean), "deviations": _by_cell(content, stdev, least=2)}
    return {}


def _fastest(result: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fastest setting by target and library; `other` is the fastest of all but ours."""
    points = points_of(result)
    found: dict[str, dict[str, Any]] = {}
    for target in TARGETS:
        best = {
            library: fastest((point for point in points if point.library == library), target)
            for library in {point.library for point in points}
        }
        best["other"] = fastest((point for point in points if point.library != OURS), target)
        found[target.name] = {library: asdict(point) for library, point in best.items() if point is not None}
    return found


def _by_cell(
    result: Mapping[str, Any], summarised: Callable[[Sequence[float]], float], *, least: int = 1
) -> dict[str, Any]:
    """Return a summary over seeds by task, method, bits, part of the database and figure; of `least` seeds or more."""
    found: dict[str, Any] = {}
    for (*outer, figure), values in summary(result["records"]).items():
        if len(values) >= least:
            place = found
            for key in outer:
                place = place.setdefault(str(key), {})
            place[str(figure)] = summarised(values)
    return found
