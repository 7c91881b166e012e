"""NeighborIndex: vectors in, their nearest neighbours out."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import check_ids, check_integer
from hamtarget.answer import Costs
from hamtarget.errors import CorruptFileError, DtypeError, InputError, NotFittedError, ShapeError
from hamtarget.query import Work, check_work
from hamtarget.search.neighbors import KeptRows, file
from hamtarget.search.neighbors.cells import Builder, RowsInCells
from hamtarget.search.neighbors.scan import FEWEST_ROWS_OF_CELLS, ScannedRows
from hamtarget.search.neighbors.space import VectorSpace, blocks_of, check_array, check_one, metric_of
from hamtarget.search.neighbors.tuning import Explanation, Setting

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]

# More rows than any index has, within the range of the core's numbers.
_HUGE = 2**62


class Found(NamedTuple):
    """Neighbours of a batch of queries; those of one query have a dimension less: `ids` is (k,), a cost a number.

    Attributes:
        ids: int64, (queries, k), nearest first.
        distances: float32, (queries, k).
        costs: the candidates and comparisons of each query where `Work(costs=True)` asked for them; an index of vectors
            has no buckets.
    """

    ids: Ids
    distances: Floats
    costs: Costs | None


class NeighborIndex:
    """Finds the nearest neighbours of vectors, as many of them as you ask for.

    `fit` chooses everything from your data: how rows are grouped into cells, sketched, and kept. Then it measures
    recall and time on rows that were held out, so that `nearest` reads just enough for the recall you want. Few rows
    are scanned, which is exact. `explain()` shows what was chosen.

    Any number of threads may search while one adds or deletes.

    Example:
        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).standard_normal((1000, 32), dtype=np.float32)
        >>> index = NeighborIndex("cosine", recall=0.95).fit(vectors)
        >>> index.nearest(vectors[7], k=3).ids[0]
        np.int64(7)
        >>> index.nearest_batch(vectors[:2], k=3).ids[:, 0]
        array([0, 1])
        >>> index
        NeighborIndex(metric='cosine', recall=0.95, k=10: 1,000 vectors of 32 numbers, scanned)
    """

    def __init__(self, metric: str = "cosine", recall: float = 0.95, *, k: int = 10, seed: int = 0) -> None:
        """Describe what is wanted. Nothing is computed before `fit`.

        Args:
            metric: "cosine" (1 - cosine), "l2" (Euclidean distance) or "dot" (negative inner product): smaller is
                nearer.
            recall: share of the true k neighbours that a search should find, above 0; 1 means an exact scan.
            k: neighbours that you will mostly ask for. Searches for other k are tuned as well.
            seed: of everything random.

        Raises:
            InputError: an argument is out of range.
            DtypeError: an argument has the wrong type.
        """
        self.metric = metric_of(metric).name
        self.recall = _check_recall(recall)
        self.k = check_integer(k, name="k")
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise DtypeError(f"seed is {seed!r}; expected an integer")
        if seed < 0:
            raise InputError(f"seed is {seed}; expected 0 or more")
        self.seed = int(seed)
        self._fitted: _Fitted | None = None
        # Held by a thread that changes the index; searches use what they find at their beginning.
        self._changing = threading.RLock()

    def fit(
        self,
        vectors: ArrayLike,
        ids: ArrayLike | None = None,
        *,
        queries: ArrayLike | None = None,
        work: Work | None = None,
    ) -> Self:
        """Learn from vectors, keep them, and tune searches. What the index held before is forgotten.

        A million vectors of 128 numbers take about half a minute on two cores. The array is read in blocks, several
        times; it may be a memory map.

        Args:
            vectors: (rows, dims) of float32, float16, float64, uint8 or int8; 1 to 4,096 dims.
            ids: of the rows, int64, all different; by default 0, 1, 2, ...
            queries: a sample of real queries, 1,000 or so, to tune on. By default some of the rows are held out for
                this; give queries if yours come from elsewhere, such as questions where rows are answers.
            work: threads, one for each core by default, and progress. Of the bounds, the seconds count: the clock is
                looked at a few times a second.

        Raises:
            ShapeError: an array has the wrong shape, or no rows.
            DtypeError: elements are not real numbers, or ids not integers.
            NotFiniteError: a number is NaN or infinite.
            InputError: a vector is zero where the metric is "cosine", or an id is there twice.
            LimitError: the time is over, or the work was cancelled; the index is as it was.
        """
        work = check_work(work).started()
        array = check_array(vectors, name="vectors")
        if not len(array):
            raise ShapeError("vectors have no rows; expected at least 1")
        numbers = np.arange(len(array), dtype=np.int64) if ids is None else _check_new_ids(ids, len(array))
        asked = None if queries is None else check_array(queries, name="queries", n_dims=array.shape[1])
        if asked is not None and not len(asked):
            raise ShapeError("queries have no rows; expected a sample of real queries, or None")
        space = VectorSpace.of(array, metric_of(self.metric), work)
        tuned_on = None if asked is None else space.queries(asked)[0]
        rows: KeptRows | None = None
        why = self._why_scan(len(array))
        if why is None:
            threads = work.n_threads(os.cpu_count() or 1)
            builder = Builder(array, space, recall=self.recall, k=self.k, seed=self.seed, threads=threads)
            built = builder.build(numbers, tuned_on, work)
            why = _why_slower(built, self.k, self.recall)
            rows = built if why is None else None
        if rows is None:
            rows = _scanned(array, numbers, space, why or "", work)
        with self._changing:
            self._fitted = _Fitted(space, rows)
        return self

    def nearest(
        self,
        query: ArrayLike,
        k: int = 10,
        *,
        recall: float | None = None,
        budget: int | None = None,
        comparisons: int | None = None,
        work: Work | None = None,
    ) -> Found:
        """Find the k nearest vectors of a query; arguments and errors are those of `nearest_batch`.

        Args:
            query: (dims,).
            k: neighbours, at most the number of vectors.
            recall: another share of true neighbours than the index was made for.
            budget: most candidates.
            comparisons: most rows whose vectors are compared.
            work: bounds on the work, and whether the costs are wanted.
        """
        fitted = self._now()
        one = check_one(query, name="query", n_dims=fitted.space.n_dims, instead="nearest_batch")
        ids, distances, costs = self._nearest(fitted, one, k, recall, budget, comparisons, work)
        if costs is not None:
            costs = Costs(costs.buckets[0], costs.candidates[0], costs.comparisons[0])
        return Found(ids[0], distances[0], costs)

    def nearest_batch(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        recall: float | None = None,
        budget: int | None = None,
        comparisons: int | None = None,
        work: Work | None = None,
    ) -> Found:
        """Find the k nearest vectors of each query.

        Distances are those of the vectors as the index keeps them: exact for uint8 and where rows are scanned, rounded
        by up to half a percent of the largest number of each vector where rows are kept as int8.

        Args:
            queries: (queries, dims).
            k: neighbours of each query, at most the number of vectors.
            recall: another share of true neighbours than the index was made for.
            budget: most candidates (rows whose sketches are read) for a query, instead of the tuned number.
            comparisons: most rows for a query whose vectors are compared, instead of the tuned number.
            work: bounds on the work of all queries together, a candidate being a row; threads, one by default; and
                whether the costs are wanted.

        Returns:
            Ids and distances, both (queries, k), nearest first, and the costs where they are wanted.

        Raises:
            ShapeError: queries are not (queries, dims).
            DtypeError: elements are not real numbers, or an argument has the wrong type.
            NotFiniteError: a number is NaN or infinite.
            InputError: k exceeds the number of vectors or what was tuned, or the recall exceeds what vectors that are
                kept in this type can give.
            LimitError: the search reached one of its bounds.
            NotFittedError: there is no `fit` yet.
        """
        fitted = self._now()
        array = check_array(
            queries, name="queries", n_dims=fitted.space.n_dims, instead="For a single vector, call nearest"
        )
        return self._nearest(fitted, array, k, recall, budget, comparisons, work)

    def _nearest(
        self,
        fitted: _Fitted,
        array: NDArray[np.generic],
        k: int,
        recall: float | None,
        budget: int | None,
        comparisons: int | None,
        work: Work | None,
    ) -> Found:
        """Return the neighbours of a batch that has been checked."""
        work = check_work(work).started()
        rows, space, n_queries = fitted.rows, fitted.space, len(array)
        k = check_integer(k, name="k")
        if k > len(rows):
            raise InputError(f"k is {k:,} and the index has {len(rows):,} vectors; expected k of at most {len(rows):,}")
        wanted = self.recall if recall is None else _check_recall(recall)
        budget = _check_most(budget, k, name="budget")
        setting = rows.plan(k, wanted, budget, _check_most(comparisons, k, name="comparisons"))
        if work.limits is not None:
            work.limits.take(hits=n_queries * k)
        ids = np.empty((n_queries, k), dtype=np.int64)
        distances = np.empty((n_queries, k), dtype=np.float32)
        counts = np.empty((n_queries, 2), dtype=np.int64)
        for here in blocks_of(n_queries, space.n_dims, work):
            asked, turn = space.queries(array[here])
            ids[here], found, counts[here] = rows.find(asked, k, setting, work)
            distances[here] = space.distances(found, turn)
        if n_queries and ids[:, -1].min() < 0:
            # Rows were deleted by another thread.
            distances[ids < 0] = np.inf
        costs = Costs(np.zeros(n_queries, dtype=np.int64), counts[:, 0], counts[:, 1]) if work.costs else None
        return Found(ids, distances, costs)

    def is_tuned_for(self, k: int) -> bool:
        """Return True if searches for this number of neighbours were tuned, or are scans."""
        curves = self._now().rows.tuned.curves
        return not curves or check_integer(k, name="k") <= max(curves)

    def setting(self, k: int = 10, recall: float | None = None) -> Setting | None:
        """Return how much a search reads; None if it scans, or if k or the recall is beyond what was tuned.

        Args:
            k: neighbours.
            recall: share of them to find; that of the index by default.

        Raises:
            NotFittedError: there is no `fit` yet.
        """
        tuned = self._now().rows.tuned
        if not tuned.curves or check_integer(k, name="k") > max(tuned.curves):
            return None
        curve = tuned.curve_for(k)
        setting = curve.setting(self.recall if recall is None else _check_recall(recall))
        return None if setting is None or setting.budget >= curve.whole else setting

    def add(self, ids: ArrayLike, vectors: ArrayLike) -> None:
        """Add vectors, all or none. Cells and tuned settings stay; budgets grow with the number of rows.

        Args:
            ids: int64, (rows,), none of them in the index.
            vectors: (rows, dims).

        Raises:
            InputError: an id is in the index already: `delete` it first; or vectors are not as `fit` found them.
            ShapeError: there is not one id for each vector, or vectors have other dims.
            DtypeError: elements are not real numbers, or ids not integers.
            NotFiniteError: a number is NaN or infinite.
            NotFittedError: there is no `fit` yet.
        """
        space = self._now().space
        array = check_array(vectors, name="vectors", n_dims=space.n_dims)
        numbers = _check_new_ids(ids, len(array))
        # Everything is checked before anything is added.
        for here in blocks_of(len(array), space.n_dims):
            space.rows(array[here], first=here.start)
        with self._changing:
            fitted = self._now()
            known = fitted.rows.has(numbers)
            if known.any():
                raise InputError(
                    f"{int(known.sum()):,} of {len(numbers):,} ids are in the index already, such as "
                    f"{numbers[known][0]}; delete them first to replace their vectors"
                )
            for here in blocks_of(len(array), space.n_dims):
                rows = space.rows(array[here], first=here.start)
                fitted = self._fitted = replace(fitted, rows=fitted.rows.with_rows(numbers[here], rows))

    def delete(self, ids: ArrayLike) -> None:
        """Delete the vectors of these ids: all of them or none.

        Raises:
            InputError: an id is not in the index, or is given twice.
            DtypeError: ids are not integers.
            ShapeError: ids are not (rows,).
            NotFittedError: there is no `fit` yet.
        """
        numbers = check_ids(ids)
        twice = _twice(numbers)
        if twice is not None:
            raise InputError(f"ids hold {twice} more than once; expected each id once")
        with self._changing:
            fitted = self._now()
            known = fitted.rows.has(numbers)
            if not known.all():
                raise InputError(f"id {numbers[~known][0]} is not in this index; expected ids that were added")
            self._fitted = replace(fitted, rows=fitted.rows.without(numbers))

    def get(self, ids: ArrayLike) -> Floats:
        """Return the vectors of ids as the index keeps them, (ids, dims) of float32.

        They are rounded where they are kept as int8 or float16, and have unit length where the metric is "cosine".

        Raises:
            InputError: an id is not in the index.
            DtypeError: ids are not integers.
            ShapeError: ids are not (rows,).
            NotFittedError: there is no `fit` yet.
        """
        fitted = self._now()
        return fitted.space.vectors(fitted.rows.get(check_ids(ids)))

    def ids(self) -> Ids:
        """Return all ids, ascending, as they are now."""
        return np.empty(0, dtype=np.int64) if self._fitted is None else self._fitted.rows.ids()

    def has(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Return for each id whether there is a vector with it.

        Raises:
            DtypeError: ids are not integers.
            ShapeError: ids are not (rows,).
        """
        numbers = check_ids(ids)
        return np.zeros(len(numbers), dtype=bool) if self._fitted is None else self._fitted.rows.has(numbers)

    def __contains__(self, id: object) -> bool:
        """Return True if there is a vector with this id."""
        if not isinstance(id, int | np.integer) or isinstance(id, bool):
            return False
        number = int(id)
        return 0 <= number < 2**63 and bool(self.has([number])[0])

    def __iter__(self) -> Iterator[int]:
        """Yield all ids, ascending, as they are now."""
        return iter(self.ids().tolist())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Put the index, as it is now, at `path`: a reader finds the old file or the new one, even after a crash.

        Raises:
            OSError: the file cannot be written; what was at `path` is as it was.
            NotFittedError: there is no `fit` yet.
        """
        with self._changing:
            fitted = self._now()
            asked = {"metric": self.metric, "recall": self.recall, "k": self.k, "seed": self.seed}
            file.save(path, asked, fitted.space, fitted.rows)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open an index that `save` has written. It is read into memory; the file stays as it is.

        Raises:
            FileNotFoundError: there is no such file.
            CorruptFileError: the file is truncated, altered, or not of this kind.
            UnsupportedFileError: a later version has written it.
        """
        asked, space, rows = file.load(path)
        try:
            index = cls(asked["metric"], asked["recall"], k=asked["k"], seed=asked["seed"])
        except (DtypeError, InputError) as error:
            raise CorruptFileError(f"{os.fspath(path)}: {error}; restore it from a copy, or fit again") from error
        index._fitted = _Fitted(space, rows)
        return index

    def explain(self) -> Explanation:
        """Return what was chosen and why, the measured curves, bytes a row and when to fit again; print it to read it.

        Raises:
            NotFittedError: there is no `fit` yet.
        """
        fitted = self._now()
        rows, tuned = fitted.rows, fitted.rows.tuned
        return Explanation(
            **vars(tuned),
            way=rows.way,
            why=rows.why(self.k, self.recall),
            n_rows=len(rows),
            n_rows_at_fit=rows.n_rows_at_fit,
            metric=self.metric,
            n_dims=fitted.space.n_dims,
            recall=self.recall,
            settings=tuned.settings_for(self.recall),
            bytes_per_row={name: size / max(1, len(rows)) for name, size in rows.bytes().items()},
            advice=rows.advice(),
        )

    @property
    def memory(self) -> int:
        """Bytes that the index takes."""
        return 0 if self._fitted is None else sum(self._fitted.rows.bytes().values())

    @property
    def n_rows_at_fit(self) -> int:
        """Number of vectors from which everything was chosen; 0 before `fit`."""
        return 0 if self._fitted is None else self._fitted.rows.n_rows_at_fit

    def __len__(self) -> int:
        """Return the number of vectors."""
        return 0 if self._fitted is None else len(self._fitted.rows)

    def __repr__(self) -> str:
        """Return what is wanted, and what there is, in a line."""
        wanted = f"metric={self.metric!r}, recall={self.recall:g}, k={self.k}"
        fitted = self._fitted
        if fitted is None:
            return f"NeighborIndex({wanted}: not fitted)"
        n_cells = fitted.rows.tuned.n_cells
        way = f"in {n_cells:,} cells" if n_cells else "scanned"
        return f"NeighborIndex({wanted}: {len(fitted.rows):,} vectors of {fitted.space.n_dims:,} numbers, {way})"

    def _now(self) -> _Fitted:
        if self._fitted is None:
            raise NotFittedError("the index has no vectors yet; call fit(vectors) first, or NeighborIndex.open(path)")
        return self._fitted

    def _why_scan(self, n_rows: int) -> str | None:
        """Return why rows are to be scanned without trying anything else, or None."""
        if self.recall == 1:
            return "an exact scan, because recall 1 is wanted"
        if n_rows < FEWEST_ROWS_OF_CELLS:
            return f"an exact scan, because there are fewer than {FEWEST_ROWS_OF_CELLS:,} vectors"
        if n_rows < 4 * self.k:
            return f"an exact scan, because a quarter of the vectors or more are wanted: k is {self.k:,}"
        return None


@dataclass(frozen=True)
class _Fitted:
    """The state of an index that was fitted; changes make another one.

    Attributes:
        space: of the vectors.
        rows: of that space.
    """

    space: VectorSpace
    rows: KeptRows


def _scanned(array: NDArray[np.generic], ids: Ids, space: VectorSpace, why: str, work: Work) -> ScannedRows:
    rows = np.empty((len(array), space.n_dims), dtype=np.float32)
    for here in blocks_of(len(array), space.n_dims, work):
        rows[here] = space.rows(array[here], first=here.start)
    if work.progress is not None:
        work.progress(1000, 1000)
    return ScannedRows.of(ids, rows, space.comparison, why)


def _why_slower(built: RowsInCells, k: int, recall: float) -> str | None:
    """Return why a scan is better than these cells, or None."""
    curve = built.tuned.curve_for(k)
    setting = curve.setting(recall)
    if setting is None or setting.budget >= curve.whole:
        return f"an exact scan, because cells reach recall {recall:g} only if everything is read"
    seconds, scan_seconds = curve.seconds_at(setting), built.tuned.scan_seconds
    if seconds >= scan_seconds:
        return (
            f"an exact scan, because it is as fast: {1e6 * scan_seconds:,.0f} us of one core a query, "
            f"{1e6 * seconds:,.0f} by cells at recall {recall:g}"
        )
    return None


def _check_recall(recall: float) -> float:
    if isinstance(recall, bool) or not isinstance(recall, int | float | np.integer | np.floating):
        raise DtypeError(f"recall is {recall!r}; expected a number")
    if not 0 < recall <= 1:
        raise InputError(f"recall is {recall}; expected above 0, up to 1")
    return float(recall)


def _check_most(most: int | None, k: int, *, name: str) -> int | None:
    """Return a bound on what a query reads, if it suffices for k neighbours."""
    if most is None:
        return None
    count = check_integer(most, name=name)
    if count < k:
        raise InputError(f"{name} is {count:,} and k is {k:,}; expected at least k")
    return min(count, _HUGE)


def _check_new_ids(ids: ArrayLike, n_rows: int) -> Ids:
    """Return the ids of `n_rows` rows, all different."""
    numbers = check_ids(ids)
    if len(numbers) != n_rows:
        raise ShapeError(f"there are {len(numbers):,} ids and {n_rows:,} vectors; expected an id for each vector")
    if n_rows and numbers.min() < 0:
        raise InputError(f"id {numbers.min()} is negative; expected ids from 0 on")
    twice = _twice(numbers)
    if twice is not None:
        raise InputError(f"id {twice} is there twice; expected all ids to be different")
    return numbers


def _twice(ids: Ids) -> int | None:
    """Return the smallest id that is there twice, or None."""
    if bool((ids[1:] > ids[:-1]).all()):
        return None
    ordered = np.sort(ids)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    return int(twice[0]) if len(twice) else None
