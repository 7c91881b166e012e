"""The measurements of the benchmark of nearest neighbours, read from its result files."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hamtarget.errors import CorruptFileError, FileError
from research.peers.libraries import OURS

Clock = Literal["seconds", "cpu_seconds"]


@dataclass(frozen=True)
class Target:
    """A quality of search at which speeds are compared.

    Attributes:
        name: its name in tables.
        k: number of neighbours that a search returns.
        measure: "nearest_found": the share of queries whose nearest neighbour is among the k returned; "recall": the
            share of the k nearest that is returned.
        least: the least value that counts.
    """

    name: str
    k: int
    measure: Literal["nearest_found", "recall"]
    least: float


TARGETS = (
    Target("nearest among 100, .95", 100, "nearest_found", 0.95),
    Target("10 of 10, .90", 10, "recall", 0.90),
    Target("10 of 10, .95", 10, "recall", 0.95),
    Target("10 of 10, .99", 10, "recall", 0.99),
)


CURVE = TARGETS[2]
"""The target whose quality the picture shows."""


@dataclass(frozen=True)
class Point:
    """A setting of an index of a library, as measured."""

    library: str
    index: str
    k: int
    setting: Mapping[str, Any]
    nearest_found: float
    recall: float
    queries_per_second: float
    bytes_per_row: float
    build_cpu_seconds: float

    @property
    def by_hand(self) -> bool:
        """False if the library itself found the setting for a wanted recall."""
        return "recall" not in self.setting

    def value(self, target: Target) -> float:
        """Return the quality that a target asks for."""
        return self.nearest_found if target.measure == "nearest_found" else self.recall

    def reaches(self, target: Target) -> bool:
        """Return True if this setting is as good as a target asks for."""
        return self.k == target.k and self.value(target) >= target.least


def read_result(path: Path) -> dict[str, Any]:
    """Return a result file.

    Raises:
        FileError: there is none.
        CorruptFileError: it is no result of this benchmark.
    """
    try:
        result: dict[str, Any] = json.loads(path.read_text())
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise CorruptFileError(f"{path} is no JSON ({error}); measure again") from error
    if "indexes" not in result:
        raise CorruptFileError(f"{path} has no `indexes`; expected a result of research.benchmarks.neighbors")
    return result


def points_of(result: Mapping[str, Any], *, clock: Clock = "seconds") -> list[Point]:
    """Return every setting that was measured, its speed by the median of the rounds."""
    n_queries = result["setting"]["n_queries"]
    points = []
    for index in result["indexes"]:
        for row in index["rows"]:
            if row[clock]:
                points.append(
                    Point(
                        index["library"],
                        index["label"],
                        row["k"],
                        row["setting"],
                        row["nearest_found"],
                        row["recall"],
                        n_queries / max(statistics.median(row[clock]), 1e-9),
                        row["bytes_per_row"] or index["bytes_per_row"],
                        index["build_cpu_seconds"],
                    )
                )
    return points


def fastest(points: Iterable[Point], target: Target) -> Point | None:
    """Return the fastest setting that reaches a target, or None if none does. Nothing is interpolated."""
    return max((point for point in points if point.reaches(target)), key=_speed, default=None)


def frontier(points: Iterable[Point], target: Target) -> list[Point]:
    """Return the settings that no other beats in both quality and speed, slowest first."""
    best: list[Point] = []
    for point in sorted((point for point in points if point.k == target.k), key=_speed, reverse=True):
        if not best or point.value(target) > best[-1].value(target):
            best.append(point)
    return best[::-1]


def default_against_best(points: Iterable[Point], target: Target) -> float | None:
    """Return the speed of our default at a target by that of the best setting by hand which is at least as good.

    The default is the setting that the index chose for the wanted recall. None if it was not measured, or if no setting
    by hand reaches its quality.
    """
    ours = [point for point in points if point.library == OURS and point.k == target.k]
    chosen = [point for point in ours if point.setting.get("recall") == target.least]
    # Nothing found: the index refused a recall that its vectors cannot give.
    if not chosen or not chosen[0].value(target):
        return None
    equal = [point for point in ours if point.by_hand and point.value(target) >= chosen[0].value(target)]
    if not equal:
        return None
    return chosen[0].queries_per_second / max(point.queries_per_second for point in equal)


def _speed(point: Point) -> float:
    return point.queries_per_second
