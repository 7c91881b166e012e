"""Tuning: which budget and how many comparisons give which recall, measured on rows of the store itself."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hamtarget.answer import Answer
from hamtarget.errors import CorruptFileError, InputError
from hamtarget.query import PLAIN_WORK, Asked, Query, Work
from hamtarget.search.index import CodeIndex
from hamtarget.search.neighbor_index import NeighborIndex
from hamtarget.search.neighbors.tuning import N_QUERIES
from hamtarget.search.requests import CodeKind, Request

FEWEST_ITEMS = 10_000
"""Of fewer items, all vectors are compared: that takes about a millisecond, and finds everything."""

GROWTH = 1.5
"""A store whose vectors are probed by codes is tuned again when it has grown so much."""

GROWTH_OF_CELLS = 2.0
"""A store whose vectors are in cells is tuned again when it has grown so much; budgets grow with it until then."""

SEED = 0

# Queries are compared with all rows: of a large store, fewer are taken.
_MOST_QUERIES, _FEWEST_QUERIES = 500, 100
_MOST_COMPARISONS = 100_000_000
# Budgets rise by this factor, from the first one on until nearly everything is found.
_STEP = 1.5
_FIRST_BUDGET = 250
_ENOUGH = 0.998
# So many of the rows that are read are compared by their vectors: few, or many.
_SHARES = (1 / 12, 1 / 4)
_TIMED_SCANS = 5
# Settings of cells are kept, to be shown, for these recalls.
_SHOWN_RECALLS = (0.8, 0.9, 0.95, 0.98, 0.99)


@dataclass(frozen=True, slots=True)
class Point:
    """A setting of a search, and what was measured with it.

    Attributes:
        budget: most rows read for a query.
        comparisons: most vectors compared for a query.
        recall: share of the true nearest vectors that were found.
        microseconds: time of a query on one thread, without the encoder.
    """

    budget: int
    comparisons: int
    recall: float
    microseconds: float


@dataclass(frozen=True, slots=True)
class Tuning:
    """Measured settings of searches for the `k` nearest vectors.

    Attributes:
        k: so many were sought; the settings serve fewer as well.
        n_items: items that the store had.
        n_queries: vectors of the store that were sought, each among all others.
        points: settings with rising recall, each the fastest of its recall; none if comparing all vectors is faster.
        scan_microseconds: time in which a query is compared with all vectors.
        way: "cells" if vectors are found in cells; "probe" if they are found by their codes.
    """

    k: int
    n_items: int
    n_queries: int
    points: tuple[Point, ...]
    scan_microseconds: float
    way: Literal["probe", "cells"] = "probe"

    def point_for(self, recall: float) -> Point | None:
        """Return the fastest setting that reaches a recall; None: comparing all vectors is faster, or the only way."""
        for point in self.points:
            if point.recall >= recall:
                return point if point.microseconds < self.scan_microseconds else None
        return None

    def suits(self, n_items: int) -> bool:
        """Return True if a store of so many items need not be tuned again."""
        return n_items <= (GROWTH_OF_CELLS if self.way == "cells" else GROWTH) * self.n_items

    def as_text(self) -> str:
        """Return all of it as JSON, with a checksum."""
        content = json.dumps(asdict(self), sort_keys=True)
        return json.dumps({"tuning": content, "checksum": zlib.crc32(content.encode())})


def tuning_of(text: str) -> Tuning:
    """Return the tuning that `Tuning.as_text` wrote.

    Raises:
        CorruptFileError: it is something else.
    """
    try:
        sealed = json.loads(text)
        content = sealed["tuning"]
        if zlib.crc32(content.encode()) != sealed["checksum"]:
            raise ValueError("its checksum is wrong")
        found: dict[str, Any] = json.loads(content)
        points = tuple(Point(**point) for point in found.pop("points"))
        tuning = Tuning(**found, points=points)
        numbers = [tuning.k, tuning.n_items, tuning.n_queries]
        numbers += [number for point in points for number in (point.budget, point.comparisons)]
        if not all(type(number) is int and 1 <= number < 2**62 for number in numbers):
            raise ValueError("a number is out of range")
        if tuning.way not in ("probe", "cells"):
            raise ValueError("its way is unknown")
        if not all(0 <= point.recall <= 1 and point.microseconds >= 0 for point in points):
            raise ValueError("a recall or a time is out of range")
        return tuning
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptFileError(f"the tuning of the store is damaged ({error}); call tune() again") from error


def check_recall(recall: float) -> float:
    """Return `recall` if it is a share above 0 and up to 1.

    Raises:
        InputError: it is not.
    """
    if isinstance(recall, bool) or not isinstance(recall, int | float | np.floating) or not 0 < recall <= 1:
        raise InputError(f"recall is {recall!r}; expected a number above 0 and up to 1, such as 0.95")
    return float(recall)


def n_tuning_queries(n_items: int) -> int:
    """Return how many vectors of a store are sought to tune it."""
    return min(_MOST_QUERIES, max(_FEWEST_QUERIES, _MOST_COMPARISONS // max(1, n_items)))


def scan_request(kind: CodeKind, asked: Asked, k: int, work: Work = PLAIN_WORK) -> Request:
    """Return the request that compares all vectors with each query, and finds the `k` nearest."""
    # At any distance of codes, and all of them.
    return kind.request(asked, Query(rerank=k), work)


def tune_index(
    index: CodeIndex,
    rows: NDArray[np.int64],
    asked: Asked,
    k: int,
    work: Work = PLAIN_WORK,
) -> Tuning:
    """Measure settings of searches for the `k` nearest vectors.

    Args:
        index: all rows of a store, with their vectors.
        rows: the rows that are searched for, each among all others.
        asked: their logits, and their vectors as they are kept.
        k: number of neighbours.
        work: threads that compare all rows, and progress in steps.
    """
    n_items, threads = len(index), work.n_threads(1)
    budgets = list(_budgets(n_items, k))
    n_steps = len(rows) + len(budgets)
    tell = work.progress or _nobody
    # The row itself is found first, and does not count.
    scan = scan_request(index.kind, asked, k + 1)
    truth: list[list[float]] = []
    block = threads * 8
    began = time.thread_time()
    _others(index.find(scan.part(0, _TIMED_SCANS)), rows[:_TIMED_SCANS], k)
    scan_microseconds = 1e6 * (time.thread_time() - began) / min(_TIMED_SCANS, len(rows))
    for start in range(0, len(rows), block):
        here = slice(start, start + block)
        truth += _others(index.find(scan.part(here.start, here.stop)._replace(threads=threads)), rows[here], k)
        tell(min(start + block, len(rows)), n_steps)
    n_true = max(1, sum(map(len, truth)))
    # Whatever is as near as the last of the true ones is as good: which of several equal vectors is found is chance.
    farthest = [true[-1] if true else -np.inf for true in truth]
    measured: list[Point] = []
    for step, budget in enumerate(budgets, 1):
        recall = 0.0
        for share in _SHARES:
            comparisons = max(2 * (k + 1), int(budget * share))
            wanted = Query(index.n_bits - 1, budget=budget, rerank=k + 1, comparisons=comparisons)
            request = index.request(asked, wanted)
            began = time.thread_time()
            hits = index.find(request)
            seconds = time.thread_time() - began
            found = _others(hits, rows, k)
            n_found = sum(sum(map(last.__ge__, mine)) for mine, last in zip(found, farthest, strict=True))
            recall = n_found / n_true
            measured.append(Point(budget, comparisons, recall, 1e6 * seconds / len(rows)))
        tell(len(rows) + step, n_steps)
        if recall >= _ENOUGH:
            break
    tell(n_steps, n_steps)
    return Tuning(k, n_items, len(rows), _fastest(measured), scan_microseconds)


def tuning_of_cells(cells: NeighborIndex, k: int) -> Tuning:
    """Return what was measured while cells were fitted, for `k` neighbours: a few settings of each curve."""
    told = cells.explain()
    curve = next((told.curves[tuned] for tuned in sorted(told.curves) if tuned >= k), None)
    points: list[Point] = []
    for recall in _SHOWN_RECALLS if told.way == "cells" and curve is not None else ():
        setting = cells.setting(k, recall)
        if setting is not None and curve is not None and (not points or setting.recall > points[-1].recall):
            microseconds = 1e6 * float(np.nan_to_num(curve.seconds_at(setting)))
            points.append(Point(setting.budget, setting.comparisons, min(1.0, setting.recall), microseconds))
    n_queries = max(1, min(N_QUERIES, told.n_rows_at_fit // 4))
    return Tuning(k, told.n_rows_at_fit, n_queries, tuple(points), 1e6 * told.scan_seconds, "cells")


def _budgets(n_items: int, k: int) -> Iterator[int]:
    budget = float(max(_FIRST_BUDGET, 4 * k))
    while budget < n_items / 2:
        yield int(budget)
        budget *= _STEP


def _others(hits: Answer, rows: NDArray[np.int64], k: int) -> list[list[float]]:
    """Return the distances of the first `k` rows that each query found, without its own."""
    if hits.embedding_distances is None:
        raise TypeError("a search by vectors did not tell their distances")
    found = []
    for number, row in enumerate(rows.tolist()):
        here = slice(*hits.offsets[number : number + 2].tolist())
        mine = zip(hits.rows[here].tolist(), hits.embedding_distances[here].tolist(), strict=True)
        found.append([distance for other, distance in mine if other != row][:k])
    return found


def _fastest(points: list[Point]) -> tuple[Point, ...]:
    """Return the points that are not both slower and worse than another, by rising recall."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda point: (-point.recall, point.microseconds)):
        if not kept or point.microseconds < kept[-1].microseconds:
            kept.append(point)
    return tuple(reversed(kept))


def _nobody(_done: int, _total: int) -> None:
    """Tell nobody."""
