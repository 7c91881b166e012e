"""Rows in cells: building them, searching them by sketches, and changing them while others search."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native
from hamtarget.errors import InputError
from hamtarget.query import Work
from hamtarget.search.neighbors.scan import approximate_nearest
from hamtarget.search.neighbors.space import Floats, VectorSpace, blocks_of
from hamtarget.search.neighbors.training import (
    ROWS_PER_CELL,
    TRAINING_ROWS,
    nearest_centre,
    train_centres,
    train_codebooks,
)
from hamtarget.search.neighbors.tuning import (
    N_QUERIES,
    CostModel,
    Curve,
    Report,
    RowType,
    Setting,
    Truth,
    Tuned,
    chosen_ks,
    measure_curve,
)

if TYPE_CHECKING:
    from hamtarget.search.neighbors.file import Content

Rows = NDArray[np.int64]

BYTES_PER_NUMBER: dict[RowType, int] = {"int8": 1, "uint8": 1, "float16": 2, "float32": 4}
# Bytes of the sample that centres are trained on.
_SAMPLE_BYTES = 1 << 29
# Parts of a sketch: more take longer to read, fewer need more comparisons.
_PARTS = 48
# The largest part that the core's kernels know, in numbers.
_MOST_DIMS_PER_PART = 8
_TABLES = ("recall", "error", "candidates", "compared", "seconds")


@dataclass(frozen=True, eq=False)
class RowsInCells:
    """Rows in the cells of the native core. They change in place; the core lets searches go on during a change.

    Attributes:
        core: the native index.
        tuned: what was chosen and measured while it was built.
        n_rows_at_fit: rows at that time.
    """

    core: _native.NeighborCore
    tuned: Tuned
    n_rows_at_fit: int

    way: ClassVar[str] = "cells"

    @classmethod
    def from_file(cls, content: Content, space: VectorSpace) -> Self:
        """Return the rows in a file.

        Raises:
            KeyError, TypeError, ValueError, InputError: something is missing, out of range, or of another space.
        """
        built, plain = content.about["built"], content.about["core"]
        row_type = built["row_type"]
        if row_type not in BYTES_PER_NUMBER:
            raise ValueError("row_type is unknown")
        curves = {int(each["k"]): _curve_from(each, content) for each in built["curves"]}
        if not curves:
            raise ValueError("there is no curve")
        if (plain["n_dims"], plain["metric"], plain["row_type"]) != (space.n_dims, space.comparison.name, row_type):
            raise ValueError("cells are of another space")
        state = {name.removeprefix("core_"): each for name, each in content.arrays.items() if name.startswith("core_")}
        tuned = Tuned(
            row_type,
            int(built["n_cells"]),
            int(built["dims_per_part"]),
            curves,
            {str(name): float(value) for name, value in built["ceilings"].items()},
            float(built["scan_seconds"]),
            {str(name): float(value) for name, value in built["seconds"].items()},
        )
        core = _native.NeighborCore.from_state({**plain, **state})
        return cls(core, tuned, int(content.about["n_rows_at_fit"]))

    def to_file(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return what a file says of them, and its arrays."""
        tuned, state, arrays = self.tuned, self.core.state(), {}
        for k, curve in tuned.curves.items():
            arrays[f"curve_{k}_budgets"], arrays[f"curve_{k}_comparisons"] = curve.budgets, curve.comparisons
            for table in _TABLES:
                arrays[f"curve_{k}_{table}"] = getattr(curve, table)
        arrays.update({f"core_{name}": value for name, value in state.items() if isinstance(value, np.ndarray)})
        about = {
            "why": "",
            "n_rows_at_fit": self.n_rows_at_fit,
            "built": {
                "row_type": tuned.row_type,
                "n_cells": tuned.n_cells,
                "dims_per_part": tuned.dims_per_part,
                "ceilings": tuned.ceilings,
                "scan_seconds": tuned.scan_seconds,
                "seconds": tuned.seconds,
                "curves": [
                    {"k": k, "ceiling": curve.ceiling, "whole": curve.whole, "costs": list(curve.costs)}
                    for k, curve in tuned.curves.items()
                ],
            },
            "core": {name: value for name, value in state.items() if not isinstance(value, np.ndarray)},
        }
        return about, arrays

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.core)

    def ids(self) -> Rows:
        """Return all ids, ascending."""
        return self.core.ids()

    def has(self, ids: Rows) -> NDArray[np.bool_]:
        """Return True for each of some ids that is there."""
        return self.core.contains(ids).astype(bool)

    def get(self, ids: Rows) -> Floats:
        """Return the rows of ids, as they are kept.

        Raises:
            InputError: an id is not there.
        """
        return self.core.get(ids)

    def with_rows(self, ids: Rows, rows: Floats) -> Self:
        """Add rows, and return the same object."""
        self.core.add(ids, rows, threads=os.cpu_count() or 1)
        return self

    def without(self, ids: Rows) -> Self:
        """Remove rows, and return the same object."""
        self.core.remove(ids)
        return self

    def plan(self, k: int, recall: float, budget: int | None, comparisons: int | None) -> Setting:
        """Return how much a search reads.

        Raises:
            InputError: k exceeds what was tuned, or the recall what vectors that are kept in this type can give.
        """
        if budget is not None and comparisons is not None:
            return Setting(budget, comparisons, 0.0)
        curve = self.tuned.curve_for(k)
        setting = curve.setting(recall)
        if setting is None:
            raise InputError(
                f"recall is {recall:g}; vectors kept as {self.tuned.row_type} give at most {curve.ceiling:.3f} at "
                f"k = {curve.k}: fit an index with recall={recall:g}, which keeps them more exactly"
            )
        # Cells have grown with the rows, and so has what must be read to visit as many.
        grown = int(np.ceil(setting.budget * max(1.0, len(self) / curve.whole)))
        if budget is not None:
            comparisons = min(setting.comparisons, budget)
        elif comparisons is None:
            comparisons = setting.comparisons if setting.comparisons < curve.whole else max(curve.whole, len(self))
        return Setting(grown if budget is None else budget, max(k, comparisons), setting.recall)

    def find(self, queries: Floats, k: int, setting: Setting, work: Work) -> tuple[Rows, Floats, Rows]:
        """Return ids, distances of the core, and numbers of candidates and comparisons."""
        threads, limits = work.n_threads(1), work.limits
        ids, found, counts = self.core.search(queries, k, setting.budget, setting.comparisons, threads, limits)
        short = np.flatnonzero(ids[:, -1] < 0)
        if len(short):
            # The cells within the budget had fewer than k rows.
            whole = len(self)
            ids[short], found[short], counts[short] = self.core.search(queries[short], k, whole, whole, threads, limits)
        return ids, found, counts

    def why(self, k: int, recall: float) -> str:
        """Return why they are in cells, by the times of searches for k neighbours."""
        settings = self.tuned.settings_for(recall)
        tuned = min((each for each in settings if each >= k), default=None)
        if tuned is None:
            return "cells"
        seconds = self.tuned.curves[tuned].seconds_at(settings[tuned])
        if np.isnan(seconds):
            return "cells, all of which are read for the recall that is wanted"
        return (
            f"cells: {1e6 * seconds:,.0f} us of one core a query at k = {tuned}, where an exact scan takes "
            f"{1e6 * self.tuned.scan_seconds:,.0f}"
        )

    def advice(self) -> str:
        """Return when to fit again."""
        then = self.n_rows_at_fit
        if len(self) > 2 * then or 2 * len(self) < then:
            return f"fit again: there are {len(self):,} vectors now, and {then:,} when it was fitted"
        return (
            f"fit again when there are more than {2 * then:,} or fewer than {then // 2:,} vectors, or when vectors of "
            "another kind were added"
        )

    def bytes(self) -> dict[str, int]:
        """Return the bytes of each part."""
        return dict(self.core.bytes())


def _curve_from(about: dict[str, Any], content: Content) -> Curve:
    k = int(about["k"])
    budgets = content.array(f"curve_{k}_budgets", np.int64, (-1,))
    comparisons = content.array(f"curve_{k}_comparisons", np.int64, (-1,))
    if not len(budgets) or not len(comparisons) or min(budgets.min(), comparisons.min(), k) < 1:
        raise ValueError(f"the curve of k = {k} is empty")
    shape = (len(budgets), len(comparisons))
    tables = {name: content.array(f"curve_{k}_{name}", np.float64, shape) for name in _TABLES}
    costs = CostModel(*(float(cost) for cost in about["costs"]))
    return Curve(
        k, budgets, comparisons, **tables, ceiling=float(about["ceiling"]), whole=int(about["whole"]), costs=costs
    )


class Steps:
    """Reports the progress of a work of several steps, ends it at a bound, and remembers how long each step took."""

    def __init__(self, shares: dict[str, float], work: Work) -> None:
        """Begin, with the expected share of each step in the whole."""
        total = sum(shares.values())
        self._shares = {name: share / total for name, share in shares.items()}
        self._limits, self._progress = work.limits, work.progress
        self._done = 0.0
        self.seconds: dict[str, float] = {}

    def run(self, name: str, step: Callable[[Report], Any]) -> Any:
        """Run a step; it gets a function to report the share of it that is done.

        Raises:
            LimitError: the time is over, or the work was cancelled.
        """
        begin = time.perf_counter()
        share = self._shares[name]
        result = step(lambda part: self._report(self._done + share * part))
        self._done += share
        self._report(self._done)
        self.seconds[name] = time.perf_counter() - begin
        return result

    def _report(self, done: float) -> None:
        if self._limits is not None:
            self._limits.check()
        if self._progress is not None:
            self._progress(round(1000 * min(done, 1.0)), 1000)


def n_cells_for(n_rows: int) -> int:
    """Return the number of cells for a number of rows: about 4 sqrt(rows), a multiple of 16."""
    return max(16, 16 * round(4 * math.sqrt(n_rows) / 16))


def dims_per_part_for(n_dims: int) -> int:
    """Return how many numbers a part of a sketch stands for, so that there are about 48 parts."""
    return min(_MOST_DIMS_PER_PART, max(2, round(n_dims / _PARTS)))


class Builder:
    """Builds cells of the rows of an array."""

    def __init__(
        self,
        vectors: NDArray[Any],
        space: VectorSpace,
        *,
        recall: float,
        k: int,
        seed: int,
        threads: int,
        n_cells: int | None = None,
    ) -> None:
        """Choose the form.

        Args:
            vectors: the rows.
            space: that was chosen for them.
            recall: share of the true neighbours that is wanted.
            k: neighbours that are mostly asked for.
            seed: of everything random.
            threads: that share the work.
            n_cells: cells wanted; by default by the number of rows.
        """
        self._vectors, self._space = vectors, space
        self._recall, self._k = recall, k
        self._threads = threads
        self._random = np.random.default_rng(seed)
        self._n_cells = n_cells or n_cells_for(len(vectors))
        self._dims_per_part = dims_per_part_for(space.n_dims)

    def build(self, ids: Rows, queries: Floats | None, work: Work) -> RowsInCells:
        """Return all rows in cells.

        Args:
            ids: of the rows.
            queries: to tune on, as the space gives them; None takes some of the rows.
            work: progress; of its bounds, the seconds count. Its clock runs.
        """
        n_rows, name = len(self._vectors), self._space.comparison.name
        seconds = n_rows * self._space.n_dims / 5e9
        steps = Steps(
            {
                "exact neighbours": N_QUERIES * seconds / 5,
                "cells": 1 + self._n_cells * ROWS_PER_CELL * math.sqrt(self._n_cells) * self._space.n_dims / 4e9,
                "sketches": 2.0,
                "rows": 0.2 + self._n_cells * seconds,
                "tuning": 8.0,
            },
            work,
        )
        ks = chosen_ks(self._k, n_rows)
        truth = steps.run("exact neighbours", lambda report: self._truth(queries, max(ks), report))
        centres = steps.run("cells", lambda report: self._centres(truth.itself, work, report))
        books = steps.run("sketches", lambda report: self._codebooks(centres, work, report))
        row_type, ceilings = self._row_type(truth)
        core = _native.NeighborCore(self._space.n_dims, name, row_type, centres, books)
        steps.run("rows", lambda report: self._add(core, ids, report))
        numbers = NumbersOfIds(ids)
        costs = CostModel.of(self._space.n_dims, len(centres), len(books), BYTES_PER_NUMBER[row_type])

        def search(queries: Floats, wanted: int, budget: int, comparisons: int) -> tuple[Rows, Any]:
            found, _, counts = core.search(queries, wanted, budget, comparisons, self._threads)
            return numbers.of(found), counts

        def curves(report: Report) -> dict[int, Curve]:
            return {
                k: measure_curve(
                    # Half of the queries do for numbers of neighbours that are less often asked for.
                    truth if k == self._k else truth.some(slice(None, None, 2)),
                    k,
                    search,
                    n_rows=n_rows,
                    n_cells=len(centres),
                    ceiling=self._ceiling(truth, k, row_type),
                    costs=costs,
                    report=_share_of(report, place, len(ks)),
                )
                for place, k in enumerate(ks)
            }

        core.compact()
        tuned = Tuned(
            row_type,
            len(centres),
            self._dims_per_part,
            steps.run("tuning", curves),
            ceilings,
            truth.seconds,
            steps.seconds,
        )
        return RowsInCells(core, tuned, n_rows)

    def _blocks(self, report: Report) -> Iterator[Floats]:
        """Yield all rows, in blocks."""
        for here in blocks_of(len(self._vectors), self._space.n_dims):
            yield self._space.rows(self._vectors[here], first=here.start)
            report(here.stop / len(self._vectors))

    def _rows_of(self, numbers: Rows) -> Floats:
        return self._space.rows(self._vectors[numbers])

    def _truth(self, queries: Floats | None, most: int, report: Report) -> Truth:
        """Return queries with their true neighbours, more than any curve asks for."""
        n_rows, comparison = len(self._vectors), self._space.comparison
        itself = None
        if queries is None:
            itself = np.sort(self._random.choice(n_rows, min(N_QUERIES, n_rows // 4), replace=False))
            queries = self._space.queries(self._vectors[itself])[0]
        elif len(queries) > 2 * N_QUERIES:
            queries = queries[np.sort(self._random.choice(len(queries), 2 * N_QUERIES, replace=False))]
        begin = time.process_time()
        n_true = min(2 * most + 40, n_rows - 1)
        rows, scores = approximate_nearest(queries, self._blocks(report), n_true, comparison, skip=itself)
        seconds = (time.process_time() - begin) / len(queries)
        return Truth(queries, rows, scores, itself, self._rows_of, comparison, seconds)

    def _sample(self, count: int, without: Rows | None, work: Work) -> Floats:
        """Return some rows, none of them held out."""
        n_rows = len(self._vectors)
        may = np.ones(n_rows, dtype=bool)
        if without is not None:
            may[without] = False
        numbers = np.flatnonzero(may)
        if len(numbers) > count:
            numbers = np.sort(self._random.choice(numbers, count, replace=False))
        sample = np.empty((len(numbers), self._space.n_dims), dtype=np.float32)
        for here in blocks_of(len(numbers), self._space.n_dims, work):
            sample[here] = self._rows_of(numbers[here])
        return sample

    def _centres(self, held_out: Rows | None, work: Work, report: Report) -> Floats:
        count = min(self._n_cells * ROWS_PER_CELL, max(4 * self._n_cells, _SAMPLE_BYTES // (4 * self._space.n_dims)))
        return train_centres(self._sample(count, held_out, work), self._n_cells, self._random, report)

    def _codebooks(self, centres: Floats, work: Work, report: Report) -> Floats:
        sample = self._sample(TRAINING_ROWS, None, work)
        residuals = sample - centres[nearest_centre(sample, centres)]
        return train_codebooks(residuals, self._dims_per_part, self._random, report)

    def _row_type(self, truth: Truth) -> tuple[RowType, dict[str, float]]:
        """Return how vectors are kept: as small as costs at most half of the recall that may be missing."""
        if self._space.are_bytes:
            return "uint8", {"uint8": 1.0}
        ceilings: dict[str, float] = {}
        order: tuple[RowType, ...] = ("int8", "float16")
        for row_type in order:
            ceilings[row_type] = self._ceiling(truth, self._k, row_type)
            if ceilings[row_type] >= 1 - (1 - self._recall) / 2:
                return row_type, ceilings
        return "float32", {**ceilings, "float32": 1.0}

    def _ceiling(self, truth: Truth, k: int, row_type: RowType) -> float:
        rounded = _ROUNDED.get(row_type)
        return 1.0 if rounded is None else truth.ceiling(k, rounded)

    def _add(self, core: _native.NeighborCore, ids: Rows, report: Report) -> None:
        first = 0
        for block in self._blocks(report):
            core.add(ids[first : first + len(block)], block, threads=self._threads)
            first += len(block)


def _share_of(report: Report, place: int, count: int) -> Report:
    """Return a function that reports the progress of one of several equal parts of a work."""
    return lambda part: report((place + part) / count)


class NumbersOfIds:
    """Gives the number of a row by its id."""

    def __init__(self, ids: Rows) -> None:
        self._are_numbers = bool((ids == np.arange(len(ids))).all())
        self._order = np.argsort(ids, kind="stable")
        self._sorted = ids[self._order]

    def of(self, ids: Rows) -> Rows:
        """Return numbers of rows; -1, which stands for no row, stays."""
        if self._are_numbers:
            return ids
        place = np.minimum(np.searchsorted(self._sorted, ids), len(self._sorted) - 1)
        return np.where(self._sorted[place] == ids, self._order[place], -1)


def _rounded_int8(rows: Floats) -> Floats:
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True), np.float32(1e-30)) / np.float32(127)
    rounded: Floats = np.rint(rows / largest) * largest
    return rounded


def _rounded_float16(rows: Floats) -> Floats:
    return rows.astype(np.float16).astype(np.float32)


_ROUNDED: dict[RowType, Callable[[Floats], Floats]] = {"int8": _rounded_int8, "float16": _rounded_float16}
