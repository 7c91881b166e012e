"""Tuning: measure the recall of an index on held-out rows, whose true neighbours an exact scan gives."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hamtarget.search.neighbors.curve import Costs, Curve
from hamtarget.search.neighbors.exact import CoreMetric

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
Searching = Callable[[Floats, int, int, int], tuple[Rows, Any]]
"""A function of (queries, k, budget, comparisons) that returns numbers of rows and counts, (queries, 2)."""

# Held-out rows.
N_QUERIES = 1000
# Steps between budgets and between comparisons; recall is interpolated between budgets, not between comparisons.
_BUDGET_STEP = 1.6
_COMPARISONS_STEP = 1.4
# More is not measured: beyond it, a search reads everything.
_ENOUGH_RECALL = 0.996
# More comparisons are tried while they gain at least this, and this share of what is missing.
_LEAST_GAIN = 0.001
_LEAST_SHARE = 0.05
# At the best setting for a recall, too small a budget and too few comparisons lose about as much as each other.
# Settings are not measured where comparisons lose more than so many times what the budget loses.
_MOST_IMBALANCE = 2.0
# From such budgets on, fewer queries are measured.
_MUCH_TO_READ = 20_000


class Truth(NamedTuple):
    """Queries and their true neighbours.

    Attributes:
        queries: (queries, dims), as the core gets them.
        rows: numbers of the nearest rows, (queries, most), nearest first.
        scores: of those rows, ascending.
        itself: the number of each query among the rows, or None if queries are not rows.
        seconds: of one core that the scan took for a query.
    """

    queries: Floats
    rows: Rows
    scores: Floats
    itself: Rows | None
    seconds: float

    def every(self, step: int) -> Truth:
        """Return every so many-th query."""
        itself = None if self.itself is None else self.itself[::step]
        return self._replace(
            queries=np.ascontiguousarray(self.queries[::step]),
            rows=self.rows[::step],
            scores=self.scores[::step],
            itself=itself,
        )


class RowsByNumber(Protocol):
    """Gives rows, as the core gets them, by their numbers."""

    def __call__(self, numbers: Rows) -> Floats:
        """Return the rows with these numbers."""
        ...


def shares_found(truth: Truth, found: Rows, k: int, rows_of: RowsByNumber, metric: CoreMetric) -> NDArray[np.float64]:
    """Return, for each query, the share of its true k neighbours among the first k found; itself does not count.

    A row that is as near as the k-th neighbour is as good as it.

    Args:
        truth: what should be found.
        found: numbers of rows, best first, (queries, k or k + 1); -1 where there is none.
        k: neighbours.
        rows_of: gives rows, to compare those that are not among the true ones.
        metric: the core's.
    """
    if truth.itself is not None:
        others = found != truth.itself[:, None]
        # The first k others, in their order.
        order = np.argsort(~others, axis=1, kind="stable")[:, :k]
        found, others = np.take_along_axis(found, order, axis=1), np.take_along_axis(others, order, axis=1)
        found = np.where(others, found, -1)
    else:
        found = found[:, :k]
    is_true = np.zeros(found.shape, dtype=bool)
    for start in range(0, len(found), 64):
        some = slice(start, start + 64)
        is_true[some] = (found[some, :, None] == truth.rows[some, None, :k]).any(axis=2)
    last = truth.scores[:, k - 1]
    tolerance = 1e-5 * (np.abs(last) + 1e-6)
    tied = np.flatnonzero(truth.scores[:, min(k, truth.scores.shape[1] - 1)] <= last + tolerance)
    query, place = np.nonzero(~is_true[tied] & (found[tied] >= 0))
    for start in range(0, len(query), 4096):
        who, where = tied[query[start : start + 4096]], place[start : start + 4096]
        rows = rows_of(found[who, where])
        scores = -np.einsum("ij,ij->i", rows, truth.queries[who])
        if metric == "l2":
            scores += 0.5 * np.einsum("ij,ij->i", rows, rows)
        is_true[who, where] = scores <= last[who] + tolerance[who]
    return np.asarray(is_true.mean(axis=1))


def ceiling_of(
    truth: Truth, k: int, rows_of: RowsByNumber, metric: CoreMetric, rounded: Callable[[Floats], Floats]
) -> float:
    """Return the recall at k of an exact scan of rounded rows, estimated from the nearest rows of each query.

    Args:
        truth: with more than k neighbours of each query.
        k: neighbours.
        rows_of: gives rows by number.
        metric: the core's.
        rounded: rounds rows as the core will keep them.
    """
    most = min(truth.rows.shape[1], max(4 * k, 32))
    shares = []
    some = max(1, (1 << 22) // (most * truth.queries.shape[1]))
    for start in range(0, len(truth.queries), some):
        numbers = truth.rows[start : start + some, :most]
        rows = rounded(rows_of(numbers.ravel())).reshape(*numbers.shape, -1)
        scores = -np.einsum("qnd,qd->qn", rows, truth.queries[start : start + some])
        if metric == "l2":
            scores += 0.5 * np.einsum("qnd,qnd->qn", rows, rows)
        chosen = np.take_along_axis(numbers, np.argsort(scores, axis=1, kind="stable")[:, :k], axis=1)
        part = truth._replace(
            queries=truth.queries[start : start + some],
            rows=truth.rows[start : start + some],
            scores=truth.scores[start : start + some],
            itself=None,
        )
        shares.append(shares_found(part, chosen, k, rows_of, metric))
    return float(np.concatenate(shares).mean())


def measure_curve(
    truth: Truth,
    k: int,
    search: Searching,
    rows_of: RowsByNumber,
    metric: CoreMetric,
    *,
    n_rows: int,
    n_cells: int,
    ceiling: float,
    costs: Costs,
    report: Callable[[float], None],
) -> Curve:
    """Return the curve of recall at k, measured at budgets that grow until recall hardly does.

    Args:
        truth: queries and their true neighbours.
        k: neighbours.
        search: asks the index.
        rows_of: gives rows by number.
        metric: the core's.
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
        asked = truth.every(1 if budget <= _MUCH_TO_READ else 2 if budget <= 2 * _MUCH_TO_READ else 4)
        for column in range(first_column, len(comparisons)):
            if comparisons[column] > budget and column > first_column:
                break
            begin = time.process_time()
            found, counts = search(asked.queries, wanted, int(budget), int(comparisons[column]))
            seconds = time.process_time() - begin
            shares = shares_found(asked, found, k, rows_of, metric)
            counts = np.asarray(counts, dtype=np.float64)
            here = (row, column)
            tables["recall"][here] = shares.mean()
            tables["error"][here] = shares.std() / np.sqrt(len(shares))
            tables["candidates"][here], tables["compared"][here] = counts.mean(axis=0)
            tables["seconds"][here] = seconds / len(shares)
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


def _ladder(first: int, last: int, step: float) -> NDArray[np.int64]:
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
