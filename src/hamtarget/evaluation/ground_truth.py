"""Exact nearest neighbours by Euclidean distance.

Distances come from matrix products, but rounding of the products never decides the result:

- Whole numbers (SIFT as uint8, or as float32 without fractions) are shifted to the middle of their range. If three
  times the largest possible product is at most 2^24 (bytes: up to 341 columns), every intermediate sum is a whole
  number that float32 holds exactly, whatever the order of summation. Up to 2^53, float64 does.
- For other numbers, products only propose rows. A row is proposed unless its distance exceeds the k-th best by more
  than a bound on the rounding. The distances of proposed rows are computed again from differences, in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.datasets.vector_files import checked_vectors, row_blocks
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.progress import Progress

# Queries and rows of a block of scores: 16 MB of float32, or 32 MB of float64.
_QUERIES_AT_A_TIME = 512
_ROWS_AT_A_TIME = 1 << 13
# Elements of the differences of proposed pairs that are computed at a time: 32 MB.
_ELEMENTS_AT_A_TIME = 1 << 22
# Sums of squares of larger numbers could leave the range of float64. The next two are the limits for float32.
_LARGEST = 1e150
_SMALLEST_FOR_FLOAT32, _LARGEST_FOR_FLOAT32 = 1e-15, 1e15


def exact_neighbors(
    queries: ArrayLike, base: ArrayLike, k: int, *, progress: Progress | None = None
) -> NDArray[np.int64]:
    """Return the row numbers of the k rows of `base` nearest to each query, (queries, k), nearest first.

    Distances are Euclidean; rows at equal distance are ordered by number. Distances of whole numbers up to 2^24 are
    compared without any rounding, others as float64 computes them from differences. Against a million rows of 128
    numbers, a query takes about 15 ms on one core.

    Args:
        queries: (queries, columns) of finite numbers.
        base: (rows, columns), with the same number of columns.
        k: neighbours for each query, at most the number of rows.
        progress: called with the number of queries done and the number of all queries.

    Raises:
        ShapeError: an array has not two dimensions or is empty, or the columns differ.
        DtypeError: elements are not real numbers, or `k` is not an integer.
        InputError: `k` is out of range, or numbers exceed 1e150.
        NotFiniteError: an element is NaN or infinite.

    Example:
        >>> exact_neighbors([[0.0, 0.0]], [[3.0, 4.0], [1.0, 0.0], [9.0, 9.0]], k=2)
        array([[1, 0]])
    """
    left = checked_vectors(np.asarray(queries), where="queries")
    right = checked_vectors(np.asarray(base), where="base")
    if left.shape[1] != right.shape[1]:
        raise ShapeError(f"queries have {left.shape[1]} columns and base {right.shape[1]}; expected the same")
    if not isinstance(k, int | np.integer) or isinstance(k, bool):
        raise DtypeError(f"k is {k!r}; expected an integer")
    if not 1 <= k <= len(right):
        raise InputError(f"k is {k}; expected 1 to {len(right):,}, the rows of base")
    plan = _Plan.of(left, right)
    result = np.empty((len(left), int(k)), dtype=np.int64)
    for start in range(0, len(left), _QUERIES_AT_A_TIME):
        some = left[start : start + _QUERIES_AT_A_TIME]
        result[start : start + len(some)] = _nearest(some, right, int(k), plan)
        if progress is not None:
            progress(start + len(some), len(left))
    return result


@dataclass(frozen=True)
class _Plan:
    """A plan of the products: in type `element`, after subtracting `centre`; `exact` if nothing is rounded."""

    centre: NDArray[np.float64]
    element: type[np.float32] | type[np.float64]
    exact: bool

    @classmethod
    def of(cls, queries: NDArray[Any], base: NDArray[Any]) -> _Plan:
        low = float(min(_fold(queries, np.min), _fold(base, np.min)))
        high = float(max(_fold(queries, np.max), _fold(base, np.max)))
        reach = max(abs(low), abs(high))
        if reach > _LARGEST:
            raise InputError(f"numbers reach {reach:.3g}; expected at most {_LARGEST:g}: scale them")
        middle = float(np.floor((low + high + 1) / 2))
        largest = max(high - middle, middle - low)
        # A bound on |b|^2 - 2 q.b and on every intermediate sum.
        size = 3 * queries.shape[1] * largest**2
        if reach <= 2.0**24 and size <= 2.0**53 and _whole(queries) and _whole(base):
            element = np.float32 if size <= 2.0**24 else np.float64
            return cls(np.full(queries.shape[1], middle), element, True)
        narrow = all(array.dtype in (np.float16, np.float32) for array in (queries, base))
        fits = _SMALLEST_FOR_FLOAT32 <= reach <= _LARGEST_FOR_FLOAT32
        element = np.float32 if narrow and fits else np.float64
        # Around the mean the squares are smaller, and so is the rounding: fewer rows are proposed.
        sums = sum((block.sum(axis=0, dtype=np.float64) for _, block in row_blocks(base)), np.zeros(base.shape[1]))
        return cls(np.asarray(sums / len(base)), element, False)

    def prepare(self, rows: NDArray[Any]) -> NDArray[Any]:
        if self.exact:
            shifted: NDArray[Any] = rows.astype(self.element) - self.centre.astype(self.element)
            return shifted
        return (rows.astype(np.float64) - self.centre).astype(self.element)

    def slack(self, query_squares: NDArray[np.float64], row_squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a bound on what rounding changes in the scores of each query with rows of these squared lengths."""
        if self.exact:
            return np.zeros(len(query_squares))
        # A sum of n products is off by at most n u times the sum of their sizes (u: half the spacing at 1), and each
        # coordinate by u of itself after centring. Twice that is safe. Each product may also vanish below `tiny`.
        limits = np.finfo(self.element)
        reach = np.sqrt(query_squares) + np.sqrt(row_squares.max())
        terms = len(self.centre) + 8
        return np.asarray(terms * float(limits.eps) * reach**2 + 8 * terms * float(limits.tiny))


def _nearest(queries: NDArray[Any], base: NDArray[Any], k: int, plan: _Plan) -> NDArray[np.int64]:
    """Return the k nearest of a few queries."""
    left = plan.prepare(queries)
    left_squares = np.einsum("ij,ij->i", left, left, dtype=np.float64)
    best = _Best.empty(len(queries), k)
    for start in range(0, len(base), _ROWS_AT_A_TIME):
        rows = base[start : start + _ROWS_AT_A_TIME]
        right = plan.prepare(rows)
        right_squares = np.einsum("ij,ij->i", right, right)
        # The score of a row is its squared distance minus the query's squared length.
        scores = left @ right.T
        scores *= -2
        scores += right_squares
        slack = plan.slack(left_squares, right_squares.astype(np.float64))
        limit = best.farthest - left_squares + slack
        if len(rows) >= k and np.isinf(limit).any():
            limit = np.minimum(limit, np.partition(scores, k - 1, axis=1)[:, k - 1].astype(np.float64) + 2 * slack)
        # The limit is rounded up to the scores' own type, never down.
        above = np.nextafter(limit.astype(plan.element), plan.element(np.inf), dtype=plan.element)
        query, row = np.nonzero(scores <= above[:, None])
        if plan.exact:
            distance = scores[query, row] + left_squares[query]
        else:
            distance = _squared_distances(queries, rows, query, row)
        best = best.joined(query, row + start, distance)
    return best.ids.reshape(len(queries), k)


@dataclass(frozen=True)
class _Best:
    """The nearest rows of each query so far, at most k of each, ordered by query, distance and id."""

    n_queries: int
    k: int
    query: NDArray[np.int64]
    ids: NDArray[np.int64]
    distance: NDArray[np.float64]

    @classmethod
    def empty(cls, n_queries: int, k: int) -> _Best:
        none = np.empty(0, dtype=np.int64)
        return cls(n_queries, k, none, none, np.empty(0))

    @property
    def farthest(self) -> NDArray[np.float64]:
        """Squared distance of the k-th, (queries,); infinite where there are fewer."""
        counts = np.bincount(self.query, minlength=self.n_queries)
        result = np.full(self.n_queries, np.inf)
        full = counts == self.k
        result[full] = self.distance[counts.cumsum()[full] - 1]
        return result

    def joined(self, query: NDArray[np.int64], ids: NDArray[np.int64], distance: NDArray[np.float64]) -> _Best:
        """Return the nearest of these rows and of the given ones."""
        if len(query) == 0:
            return self
        query = np.concatenate([self.query, query])
        ids = np.concatenate([self.ids, ids])
        distance = np.concatenate([self.distance, distance])
        order = np.lexsort((ids, distance, query))
        starts = np.searchsorted(query[order], np.arange(self.n_queries))
        kept = order[np.arange(len(order)) - starts[query[order]] < self.k]
        return _Best(self.n_queries, self.k, query[kept], ids[kept], distance[kept])


def _squared_distances(
    queries: NDArray[Any], rows: NDArray[Any], query: NDArray[np.int64], row: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Return squared distances of pairs, computed from differences in float64, (pairs,)."""
    result = np.empty(len(query))
    pairs = max(1, _ELEMENTS_AT_A_TIME // queries.shape[1])
    for start in range(0, len(query), pairs):
        some = slice(start, start + pairs)
        difference = queries[query[some]].astype(np.float64) - rows[row[some]]
        result[some] = np.einsum("ij,ij->i", difference, difference)
    return result


def _fold(array: NDArray[Any], extreme: Callable[[NDArray[Any]], Any]) -> float:
    return float(extreme(np.array([extreme(block) for _, block in row_blocks(array)])))


def _whole(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu" or all(bool((block == np.rint(block)).all()) for _, block in row_blocks(array))
