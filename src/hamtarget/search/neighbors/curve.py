"""The curve of recall against work that `fit` measures, and the settings that it gives for a wanted recall."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Table = NDArray[np.float64]

# A setting is chosen so that its recall, less so many standard errors of the measurement, reaches what is wanted.
CAUTION = 1.3
_MOST_CHOSEN = 100


class Setting(NamedTuple):
    """How much a search reads.

    Attributes:
        budget: most candidates, rows whose sketches are read.
        comparisons: most rows whose vectors are compared.
        recall: the share of true neighbours that is expected.
    """

    budget: int
    comparisons: int
    recall: float


class Costs(NamedTuple):
    """A model of the work of a query, in nanoseconds of one core, fitted to SIFT and word vectors.

    Settings are compared by this model, not by the clock, so that one seed gives one choice on every machine. Only the
    ratios count.

    Attributes:
        query: of each query, whatever it reads: choosing cells, tables of its distances.
        candidate: of reading a sketch.
        comparison: of comparing a vector.
    """

    query: float
    candidate: float
    comparison: float

    @classmethod
    def of(cls, n_dims: int, n_cells: int, n_parts: int, bytes_per_number: int) -> Costs:
        """Return the costs for an index of this form."""
        return cls(
            query=2500 + n_cells * n_dims / 80,
            candidate=0.03 * (n_parts + 2),
            comparison=40 + 0.1 * n_dims * bytes_per_number,
        )

    def work(self, candidates: Any, comparisons: Any) -> Any:
        """Return the work of queries with so many candidates and comparisons."""
        return self.query + self.candidate * candidates + self.comparison * comparisons


@dataclass(frozen=True)
class Curve:
    """Recall at `k` for budgets and comparisons, measured on rows that were held out; NaN where it was not measured.

    Attributes:
        k: neighbours asked for.
        budgets: ascending, (budgets,).
        comparisons: ascending, (comparisons,).
        recall: (budgets, comparisons).
        error: standard errors of the recall.
        candidates: means for a query.
        compared: means for a query.
        seconds: of one core, for a query.
        ceiling: recall if everything is compared: less than 1 where rows are kept as int8 or float16.
        whole: rows of the index when the curve was measured.
        costs: the model by which settings are compared.
    """

    k: int
    budgets: NDArray[np.int64]
    comparisons: NDArray[np.int64]
    recall: Table
    error: Table
    candidates: Table
    compared: Table
    seconds: Table
    ceiling: float
    whole: int
    costs: Costs
    # Choosing a setting takes longer than a search for one query: what was chosen is remembered.
    _chosen: dict[float, Setting | None] = field(default_factory=dict, init=False, repr=False, compare=False)

    def setting(self, recall: float) -> Setting | None:
        """Return the setting of least work that reaches a recall, or None if rows are kept too coarsely for it.

        Between measured budgets, recall is taken to grow evenly with the logarithm of the budget. Where nothing that
        was measured reaches the recall with a margin for the error, as near the ceiling, the margin is given up. If
        that is not enough, all rows are read.
        """
        if recall in self._chosen:
            return self._chosen[recall]
        best = self._cheapest(recall, CAUTION) or self._cheapest(recall, 0.0)
        if best is None and recall <= self.ceiling:
            best = Setting(self.whole, self.whole, self.ceiling)
        if len(self._chosen) < _MOST_CHOSEN:
            self._chosen[recall] = best
        return best

    def _cheapest(self, recall: float, caution: float) -> Setting | None:
        """Return the setting of least work whose recall, less so many standard errors, is that wanted or more."""
        careful = self.recall - caution * self.error
        best, least = None, np.inf
        for column, comparisons in enumerate(self.comparisons):
            rows = np.flatnonzero(~np.isnan(careful[:, column]))
            reached = rows[careful[rows, column] >= recall]
            if not len(reached):
                continue
            high = int(reached[0])
            share = 1.0
            low = high
            if high > rows[0]:
                low = high - 1
                gain = careful[high, column] - careful[low, column]
                share = (recall - careful[low, column]) / gain if gain > 0 else 1.0
            # A hair less, so that rounding of the logarithms makes no whole number larger.
            budget = int(np.ceil(np.exp(_between(np.log(self.budgets[[low, high]]), share)) * (1 - 1e-9)))
            candidates = _between(self.candidates[[low, high], column], share)
            compared = _between(self.compared[[low, high], column], share)
            work = float(self.costs.work(candidates, compared))
            if work < least:
                expected = float(_between(self.recall[[low, high], column], share))
                best, least = Setting(budget, int(comparisons), expected), work
        return best

    def frontier(self) -> list[tuple[float, int, int, float, float, float]]:
        """Return the measured points that no other point beats in both recall and work.

        Each is (recall, budget, comparisons, candidates, compared, seconds), by rising recall.
        """
        points = []
        for row, column in np.argwhere(~np.isnan(self.recall)):
            here = (row, column)
            work = float(self.costs.work(self.candidates[here], self.compared[here]))
            points.append((work, float(self.recall[here]), here))
        kept: list[tuple[float, int, int, float, float, float]] = []
        for _, recall, (row, column) in sorted(points, key=lambda point: (point[0], -point[1])):
            if not kept or recall > kept[-1][0]:
                kept.append(
                    (
                        recall,
                        int(self.budgets[row]),
                        int(self.comparisons[column]),
                        float(self.candidates[row, column]),
                        float(self.compared[row, column]),
                        float(self.seconds[row, column]),
                    )
                )
        return kept

    def seconds_at(self, setting: Setting) -> float:
        """Return the seconds of one core that a query of a setting takes; NaN for one that was not measured."""
        column = int(np.searchsorted(self.comparisons, setting.comparisons))
        if column == len(self.comparisons):
            return float("nan")
        known = self.seconds[:, column] > 0
        if not known.any():
            return float("nan")
        return float(
            np.exp(np.interp(np.log(setting.budget), np.log(self.budgets[known]), np.log(self.seconds[known, column])))
        )


def _between(pair: NDArray[Any], share: float) -> Any:
    return pair[0] + share * (pair[1] - pair[0])
