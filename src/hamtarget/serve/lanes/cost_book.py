"""Costs of searches: seconds that searches of each kind took lately, to tell quick ones from slow ones."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

_MOST_KINDS = 1024
_FIRST_QUERIES = 8


@dataclass(slots=True)
class _Cost:
    """Seconds of a call for any number of queries, and of each of its queries."""

    least: float
    each: float


class CostBook:
    """Seconds of searches by their kind; the latest count most. Any thread may read and write."""

    def __init__(self) -> None:
        self._costs: dict[Hashable, _Cost] = {}

    def expected(self, kind: Hashable, n_queries: int) -> float | None:
        """Return the seconds that a search for so many queries will take; None: no such search was seen."""
        cost = self._costs.get(kind)
        return None if cost is None else max(cost.least, cost.each * n_queries)

    def saw(self, kind: Hashable, n_queries: int, seconds: float) -> None:
        """Remember what a search took; one that took far longer than others counts less: the machine may be busy."""
        each = seconds / n_queries
        cost = self._costs.get(kind)
        if cost is None:
            self._remember(kind, _Cost(seconds, each))
            return
        # Some searches take as long for one query as for many, such as those that read all payloads. A call for many
        # queries does not tell that one would take long: else somebody's large batches would make a small search slow.
        if n_queries == 1 or seconds < cost.least:
            cost.least = _followed(cost.least, seconds)
        cost.each = _followed(cost.each, each)

    def gave_up(self, kind: Hashable, seconds: float) -> None:
        """Remember that a search was not done after so many seconds: perhaps its first query took all of them."""
        self._remember(kind, _Cost(seconds, seconds))

    def _remember(self, kind: Hashable, cost: _Cost) -> None:
        if len(self._costs) >= _MOST_KINDS and kind not in self._costs:
            # Another thread may have done the same.
            self._costs.pop(next(iter(self._costs)), None)
        self._costs[kind] = cost


def _followed(before: float, now: float) -> float:
    """Return a mean of costs that goes down quickly, and up more slowly."""
    return (before + now) / 2 if now < before else (3 * before + min(now, 4 * before)) / 4


class Slices:
    """Sizes of the parts into which a long search is cut, so that others' searches can come between.

    The first part is small. From what parts took, the next ones are made as large as fits the time of a turn; where a
    part takes long however small it is, parts are as large as doubles that time.

    Args:
        seconds: time of a turn.
        each: seconds of a query, if known.

    Attributes:
        size: queries of the next part.
    """

    def __init__(self, seconds: float, each: float | None = None) -> None:
        self._seconds = seconds
        self._last: tuple[int, float] | None = None
        self.size = _FIRST_QUERIES if not each else max(1, int(seconds / each))

    def took(self, n_queries: int, seconds: float) -> None:
        """Learn from the last part."""
        last, self._last = self._last, (n_queries, seconds)
        if last is None:
            # Another size, to see what a query takes.
            self.size = 4 * n_queries if seconds < self._seconds / 4 else n_queries + n_queries // 2 + 1
            return
        if last[0] == n_queries:
            return
        each = max((seconds - last[1]) / (n_queries - last[0]), 1e-7)
        fixed = min(max(seconds - each * n_queries, 0.0), seconds)
        turn = max(self._seconds, 2 * fixed)
        self.size = max(1, min(int((turn - fixed) / each), 8 * n_queries))
