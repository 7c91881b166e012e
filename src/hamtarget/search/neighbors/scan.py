"""Exact neighbours by scanning all rows, block by block.

Scores come from matrix products of float32, but their rounding never decides: a row is proposed unless its score
exceeds the k-th best by more than a bound on the rounding, and proposed rows are compared again in float64.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import InputError
from hamtarget.query import Work
from hamtarget.search.neighbors.space import LARGEST, Comparison, Floats, VectorSpace, Wide
from hamtarget.search.neighbors.tuning import Setting, Tuned

if TYPE_CHECKING:
    from hamtarget.search.neighbors.file import Content

Rows = NDArray[np.int64]

FEWEST_ROWS_OF_CELLS = 10_000
"""With fewer rows, an exact scan takes about as long as anything else."""
# Queries and rows of a block of scores: 16 MB of float32.
_QUERIES_AT_A_TIME = 512
_ROWS_AT_A_TIME = 1 << 13
# Elements of proposed rows that are compared again at a time: 32 MB.
_ELEMENTS_AT_A_TIME = 1 << 22


def approximate_nearest(
    queries: Floats, blocks: Iterable[Floats], k: int, comparison: Comparison, *, skip: Rows | None = None
) -> tuple[Rows, Floats]:
    """Return the k nearest rows of each query by float32 products, and their scores: tuning needs no more.

    Where there are fewer than k rows, the rest is -1 and infinity.

    Args:
        queries: (queries, dims).
        blocks: of the rows, in their order.
        k: neighbours for each query.
        comparison: gives the scores.
        skip: a row for each query that is not to be found, such as itself.
    """
    best = np.full((len(queries), k), np.inf, dtype=np.float32)
    numbers = np.full((len(queries), k), -1, dtype=np.int64)
    start = 0
    for large in blocks:
        for block in np.split(large, range(_ROWS_AT_A_TIME, len(large), _ROWS_AT_A_TIME)):
            biases = comparison.biases(block)
            for first in range(0, len(queries), _QUERIES_AT_A_TIME):
                some = slice(first, first + _QUERIES_AT_A_TIME)
                scores = queries[some] @ block.T
                np.subtract(biases, scores, out=scores)
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
    # Scores that are better than the k-th so far: few, once a few blocks are done.
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


def exact_distances(queries: Floats, rows: Floats, query: Rows, row: Rows, comparison: Comparison) -> Wide:
    """Return the distance of pairs of numbers of queries and rows, in float64."""
    result = np.empty(len(query))
    pairs = max(1, _ELEMENTS_AT_A_TIME // max(1, queries.shape[1]))
    for start in range(0, len(query), pairs):
        some = slice(start, start + pairs)
        left, right = queries[query[some]].astype(np.float64), rows[row[some]].astype(np.float64)
        result[some] = comparison.apart(left, right)
    return result


# No `==`: comparing arrays gives arrays.
@dataclass(frozen=True, eq=False)
class ScannedRows:
    """Rows that are scanned; never changed, so that searches go on while another version is made.

    Attributes:
        comparison: of queries and rows.
        numbers: (rows,) int64, the ids.
        rows: (rows, dims) float32.
        biases: of their scores.
        is_alive: False where a row was deleted.
        reason: why they are scanned.
        n_rows_at_fit: rows when that was chosen.
    """

    comparison: Comparison
    numbers: Rows
    rows: Floats
    biases: Floats
    is_alive: NDArray[np.bool_]
    reason: str = ""
    n_rows_at_fit: int = 0

    way: ClassVar[str] = "scan"
    tuned: ClassVar[Tuned] = Tuned()

    @classmethod
    def of(cls, ids: Rows, rows: Floats, comparison: Comparison, reason: str = "") -> Self:
        """Make them of rows as the space gives them."""
        return cls(comparison, ids, rows, comparison.biases(rows), np.ones(len(ids), dtype=bool), reason, len(ids))

    @classmethod
    def from_file(cls, content: Content, space: VectorSpace) -> Self:
        """Return the rows in a file.

        Raises:
            KeyError, TypeError, ValueError: something is missing, or out of range.
        """
        ids = content.array("ids", np.int64, (-1,))
        rows = content.array("rows", np.float32, (len(ids), space.n_dims))
        if len(np.unique(ids)) != len(ids) or ids.min(initial=0) < 0 or not (np.abs(rows) <= LARGEST).all():
            raise ValueError("ids or rows are out of range")
        made = cls.of(ids, rows, space.comparison, str(content.about["why"]))
        return replace(made, n_rows_at_fit=int(content.about["n_rows_at_fit"]))

    def to_file(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a file says of them, and its arrays."""
        about = {"why": self.reason, "n_rows_at_fit": self.n_rows_at_fit}
        return about, {"ids": self.numbers[self.is_alive], "rows": self.rows[self.is_alive]}

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self.is_alive.sum())

    def ids(self) -> Rows:
        """Return all ids, ascending."""
        return np.sort(self.numbers[self.is_alive])

    def has(self, ids: Rows) -> NDArray[np.bool_]:
        """Return True for each of some ids that is there."""
        return np.isin(ids, self.numbers[self.is_alive])

    def get(self, ids: Rows) -> Floats:
        """Return the rows of ids.

        Raises:
            InputError: an id is not there.
        """
        alive = np.flatnonzero(self.is_alive)
        order = alive[np.argsort(self.numbers[alive], kind="stable")]
        place = np.searchsorted(self.numbers[order], ids)
        found = order[np.minimum(place, len(order) - 1)] if len(order) else np.zeros(len(ids), dtype=np.int64)
        unknown = np.flatnonzero(self.numbers[found] != ids) if len(order) else np.arange(len(ids))
        if len(unknown):
            raise InputError(f"id {ids[unknown[0]]} is not in this index; expected ids that were added")
        return self.rows[found]

    def with_rows(self, ids: Rows, rows: Floats) -> Self:
        """Return these rows and others, without those that were deleted."""
        other, kept = self.of(ids, rows, self.comparison), self.is_alive
        return replace(
            self,
            numbers=np.concatenate([self.numbers[kept], other.numbers]),
            rows=np.concatenate([self.rows[kept], other.rows]),
            biases=np.concatenate([self.biases[kept], other.biases]),
            is_alive=np.concatenate([self.is_alive[kept], other.is_alive]),
        )

    def without(self, ids: Rows) -> Self:
        """Return these rows with some marked as deleted."""
        return replace(self, is_alive=self.is_alive & ~np.isin(self.numbers, ids))

    def plan(self, k: int, recall: float, budget: int | None, comparisons: int | None) -> Setting:
        """Return how much a search reads: everything."""
        return Setting(len(self), len(self), 1.0)

    def find(self, queries: Floats, k: int, setting: Setting, work: Work) -> tuple[Rows, Wide, Rows]:
        """Return ids, distances, and numbers of candidates and comparisons; ties are in the order of ids."""
        ids = np.empty((len(queries), k), dtype=np.int64)
        distances = np.empty((len(queries), k))
        for first in range(0, len(queries), _QUERIES_AT_A_TIME):
            here = slice(first, first + _QUERIES_AT_A_TIME)
            ids[here], distances[here] = self._search_some(queries[here], k, work)
        return ids, distances, np.full((len(queries), 2), len(self), dtype=np.int64)

    def _search_some(self, queries: Floats, k: int, work: Work) -> tuple[Rows, Wide]:
        n, dims, limits = len(queries), queries.shape[1], work.limits
        lengths = np.sqrt(np.einsum("ij,ij->i", queries, queries, dtype=np.float64))
        best = _Best(n, k)
        for start in range(0, len(self.rows), _ROWS_AT_A_TIME):
            here = slice(start, start + _ROWS_AT_A_TIME)
            block, biases = self.rows[here], self.biases[here]
            if limits is not None:
                limits.take(rows=n * len(block))
                limits.check()
            scores = queries @ block.T
            np.subtract(biases, scores, out=scores)
            scores[:, ~self.is_alive[here]] = np.inf
            sizes = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))
            bound = best.limit(lengths, self.comparison)
            if np.isinf(bound).any() and scores.shape[1] > k:
                upper = scores + _rounding(lengths[:, None], sizes, dims)
                bound = np.minimum(bound, np.partition(upper, k - 1, axis=1)[:, k - 1])
            # First by the rounding of the longest row, which a few long ones make wide; then each row by its own.
            above = np.nextafter((bound + _rounding(lengths, sizes.max(), dims)).astype(np.float32), np.float32(np.inf))
            query, row = np.nonzero((scores <= above[:, None]) & np.isfinite(scores))
            near = scores[query, row] <= bound[query] + _rounding(lengths[query], sizes[row], dims)
            query, row = query[near], row[near]
            best.take(query, self.numbers[here][row], exact_distances(queries, block, query, row, self.comparison))
        return best.result()

    def why(self, k: int, recall: float) -> str:
        """Return the reason for a scan."""
        return self.reason

    def advice(self) -> str:
        """Return when to fit again."""
        if self.n_rows_at_fit < FEWEST_ROWS_OF_CELLS <= len(self):
            return f"fit again: there are {len(self):,} vectors now, and cells may be faster than a scan"
        return f"fit again when there are many more than {max(FEWEST_ROWS_OF_CELLS, self.n_rows_at_fit):,} vectors"

    def bytes(self) -> dict[str, int]:
        """Return the bytes of each part."""
        return {"vectors": self.rows.nbytes + self.biases.nbytes, "ids": self.numbers.nbytes}


def _rounding(queries: Wide, rows: Wide, dims: int) -> Wide:
    """Return how far float32 scores of queries and rows of these lengths can be off.

    A sum of n products is off by at most n u times the sum of their sizes (u: half the spacing at 1). What scores are
    compared with is rounded, too, as float64.
    """
    narrow, wide = (float(np.finfo(kind).eps) for kind in (np.float32, np.float64))
    off: Wide = (dims + 8) * narrow * (queries + rows) * rows + 8 * wide * (queries + rows) ** 2 + 1e-37
    return off


class _Best:
    """The nearest rows of each query so far, ordered by query, distance and id."""

    def __init__(self, n_queries: int, k: int) -> None:
        self._n_queries, self._k = n_queries, k
        self._query = np.empty(0, dtype=np.int64)
        self._ids = np.empty(0, dtype=np.int64)
        self._distances = np.empty(0)

    def limit(self, lengths: Wide, comparison: Comparison) -> Wide:
        """Return the score of each query's k-th row; infinite where there are fewer."""
        counts = np.bincount(self._query, minlength=self._n_queries)
        result = np.full(self._n_queries, np.inf)
        full = counts == self._k
        result[full] = comparison.scores(self._distances[counts.cumsum()[full] - 1], lengths[full])
        return result

    def take(self, query: Rows, ids: Rows, distances: Wide) -> None:
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

    def result(self) -> tuple[Rows, Wide]:
        """Return ids and distances, (queries, k)."""
        shape = (self._n_queries, self._k)
        return self._ids.reshape(shape), self._distances.reshape(shape)
