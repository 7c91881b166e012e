"""Exact neighbours by scanning all rows, block by block.

Scores come from matrix products of float32, but their rounding never decides: a row is proposed unless its score
exceeds the k-th best by more than a bound on the rounding, and proposed rows are compared again in float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
CoreMetric = Literal["l2", "dot"]

# Queries and rows of a block of scores: 16 MB of float32.
_QUERIES_AT_A_TIME = 512
_ROWS_AT_A_TIME = 1 << 13
# Elements of proposed rows that are compared again at a time: 32 MB.
_ELEMENTS_AT_A_TIME = 1 << 22


def half_squares(rows: Floats) -> Floats:
    """Return half the squared length of each row, which "l2" adds to scores."""
    squares: Floats = np.einsum("ij,ij->i", rows, rows) * np.float32(0.5)
    return squares


def approximate_nearest(
    queries: Floats, blocks: Iterable[Floats], k: int, metric: CoreMetric, *, skip: Rows | None = None
) -> tuple[Rows, Floats]:
    """Return the k nearest rows of each query by float32 products, and their scores: tuning needs no more.

    A score is -<q, x>, for "l2" plus |x|^2 / 2. Where there are fewer than k rows, the rest is -1 and infinity.

    Args:
        queries: (queries, dims).
        blocks: of the rows, in their order.
        k: neighbours for each query.
        metric: "l2" or "dot".
        skip: a row for each query that is not to be found, such as itself.
    """
    best = np.full((len(queries), k), np.inf, dtype=np.float32)
    numbers = np.full((len(queries), k), -1, dtype=np.int64)
    start = 0
    for large in blocks:
        for block in np.split(large, range(_ROWS_AT_A_TIME, len(large), _ROWS_AT_A_TIME)):
            halves = half_squares(block) if metric == "l2" else None
            for first in range(0, len(queries), _QUERIES_AT_A_TIME):
                some = slice(first, first + _QUERIES_AT_A_TIME)
                scores = queries[some] @ block.T
                np.negative(scores, out=scores)
                if halves is not None:
                    scores += halves
                if skip is not None:
                    place = skip[some] - start
                    inside = np.flatnonzero((place >= 0) & (place < len(block)))
                    scores[inside, place[inside]] = np.inf
                best[some], numbers[some] = _merged(best[some], numbers[some], scores, start)
            start += len(block)
    order = np.argsort(best, axis=1, kind="stable")
    return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(best, order, axis=1)


def _merged(best: Floats, numbers: Rows, scores: Floats, start: int) -> tuple[Floats, Rows]:
    """Return the k best of those so far and of a block of scores."""
    k = best.shape[1]
    limit = best.max(axis=1)
    if np.isinf(limit).any() and scores.shape[1] > k:
        limit = np.minimum(limit, np.partition(scores, k - 1, axis=1)[:, k - 1])
    query, row = np.nonzero(scores <= limit[:, None])
    # So many are better than the k-th so far: few, once a few blocks are done.
    counts = np.bincount(query, minlength=len(best))
    width = int(counts.max(initial=0))
    if width == 0:
        return best, numbers
    column = np.arange(len(query)) - np.repeat(np.cumsum(counts) - counts, counts)
    more = np.full((len(best), k + width), np.inf, dtype=np.float32)
    more_numbers = np.full((len(best), k + width), -1, dtype=np.int64)
    more[:, :k], more_numbers[:, :k] = best, numbers
    more[query, k + column] = scores[query, row]
    more_numbers[query, k + column] = row + start
    chosen = np.argpartition(more, k - 1, axis=1)[:, :k]
    return np.take_along_axis(more, chosen, axis=1), np.take_along_axis(more_numbers, chosen, axis=1)


def exact_scores(queries: Floats, rows: Floats, metric: CoreMetric) -> NDArray[np.float64]:
    """Return the distance of pairs, a query and a row each, in float64: for "l2" from differences, else -<q, x>."""
    result = np.empty(len(queries))
    pairs = max(1, _ELEMENTS_AT_A_TIME // max(1, queries.shape[1]))
    for start in range(0, len(queries), pairs):
        left = queries[start : start + pairs].astype(np.float64)
        right = rows[start : start + pairs].astype(np.float64)
        if metric == "l2":
            left -= right
            result[start : start + pairs] = np.sqrt(np.einsum("ij,ij->i", left, left))
        else:
            result[start : start + pairs] = -np.einsum("ij,ij->i", left, right)
    return result


class ScannedRows(NamedTuple):
    """Rows that are scanned; never changed, so that searches go on while another version is made.

    Attributes:
        ids: (rows,) int64.
        rows: (rows, dims) float32.
        halves: half their squared lengths; zeros where the metric is "dot".
        is_alive: False where a row was deleted.
    """

    ids: Rows
    rows: Floats
    halves: Floats
    is_alive: NDArray[np.bool_]

    @classmethod
    def of(cls, ids: Rows, rows: Floats, metric: CoreMetric) -> ScannedRows:
        """Make them of rows as the space gives them."""
        halves = half_squares(rows) if metric == "l2" else np.zeros(len(rows), dtype=np.float32)
        return cls(ids, rows, halves, np.ones(len(ids), dtype=bool))

    def joined(self, other: ScannedRows) -> ScannedRows:
        """Return these rows and others, without those that were deleted."""
        kept = self.is_alive
        return ScannedRows(
            np.concatenate([self.ids[kept], other.ids]),
            np.concatenate([self.rows[kept], other.rows]),
            np.concatenate([self.halves[kept], other.halves]),
            np.concatenate([self.is_alive[kept], other.is_alive]),
        )

    def without(self, ids: Rows) -> ScannedRows:
        """Return these rows with some marked as deleted."""
        return self._replace(is_alive=self.is_alive & ~np.isin(self.ids, ids))

    def search(
        self, queries: Floats, k: int, metric: CoreMetric, limits: Any = None
    ) -> tuple[Rows, NDArray[np.float64]]:
        """Return ids of the k nearest of each query, nearest first, and distances; ties in the order of ids."""
        ids = np.empty((len(queries), k), dtype=np.int64)
        distances = np.empty((len(queries), k))
        for first in range(0, len(queries), _QUERIES_AT_A_TIME):
            here = slice(first, first + _QUERIES_AT_A_TIME)
            ids[here], distances[here] = self._search_some(queries[here], k, metric, limits)
        return ids, distances

    def _search_some(
        self, queries: Floats, k: int, metric: CoreMetric, limits: Any
    ) -> tuple[Rows, NDArray[np.float64]]:
        n, dims = len(queries), queries.shape[1]
        lengths = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
        best = _Best(n, k)
        for start in range(0, len(self.rows), _ROWS_AT_A_TIME):
            here = slice(start, start + _ROWS_AT_A_TIME)
            block, halves = self.rows[here], self.halves[here]
            if limits is not None:
                limits.take(rows=n * len(block))
                limits.check()
            scores = queries @ block.T
            np.subtract(halves, scores, out=scores)
            scores[:, ~self.is_alive[here]] = np.inf
            sizes = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
            bound = best.limit(lengths, metric)
            if np.isinf(bound).any() and scores.shape[1] > k:
                upper = scores + _rounding(lengths[:, None], sizes, dims)
                bound = np.minimum(bound, np.partition(upper, k - 1, axis=1)[:, k - 1])
            # First by the rounding of the longest row, which a few long ones make wide; then each row by its own.
            above = np.nextafter((bound + _rounding(lengths, sizes.max(), dims)).astype(np.float32), np.float32(np.inf))
            query, row = np.nonzero((scores <= above[:, None]) & np.isfinite(scores))
            near = scores[query, row] <= bound[query] + _rounding(lengths[query], sizes[row], dims)
            query, row = query[near], row[near]
            best.take(query, self.ids[here][row], exact_scores_of(queries, block, query, row, metric))
        return best.result()


def _rounding(queries: NDArray[np.float64], rows: NDArray[np.float64], dims: int) -> NDArray[np.float64]:
    """Return how far float32 scores of queries and rows of these lengths can be off.

    A sum of n products is off by at most n u times the sum of their sizes (u: half the spacing at 1). What scores are
    compared with is rounded, too, as float64.
    """
    narrow, wide = (float(np.finfo(kind).eps) for kind in (np.float32, np.float64))
    off: NDArray[np.float64] = (dims + 8) * narrow * (queries + rows) * rows + 8 * wide * (queries + rows) ** 2 + 1e-37
    return off


def exact_scores_of(queries: Floats, rows: Floats, query: Rows, row: Rows, metric: CoreMetric) -> NDArray[np.float64]:
    """Return the distance of pairs of numbers of queries and rows, in float64."""
    result = np.empty(len(query))
    pairs = max(1, _ELEMENTS_AT_A_TIME // max(1, queries.shape[1]))
    for start in range(0, len(query), pairs):
        some = slice(start, start + pairs)
        result[some] = exact_scores(queries[query[some]], rows[row[some]], metric)
    return result


class _Best:
    """The nearest rows of each query so far, ordered by query, distance and id."""

    def __init__(self, n_queries: int, k: int) -> None:
        self._n_queries, self._k = n_queries, k
        self._query = np.empty(0, dtype=np.int64)
        self._ids = np.empty(0, dtype=np.int64)
        self._distances = np.empty(0)

    def limit(self, lengths: NDArray[np.float64], metric: CoreMetric) -> NDArray[np.float64]:
        """Return the score of each query's k-th row; infinite where there are fewer."""
        counts = np.bincount(self._query, minlength=self._n_queries)
        result = np.full(self._n_queries, np.inf)
        full = counts == self._k
        last = self._distances[counts.cumsum()[full] - 1]
        result[full] = (last**2 - lengths[full] ** 2) / 2 if metric == "l2" else last
        return result

    def take(self, query: Rows, ids: Rows, distances: NDArray[np.float64]) -> None:
        """Keep the nearest of these rows and of those so far."""
        if not len(query):
            return
        query = np.concatenate([self._query, query])
        ids = np.concatenate([self._ids, ids])
        distances = np.concatenate([self._distances, distances])
        order = np.lexsort((ids, distances, query))
        starts = np.searchsorted(query[order], np.arange(self._n_queries))
        kept = order[np.arange(len(order)) - starts[query[order]] < self._k]
        self._query, self._ids, self._distances = query[kept], ids[kept], distances[kept]

    def result(self) -> tuple[Rows, NDArray[np.float64]]:
        """Return ids and distances, (queries, k)."""
        shape = (self._n_queries, self._k)
        return self._ids.reshape(shape), self._distances.reshape(shape)
