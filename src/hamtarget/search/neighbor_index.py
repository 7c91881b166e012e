"""NeighborIndex: vectors in, their nearest neighbours out."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import check_ids
from hamtarget._checks import check_integer as check_count
from hamtarget.errors import DtypeError, InputError, NotFittedError, ShapeError
from hamtarget.progress import Progress
from hamtarget.search.distinct import distinct
from hamtarget.search.neighbors.building import Builder, Built
from hamtarget.search.neighbors.curve import Curve, Setting
from hamtarget.search.neighbors.exact import ScannedRows
from hamtarget.search.neighbors.explanation import Explanation
from hamtarget.search.neighbors.file import read_arrays, write_arrays
from hamtarget.search.neighbors.saving import Saved, saved_from, saved_to
from hamtarget.search.neighbors.space import VectorSpace, blocks_of, check_array, check_metric

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]

# With fewer rows, an exact scan takes about as long as anything else.
_LEAST_ROWS_OF_CELLS = 10_000


class Found(NamedTuple):
    """Neighbours of a batch of queries, and the work that finding them took.

    Attributes:
        ids: int64, (queries, k), nearest first.
        distances: float32, (queries, k).
        counts: int64, (queries, 2): candidates and comparisons of each query.
    """

    ids: Ids
    distances: Floats
    counts: NDArray[np.int64]


class NeighborIndex:
    """Finds the nearest neighbours of vectors, as many of them as you ask for.

    `fit` chooses everything from your data: how rows are grouped into cells, sketched, and kept; then it measures
    recall and time on rows that were held out, so that `search` reads just enough for the recall you want. Few rows
    are scanned, which is exact. `explain()` tells what was chosen.

    Any number of threads may search while one adds or deletes.

    Example:
        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).standard_normal((1000, 32), dtype=np.float32)
        >>> index = NeighborIndex("cosine", recall=0.95).fit(vectors)
        >>> ids, distances = index.search(vectors[:2], k=3)
        >>> ids[:, 0]
        array([0, 1])
        >>> index
        NeighborIndex(metric='cosine', recall=0.95, k=10: 1,000 vectors of 32 numbers, scanned)
    """

    def __init__(
        self,
        metric: str = "cosine",
        recall: float = 0.95,
        *,
        k: int = 10,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        """Describe what is wanted. Nothing is computed before `fit`.

        Args:
            metric: "cosine" (1 - cosine), "l2" (Euclidean distance) or "dot" (negative inner product): smaller is
                nearer.
            recall: share of the true k neighbours that a search should find, above 0; 1 means an exact scan.
            k: neighbours that you will mostly ask for. Searches for other k are tuned as well.
            seed: of everything random.
            threads: of `fit`, `add` and `search`; by default one for each core.

        Raises:
            InputError: an argument is out of range.
            DtypeError: an argument has the wrong type.
        """
        self.metric = check_metric(metric)
        self.recall = _check_recall(recall)
        self.k = check_count(k, name="k")
        if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
            raise DtypeError(f"seed is {seed!r}; expected an integer")
        if seed < 0:
            raise InputError(f"seed is {seed}; expected 0 or more")
        self.seed = int(seed)
        self.threads = None if threads is None else check_count(threads, name="threads")
        self._fitted: _Fitted | None = None
        # Held by whoever changes the index; searches use what they find at their beginning.
        self._changing = threading.RLock()

    def fit(
        self,
        vectors: ArrayLike,
        ids: ArrayLike | None = None,
        *,
        queries: ArrayLike | None = None,
        progress: Progress | None = None,
    ) -> Self:
        """Learn from vectors, keep them, and tune searches. What the index held before is forgotten.

        A million vectors of 128 numbers take about half a minute on two cores. The array is read in blocks, several
        times; it may be a memory map.

        Args:
            vectors: (rows, dims) of float32, float16, float64, uint8 or int8; 1 to 4,096 dims.
            ids: of the rows, int64, all different; by default 0, 1, 2, ...
            queries: a sample of real queries, 1,000 or so, to tune on. By default some of the rows are held out for
                this; give queries if yours come from elsewhere, such as questions where rows are answers.
            progress: called with (done, total) now and then.

        Raises:
            ShapeError: an array has the wrong shape, or no rows.
            DtypeError: elements are not real numbers, or ids not integers.
            NotFiniteError: a number is NaN or infinite.
            InputError: a vector is zero where the metric is "cosine", or an id is there twice.
        """
        array = check_array(vectors, name="vectors")
        if not len(array):
            raise ShapeError("vectors have no rows; expected at least 1")
        numbers = np.arange(len(array), dtype=np.int64) if ids is None else _check_new_ids(ids, len(array))
        asked = None if queries is None else check_array(queries, name="queries", n_dims=array.shape[1])
        if asked is not None and not len(asked):
            raise ShapeError("queries have no rows; expected a sample of real queries, or None")
        space = VectorSpace.of(array, self.metric)
        tuned_on = None if asked is None else space.queries(asked)[0]
        built, why = None, self._why_scan(len(array))
        if why is None:
            builder = Builder(
                array, space, recall=self.recall, k=self.k, seed=self.seed, threads=self._threads_of(None)
            )
            built = builder.build(numbers, tuned_on, progress)
            why = _why_slower(built, self.k, self.recall)
        if built is not None and why is None:
            fitted = _Fitted(space, built, "", len(array))
        else:
            rows = np.empty((len(array), space.n_dims), dtype=np.float32)
            for here in blocks_of(len(array), space.n_dims):
                rows[here] = space.rows(array[here], first=here.start)
            scanned = ScannedRows.of(numbers, rows, space.core_metric)
            fitted = _Fitted(space, scanned, why or "", len(array))
            if progress is not None:
                progress(1000, 1000)
        with self._changing:
            self._fitted = fitted
        return self

    def search(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        recall: float | None = None,
        budget: int | None = None,
        comparisons: int | None = None,
        threads: int | None = None,
        limits: Any = None,
    ) -> tuple[Ids, Floats]:
        """Find the k nearest vectors of each query.

        Distances are those of the vectors as the index keeps them: exact for uint8 and where rows are scanned, rounded
        by up to half a percent of the largest number of each vector where rows are kept as int8.

        Args:
            queries: (queries, dims). A single vector is a batch of one: `queries[None]`.
            k: neighbours of each query, at most the number of vectors.
            recall: another share of true neighbours than the index was made for.
            budget: most candidates (rows whose sketches are read) for a query, instead of the tuned number.
            comparisons: most rows for a query whose vectors are compared, instead of the tuned number.
            threads: for this search, instead of the index's.
            limits: bounds on the work of all queries together; a candidate is a row.

        Returns:
            ids, int64, and distances, float32, both (queries, k), nearest first.

        Raises:
            ShapeError: queries are not (queries, dims).
            NotFiniteError: a number is NaN or infinite.
            InputError: k exceeds the number of vectors or what was tuned, or the recall exceeds what vectors that are
                kept in this type can give.
            LimitError: the search reached one of its limits.
            NotFittedError: there is no `fit` yet.
        """
        ids, distances, _ = self.find(
            queries, k, recall=recall, budget=budget, comparisons=comparisons, threads=threads, limits=limits
        )
        return ids, distances

    def find(
        self,
        queries: ArrayLike,
        k: int = 10,
        *,
        recall: float | None = None,
        budget: int | None = None,
        comparisons: int | None = None,
        threads: int | None = None,
        limits: Any = None,
    ) -> Found:
        """Find the k nearest vectors of each query, and tell how many candidates were read; see `search`."""
        fitted = self._now()
        array = check_array(queries, name="queries", n_dims=fitted.space.n_dims)
        k = check_count(k, name="k")
        if k > fitted.n_rows:
            raise InputError(
                f"k is {k:,} and the index has {fitted.n_rows:,} vectors; expected k of at most {fitted.n_rows:,}"
            )
        setting = self._setting(fitted, k, recall, budget, comparisons)
        n_threads = self._threads_of(threads)
        ids = np.empty((len(array), k), dtype=np.int64)
        distances = np.empty((len(array), k), dtype=np.float32)
        counts = np.empty((len(array), 2), dtype=np.int64)
        for here in blocks_of(len(array), fitted.space.n_dims):
            asked, turn = fitted.space.queries(array[here])
            ids[here], scores, counts[here] = fitted.nearest(asked, k, setting, n_threads, limits)
            distances[here] = fitted.space.distances(scores, turn)
        return Found(ids, distances, counts)

    def is_tuned_for(self, k: int) -> bool:
        """Return True if searches for so many neighbours were tuned, or are scans."""
        fitted = self._now()
        return isinstance(fitted.rows, ScannedRows) or k <= max(fitted.rows.curves)

    def setting(self, k: int = 10, recall: float | None = None) -> Setting | None:
        """Return how much a search reads; None if it scans, or if k or the recall is beyond what was tuned.

        Args:
            k: neighbours.
            recall: share of them to find; that of the index by default.

        Raises:
            NotFittedError: there is no `fit` yet.
        """
        fitted = self._now()
        if isinstance(fitted.rows, ScannedRows) or check_count(k, name="k") > max(fitted.rows.curves):
            return None
        curve = _curve_for(fitted.rows.curves, k)
        setting = curve.setting(self.recall if recall is None else _check_recall(recall))
        return None if setting is None or setting.budget >= curve.whole else setting

    def add(self, ids: ArrayLike, vectors: ArrayLike) -> None:
        """Add vectors. Cells and tuned settings stay; budgets grow with the number of rows.

        Args:
            ids: int64, (rows,), none of them in the index.
            vectors: (rows, dims).

        Raises:
            InputError: an id is in the index already: `delete` it first; or vectors are not as `fit` found them.
            ShapeError: there is not one id for each vector, or vectors have other dims.
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
            known = fitted.has(numbers)
            if known.any():
                raise InputError(
                    f"{int(known.sum()):,} of {len(numbers):,} ids are in the index already, such as "
                    f"{numbers[known][0]}; delete them first to replace their vectors"
                )
            for here in blocks_of(len(array), space.n_dims):
                rows = space.rows(array[here], first=here.start)
                fitted = fitted.with_rows(numbers[here], rows, self._threads_of(None))
                self._fitted = fitted

    def delete(self, ids: ArrayLike) -> int:
        """Delete vectors by their ids, and return how many there were; unknown ids are left out of account.

        Raises:
            DtypeError: ids are not integers.
            NotFittedError: there is no `fit` yet.
        """
        numbers = distinct(check_ids(ids))
        with self._changing:
            before = self._now().n_rows
            self._fitted = self._now().without(numbers)
            return before - self._fitted.n_rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Put the index, as it is now, at `path`: a reader finds the old file or the new one, even after a crash.

        Raises:
            OSError: the file cannot be written; what was at `path` is as it was.
            NotFittedError: there is no `fit` yet.
        """
        with self._changing:
            fitted = self._now()
            about = {"metric": self.metric, "recall": self.recall, "k": self.k, "seed": self.seed}
            saved = Saved(about, fitted.space, fitted.rows, fitted.why, fitted.n_rows_at_fit)
            write_arrays(path, *saved_to(saved))

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, threads: int | None = None) -> Self:
        """Open an index that `save` has written. It is read into memory; the file stays as it is.

        Args:
            path: of the file.
            threads: as for a new index.

        Raises:
            FileNotFoundError: there is no such file.
            CorruptFileError: the file is truncated, altered, or not of this kind.
            UnsupportedFileError: a later version has written it.
        """
        saved = saved_from(*read_arrays(path), where=os.fspath(path))
        about = saved.about
        index = cls(about["metric"], about["recall"], k=about["k"], seed=about["seed"], threads=threads)
        index._fitted = _Fitted(saved.space, saved.rows, saved.why, saved.n_rows_at_fit)
        return index

    def explain(self) -> Explanation:
        """Return what was chosen and why, the measured curves, bytes a row and when to fit again; print it to read it.

        Raises:
            NotFittedError: there is no `fit` yet.
        """
        fitted = self._now()
        built = fitted.rows if isinstance(fitted.rows, Built) else None
        settings = {}
        if built is not None:
            for k, curve in built.curves.items():
                setting = curve.setting(self.recall)
                if setting is not None:
                    settings[k] = setting
        return Explanation(
            way="scan" if built is None else "cells",
            why=fitted.why if built is None else _why_cells(built, settings, self.k),
            n_rows=fitted.n_rows,
            n_rows_at_fit=fitted.n_rows_at_fit,
            metric=self.metric,
            n_dims=fitted.space.n_dims,
            row_type="float32" if built is None else built.row_type,
            n_cells=0 if built is None else built.n_cells,
            dims_per_part=0 if built is None else built.dims_per_part,
            recall=self.recall,
            settings=settings,
            curves={} if built is None else built.curves,
            ceilings={} if built is None else built.ceilings,
            bytes_per_row={name: size / max(1, fitted.n_rows) for name, size in fitted.bytes().items()},
            seconds={} if built is None else built.seconds,
            scan_seconds=0.0 if built is None else built.scan_seconds,
            advice=fitted.advice(),
        )

    @property
    def memory(self) -> int:
        """Bytes that the index takes."""
        return 0 if self._fitted is None else sum(self._fitted.bytes().values())

    @property
    def n_rows_at_fit(self) -> int:
        """Number of vectors from which everything was chosen; 0 before `fit`."""
        return 0 if self._fitted is None else self._fitted.n_rows_at_fit

    def __len__(self) -> int:
        return 0 if self._fitted is None else self._fitted.n_rows

    def __repr__(self) -> str:
        wanted = f"metric={self.metric!r}, recall={self.recall:g}, k={self.k}"
        fitted = self._fitted
        if fitted is None:
            return f"NeighborIndex({wanted}: not fitted)"
        way = f"in {fitted.rows.n_cells:,} cells" if isinstance(fitted.rows, Built) else "scanned"
        return f"NeighborIndex({wanted}: {fitted.n_rows:,} vectors of {fitted.space.n_dims:,} numbers, {way})"

    def _now(self) -> _Fitted:
        if self._fitted is None:
            raise NotFittedError("the index has no vectors yet; call fit(vectors) first, or NeighborIndex.open(path)")
        return self._fitted

    def _threads_of(self, threads: int | None) -> int:
        if threads is not None:
            return check_count(threads, name="threads")
        return self.threads or (os.cpu_count() or 1)

    def _why_scan(self, n_rows: int) -> str | None:
        """Return why rows are to be scanned without trying anything else, or None."""
        if self.recall == 1:
            return "an exact scan, because recall 1 is wanted"
        if n_rows < _LEAST_ROWS_OF_CELLS:
            return f"an exact scan, because there are fewer than {_LEAST_ROWS_OF_CELLS:,} vectors"
        if self.k > n_rows // 20:
            return f"an exact scan, because k = {self.k:,} is a large share of {n_rows:,} vectors"
        return None

    def _setting(
        self, fitted: _Fitted, k: int, recall: float | None, budget: int | None, comparisons: int | None
    ) -> Setting:
        """Return how much a search reads."""
        wanted = self.recall if recall is None else _check_recall(recall)
        for name, given in (("budget", budget), ("comparisons", comparisons)):
            if given is not None and check_count(given, name=name) < k:
                raise InputError(f"{name} is {given:,} and k is {k:,}; expected at least k")
        if isinstance(fitted.rows, ScannedRows):
            return Setting(fitted.n_rows, fitted.n_rows, 1.0)
        if budget is not None and comparisons is not None:
            return Setting(budget, comparisons, 0.0)
        curve = _curve_for(fitted.rows.curves, k)
        setting = curve.setting(wanted)
        if setting is None:
            raise InputError(
                f"recall is {wanted:g}; vectors kept as {fitted.rows.row_type} give at most {curve.ceiling:.3f} at "
                f"k = {curve.k}: fit an index with recall={wanted:g}, which keeps them more exactly"
            )
        # Cells have grown with the rows, and so has what must be read to visit as many.
        grown = int(np.ceil(setting.budget * max(1.0, fitted.n_rows / curve.whole)))
        if budget is not None and comparisons is None:
            comparisons = min(setting.comparisons, budget)
        if setting.comparisons >= curve.whole:
            setting = setting._replace(comparisons=max(setting.comparisons, fitted.n_rows))
        return setting._replace(
            budget=grown if budget is None else budget,
            comparisons=max(k, setting.comparisons) if comparisons is None else comparisons,
        )


@dataclass(frozen=True)
class _Fitted:
    """The state of an index that was fitted; changes make another one.

    Attributes:
        space: of the vectors.
        rows: scanned, or in cells. Those in cells change in place; their core lets searches go on meanwhile.
        why: the reason for a scan.
        n_rows_at_fit: rows when everything was chosen.
    """

    space: VectorSpace
    rows: ScannedRows | Built
    why: str
    n_rows_at_fit: int

    @property
    def n_rows(self) -> int:
        """Number of vectors."""
        return int(self.rows.is_alive.sum()) if isinstance(self.rows, ScannedRows) else len(self.rows.core)

    def nearest(
        self, queries: Floats, k: int, setting: Setting, threads: int, limits: Any
    ) -> tuple[Ids, NDArray[Any], NDArray[np.int64]]:
        """Return ids and scores of the core, or of a scan, and the numbers of candidates and comparisons."""
        if isinstance(self.rows, ScannedRows):
            ids, distances = self.rows.search(queries, k, self.space.core_metric, limits)
            return ids, distances, np.full((len(queries), 2), self.n_rows, dtype=np.int64)
        core = self.rows.core
        ids, scores, counts = core.search(queries, k, setting.budget, setting.comparisons, threads, limits)
        short = np.flatnonzero(ids[:, -1] < 0)
        if len(short):
            # The cells within the budget had fewer than k rows.
            whole = self.n_rows
            ids[short], scores[short], counts[short] = core.search(queries[short], k, whole, whole, threads, limits)
        return ids, scores, counts

    def has(self, ids: Ids) -> NDArray[np.bool_]:
        """Return True for each of some ids that is there."""
        if isinstance(self.rows, ScannedRows):
            return np.isin(ids, self.rows.ids[self.rows.is_alive])
        return np.asarray(self.rows.core.contains(ids)).astype(bool)

    def with_rows(self, ids: Ids, rows: Floats, threads: int) -> _Fitted:
        """Return the index with more rows."""
        if isinstance(self.rows, ScannedRows):
            return replace(self, rows=self.rows.joined(ScannedRows.of(ids, rows, self.space.core_metric)))
        self.rows.core.add(ids, rows, threads=threads)
        return self

    def without(self, ids: Ids) -> _Fitted:
        """Return the index without some rows."""
        if isinstance(self.rows, ScannedRows):
            return replace(self, rows=self.rows.without(ids))
        self.rows.core.remove(ids)
        return self

    def bytes(self) -> dict[str, int]:
        """Return the bytes of each part."""
        if isinstance(self.rows, ScannedRows):
            return {"vectors": self.rows.rows.nbytes + self.rows.halves.nbytes, "ids": self.rows.ids.nbytes}
        return dict(self.rows.core.bytes())

    def advice(self) -> str:
        """Return when to fit again."""
        if isinstance(self.rows, ScannedRows):
            if self.n_rows_at_fit < _LEAST_ROWS_OF_CELLS <= self.n_rows:
                return f"fit again: there are {self.n_rows:,} vectors now, and cells may be faster than a scan"
            return f"fit again when there are many more than {max(_LEAST_ROWS_OF_CELLS, self.n_rows_at_fit):,} vectors"
        if self.n_rows > 2 * self.n_rows_at_fit or 2 * self.n_rows < self.n_rows_at_fit:
            return f"fit again: there are {self.n_rows:,} vectors now, and {self.n_rows_at_fit:,} when it was fitted"
        return (
            f"fit again when there are more than {2 * self.n_rows_at_fit:,} or fewer than "
            f"{self.n_rows_at_fit // 2:,} vectors, or when vectors of another kind were added"
        )


def _curve_for(curves: dict[int, Curve], k: int) -> Curve:
    """Return the curve of the smallest k that is large enough."""
    for tuned in sorted(curves):
        if tuned >= k:
            return curves[tuned]
    raise InputError(
        f"k is {k:,}; searches were tuned for up to {max(curves):,}: fit NeighborIndex(k={k}), or give both budget= "
        "and comparisons="
    )


def _why_slower(built: Built, k: int, recall: float) -> str | None:
    """Return why a scan is better than these cells, or None."""
    curve = _curve_for(built.curves, k)
    setting = curve.setting(recall)
    if setting is None or setting.budget >= curve.whole:
        return f"an exact scan, because cells reach recall {recall:g} only if everything is read"
    seconds = curve.seconds_at(setting)
    if seconds >= built.scan_seconds:
        return (
            f"an exact scan, because it is as fast: {1e6 * built.scan_seconds:,.0f} us of one core a query, "
            f"{1e6 * seconds:,.0f} by cells at recall {recall:g}"
        )
    return None


def _why_cells(built: Built, settings: dict[int, Setting], k: int) -> str:
    tuned = min((each for each in settings if each >= k), default=None)
    if tuned is None:
        return "cells"
    seconds = built.curves[tuned].seconds_at(settings[tuned])
    if np.isnan(seconds):
        return "cells, all of which are read for the recall that is wanted"
    return (
        f"cells: {1e6 * seconds:,.0f} us of one core a query at k = {tuned}, where an exact scan takes "
        f"{1e6 * built.scan_seconds:,.0f}"
    )


def _check_recall(recall: float) -> float:
    if isinstance(recall, bool) or not isinstance(recall, int | float | np.integer | np.floating):
        raise DtypeError(f"recall is {recall!r}; expected a number")
    if not 0 < recall <= 1:
        raise InputError(f"recall is {recall}; expected above 0, up to 1")
    return float(recall)


def _check_new_ids(ids: ArrayLike, n_rows: int) -> Ids:
    """Return ids for so many rows, all different."""
    numbers = check_ids(ids)
    if len(numbers) != n_rows:
        raise ShapeError(f"there are {len(numbers):,} ids and {n_rows:,} vectors; expected an id for each vector")
    if n_rows and numbers.min() < 0:
        raise InputError(f"id {numbers.min()} is negative; expected ids from 0 on")
    if len(distinct(numbers)) != n_rows:
        ordered = np.sort(numbers)
        twice = ordered[1:][ordered[1:] == ordered[:-1]][0]
        raise InputError(f"id {twice} is there twice; expected all ids to be different")
    return numbers
