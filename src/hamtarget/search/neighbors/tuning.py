"""Tuning: measure recall against work on held-out rows, choose what a search reads from that, and explain the choice.

An exact scan gives the true neighbours of the held-out rows. The curve of an index says which settings find which share
of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import InputError
from hamtarget.search.neighbors.space import Comparison, Floats

Rows = NDArray[np.int64]
Table = NDArray[np.float64]
RowType = Literal["int8", "uint8", "float16", "float32"]
Report = Callable[[float], None]
"""A function of the share of a work that is done. It ends the work by an error where a bound is reached."""
RowsOf = Callable[[Rows], Floats]
"""A function of numbers of rows that returns the rows, as the core gets them."""
Searching = Callable[[Floats, int, int, int], tuple[Rows, Any]]
"""A function of (queries, k, budget, comparisons) that returns numbers of rows and counts, (queries, 2)."""

N_QUERIES = 1000
"""Held-out rows."""
# Steps between budgets and between comparisons; recall is interpolated between budgets, not between comparisons.
_BUDGET_STEP = 1.6
_COMPARISONS_STEP = 1.4
# More is not measured: beyond it, a search reads everything.
_ENOUGH_RECALL = 0.996
# More comparisons are tried while they gain at least this, and this share of what is missing.
_LEAST_GAIN = 0.001
_LEAST_SHARE = 0.05
# At the best setting for a recall, too small a budget and too few comparisons lose about as much as each other.
# Settings are not measured where comparisons lose more than this many times what the budget loses.
_MOST_IMBALANCE = 2.0
# From such budgets on, fewer queries are measured.
_MUCH_TO_READ = 20_000
# A setting is chosen so that its recall, less this many standard errors of the measurement, reaches what is wanted.
CAUTION = 1.3
_MOST_CHOSEN = 100
_ROWS_OF_A_TABLE = 14


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


class CostModel(NamedTuple):
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
    def of(cls, n_dims: int, n_cells: int, n_parts: int, bytes_per_number: int) -> CostModel:
        """Return the costs for an index of this form."""
        return cls(
            query=2500 + n_cells * n_dims / 80,
            candidate=0.03 * (n_parts + 2),
            comparison=40 + 0.1 * n_dims * bytes_per_number,
        )

    def work(self, candidates: Any, comparisons: Any) -> Any:
        """Return the work of queries with these numbers of candidates and comparisons."""
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
    budgets: Rows
    comparisons: Rows
    recall: Table
    error: Table
    candidates: Table
    compared: Table
    seconds: Table
    ceiling: float
    whole: int
    costs: CostModel
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
        """Return the setting of least work whose recall, less this many standard errors, is that wanted or more."""
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


@dataclass(frozen=True)
class Tuned:
    """How rows are kept, and what was measured to choose that and the settings; rows that are scanned have no curves.

    Attributes:
        row_type: how vectors are kept.
        n_cells: number of cells.
        dims_per_part: numbers in a part of a sketch.
        curves: recall against work, by number of neighbours.
        ceilings: recall at k of an exact scan of rows kept in each type that was considered.
        scan_seconds: of one core that an exact scan takes for a query.
        seconds: of each step of `fit`, by name.
    """

    row_type: RowType = "float32"
    n_cells: int = 0
    dims_per_part: int = 0
    curves: Mapping[int, Curve] = field(default_factory=dict)
    ceilings: Mapping[str, float] = field(default_factory=dict)
    scan_seconds: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)

    def curve_for(self, k: int) -> Curve:
        """Return the curve of the smallest number of neighbours that is large enough.

        Raises:
            InputError: there is none.
        """
        for tuned in sorted(self.curves):
            if tuned >= k:
                return self.curves[tuned]
        raise InputError(
            f"k is {k:,}; searches were tuned for up to {max(self.curves):,}: fit NeighborIndex(k={k}), or give both "
            "budget= and comparisons="
        )

    def settings_for(self, recall: float) -> dict[int, Setting]:
        """Return what searches with a recall read, for each number of neighbours that can reach it."""
        found = {k: curve.setting(recall) for k, curve in self.curves.items()}
        return {k: setting for k, setting in found.items() if setting is not None}


@dataclass(frozen=True, repr=False, kw_only=True)
class Explanation(Tuned):
    """An explanation of an index: what was tuned, and what follows; `print` shows it as a page.

    Attributes:
        way: "cells" or "scan".
        why: the reason for it.
        n_rows: rows now.
        n_rows_at_fit: rows when the index was fitted.
        metric: by which vectors are compared.
        n_dims: numbers in a vector.
        recall: share of the true neighbours that is wanted.
        settings: for each k, what a search with the wanted recall reads.
        bytes_per_row: by part.
        advice: when to fit again.
    """

    way: str
    why: str
    n_rows: int
    n_rows_at_fit: int
    metric: str
    n_dims: int
    recall: float
    settings: Mapping[int, Setting]
    bytes_per_row: Mapping[str, float]
    advice: str

    def __repr__(self) -> str:
        """Return the page."""
        return str(self)

    def __str__(self) -> str:
        """Return the page."""
        lines = [f"{self.n_rows:,} vectors of {self.n_dims:,} numbers, metric {self.metric}", f"{self.why}"]
        if self.way == "cells":
            lines += self._cells()
        total = sum(self.bytes_per_row.values())
        parts = ", ".join(f"{name} {size:.1f}" for name, size in self.bytes_per_row.items())
        lines.append(f"bytes a row: {total:.1f} ({parts})")
        if self.seconds:
            parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
            lines.append(f"seconds of fit: {sum(self.seconds.values()):.1f} ({parts})")
        lines.append(self.advice)
        return "\n".join(lines)

    def _cells(self) -> list[str]:
        ceilings = ", ".join(f"{name} {recall:.3f}" for name, recall in self.ceilings.items())
        lines = [
            f"cells: {self.n_cells:,}, about {self.n_rows // max(1, self.n_cells):,} rows each",
            f"sketches: {-(-self.n_dims // self.dims_per_part)} parts of {self.dims_per_part} numbers, 4 bits each",
            f"vectors: {self.row_type} (recall if all are compared: {ceilings})",
        ]
        for k, setting in self.settings.items():
            lines.append(
                f"k = {k}, recall {self.recall:g}: budget {setting.budget:,}, comparisons {setting.comparisons:,}"
            )
        for k, curve in self.curves.items():
            lines.append("")
            lines.append(f"measured at k = {k}, queries a second on one core:")
            lines.append("  recall  queries/s  candidates  comparisons")
            points = curve.frontier()
            step = -(-len(points) // _ROWS_OF_A_TABLE)
            for recall, _, _, candidates, compared, seconds in points[(len(points) - 1) % max(1, step) :: max(1, step)]:
                rate = f"{1 / seconds:,.0f}" if seconds > 0 else "-"
                lines.append(f"   {recall:.3f} {rate:>10} {candidates:>11,.0f} {compared:>12,.0f}")
        lines.append("")
        return lines


@dataclass(frozen=True, eq=False)
class Truth:
    """Queries and their true neighbours.

    Attributes:
        queries: (queries, dims), as the core gets them.
        rows: numbers of the nearest rows, (queries, most), nearest first.
        scores: of those rows, ascending.
        itself: the number of each query among the rows, or None if queries are not rows.
        rows_of: gives rows by number.
        comparison: of queries and rows.
        seconds: of one core that the scan took for a query.
    """

    queries: Floats
    rows: Rows
    scores: Floats
    itself: Rows | None
    rows_of: RowsOf
    comparison: Comparison
    seconds: float = 0.0

    def some(self, here: slice) -> Truth:
        """Return some of the queries."""
        return Truth(
            np.ascontiguousarray(self.queries[here]),
            self.rows[here],
            self.scores[here],
            None if self.itself is None else self.itself[here],
            self.rows_of,
            self.comparison,
            self.seconds,
        )

    def shares_found(self, found: Rows, k: int) -> Table:
        """Return, for each query, the share of its true k neighbours among the first k found; itself does not count.

        A row that is as near as the k-th neighbour is as good as it.

        Args:
            found: numbers of rows, best first, (queries, k or k + 1); -1 where there is none.
            k: neighbours.
        """
        if self.itself is not None:
            others = found != self.itself[:, None]
            # The first k others, in their order.
            order = np.argsort(~others, axis=1, kind="stable")[:, :k]
            found, others = np.take_along_axis(found, order, axis=1), np.take_along_axis(others, order, axis=1)
            found = np.where(others, found, -1)
        else:
            found = found[:, :k]
        is_true = np.zeros(found.shape, dtype=bool)
        for start in range(0, len(found), 64):
            some = slice(start, start + 64)
            is_true[some] = (found[some, :, None] == self.rows[some, None, :k]).any(axis=2)
        last = self.scores[:, k - 1]
        tolerance = 1e-5 * (np.abs(last) + 1e-6)
        tied = np.flatnonzero(self.scores[:, min(k, self.scores.shape[1] - 1)] <= last + tolerance)
        query, place = np.nonzero(~is_true[tied] & (found[tied] >= 0))
        for start in range(0, len(query), 4096):
            who, where = tied[query[start : start + 4096]], place[start : start + 4096]
            rows = self.rows_of(found[who, where])
            scores = self.comparison.biases(rows) - np.einsum("ij,ij->i", rows, self.queries[who])
            is_true[who, where] = scores <= last[who] + tolerance[who]
        return np.asarray(is_true.mean(axis=1))

    def ceiling(self, k: int, rounded: Callable[[Floats], Floats]) -> float:
        """Return the recall at k of an exact scan of rounded rows, estimated from the nearest rows of each query.

        Args:
            k: neighbours, fewer than there are for each query.
            rounded: rounds rows as the core will keep them.
        """
        most = min(self.rows.shape[1], max(4 * k, 32))
        shares = []
        step = max(1, (1 << 22) // (most * self.queries.shape[1]))
        for start in range(0, len(self.queries), step):
            part = self.some(slice(start, start + step))
            numbers = part.rows[:, :most]
            rows = rounded(self.rows_of(numbers.ravel()))
            scores = self.comparison.biases(rows).reshape(numbers.shape)
            scores = scores - np.einsum("qnd,qd->qn", rows.reshape(*numbers.shape, -1), part.queries)
            chosen = np.take_along_axis(numbers, np.argsort(scores, axis=1, kind="stable")[:, :k], axis=1)
            # A query is not among its nearest rows.
            shares.append(part.shares_found(chosen, k))
        return float(np.concatenate(shares).mean())


def measure_curve(
    truth: Truth,
    k: int,
    search: Searching,
    *,
    n_rows: int,
    n_cells: int,
    ceiling: float,
    costs: CostModel,
    report: Report,
) -> Curve:
    """Return the curve of recall at k, measured at budgets that grow until recall hardly does.

    Args:
        truth: queries and their true neighbours.
        k: neighbours.
        search: asks the index.
        n_rows: rows of the index.
        n_cells: cells of the index.
        ceiling: recall of an exact scan of the rows as they are kept.
        costs: the model by which settings are compared.
        report: called with the share of the work that is done.
    """
    wanted = k + (truth.itself is not None)
    budgets = _ladder(max(wanted + 1, 10 * k, 2 * n_rows // n_cells), n_rows // 2, _BUDGET_STEP)
    comparisons = _ladder(max(wanted + 1, 8), max(wanted + 1, min(100 * k + 1000, n_rows)), _COMPARISONS_STEP)
    shape = (len(budgets), len(comparisons))
    tables = {name: np.full(shape, np.nan) for name in ("recall", "error", "candidates", "compared", "seconds")}
    enough = min(_ENOUGH_RECALL, ceiling - 0.003)
    first_column, row = 0, -1
    for row, budget in enumerate(budgets):
        before = -1.0
        # Fewer queries where each takes long; recall is high there, and varies less.
        step = 1 if budget <= _MUCH_TO_READ else 2 if budget <= 2 * _MUCH_TO_READ else 4
        asked = truth.some(slice(None, None, step))
        for column in range(first_column, len(comparisons)):
            if comparisons[column] > budget and column > first_column:
                break
            begin = time.process_time()
            found, counts = search(asked.queries, wanted, int(budget), int(comparisons[column]))
            seconds = time.process_time() - begin
            shares = asked.shares_found(found, k)
            counts = np.asarray(counts, dtype=np.float64)
            here = (row, column)
            tables["recall"][here] = shares.mean()
            tables["error"][here] = shares.std() / np.sqrt(len(shares))
            tables["candidates"][here], tables["compared"][here] = counts.mean(axis=0)
            tables["seconds"][here] = seconds / len(shares)
            report(row / len(budgets))
            gain, before = shares.mean() - before, shares.mean()
            if gain < max(_LEAST_GAIN, _LEAST_SHARE * (1 - before)) and column > first_column:
                break
        first_column = _first_useful(tables["recall"][row], first_column)
        report(min(1.0, (row + 1) / len(budgets)))
        if before >= enough:
            break
    report(1.0)
    return Curve(
        k=k,
        budgets=budgets[: row + 1],
        comparisons=comparisons,
        **{name: table[: row + 1] for name, table in tables.items()},
        ceiling=ceiling,
        whole=n_rows,
        costs=costs,
    )


def _ladder(first: int, last: int, step: float) -> Rows:
    """Return whole numbers from `first` to `last`, each about `step` times the one before."""
    last = max(first, last)
    count = 1 + int(np.ceil(np.log(last / first) / np.log(step)))
    return np.unique(np.rint(np.geomspace(first, last, count)).astype(np.int64))


def _first_useful(recall: NDArray[np.float64], column: int) -> int:
    """Return the first column to measure at the next, larger budget, which needs no fewer comparisons."""
    best = float(np.nanmax(recall))
    lost = best - recall
    while column + 1 < len(recall) and lost[column] > _MOST_IMBALANCE * (1 - best) + 0.01:
        column += 1
    # The next budget loses less.
    return max(0, column - 1) if column + 1 < len(recall) else column


def chosen_ks(k: int, n_rows: int) -> Sequence[int]:
    """Return the numbers of neighbours for which curves are measured: 1, 10, 100 and the user's, as rows allow."""
    return sorted({each for each in (1, 10, 100, k) if each <= max(k, n_rows // 100)})
