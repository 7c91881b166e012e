"""Building an index of cells: train centres and codebooks, add rows, measure the curves."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native
from hamtarget.search.neighbors.cells import ROWS_PER_CELL, nearest_centre, train_centres
from hamtarget.search.neighbors.curve import Costs, Curve
from hamtarget.search.neighbors.exact import approximate_nearest
from hamtarget.search.neighbors.sketches import TRAINING_ROWS, train_codebooks
from hamtarget.search.neighbors.space import VectorSpace, blocks_of
from hamtarget.search.neighbors.tuning import N_QUERIES, Truth, ceiling_of, chosen_ks, measure_curve

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
RowType = Literal["int8", "uint8", "float16", "float32"]

BYTES_PER_NUMBER: dict[RowType, int] = {"int8": 1, "uint8": 1, "float16": 2, "float32": 4}
# Bytes of the sample that centres are trained on.
_SAMPLE_BYTES = 1 << 29
# Parts of a sketch: more take longer to read, fewer need more comparisons.
_PARTS = 48
# The core's kernels know parts of at most so many numbers.
_MOST_DIMS_PER_PART = 8


@dataclass
class Built:
    """An index of cells, and what was measured while it was built.

    Attributes:
        core: the native index.
        row_type: how vectors are kept.
        n_cells: number of cells.
        dims_per_part: numbers in a part of a sketch.
        curves: by number of neighbours.
        ceilings: recall at k of an exact scan of rows kept in each type that was considered.
        scan_seconds: of one core that an exact scan takes for a query.
        seconds: of each step, by name.
    """

    core: Any
    row_type: RowType
    n_cells: int
    dims_per_part: int
    curves: dict[int, Curve]
    ceilings: dict[str, float]
    scan_seconds: float
    seconds: dict[str, float] = field(default_factory=dict)


class Steps:
    """Reports the progress of a work of several steps, and remembers how long each took."""

    def __init__(self, shares: dict[str, float], progress: Callable[[int, int], None] | None) -> None:
        """Begin, with the expected share of each step in the whole."""
        total = sum(shares.values())
        self._shares = {name: share / total for name, share in shares.items()}
        self._progress = progress
        self._done = 0.0
        self.seconds: dict[str, float] = {}

    def run(self, name: str, work: Callable[[Callable[[float], None]], Any]) -> Any:
        """Run a step; it gets a function to report the share of it that is done."""
        begin = time.perf_counter()
        share = self._shares[name]
        result = work(lambda part: self._tell(self._done + share * part))
        self._done += share
        self._tell(self._done)
        self.seconds[name] = time.perf_counter() - begin
        return result

    def _tell(self, done: float) -> None:
        if self._progress is not None:
            self._progress(round(1000 * min(done, 1.0)), 1000)


def n_cells_for(n_rows: int) -> int:
    """Return the number of cells for so many rows: about 4 sqrt(rows), a multiple of 16."""
    return max(16, 16 * round(4 * math.sqrt(n_rows) / 16))


def dims_per_part_for(n_dims: int) -> int:
    """Return how many numbers a part of a sketch stands for, so that there are about 48 parts."""
    return min(_MOST_DIMS_PER_PART, max(2, round(n_dims / _PARTS)))


class Builder:
    """Builds an index of cells of the rows of an array."""

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
        dims_per_part: int | None = None,
    ) -> None:
        self._vectors, self._space = vectors, space
        self._recall, self._k, self._threads = recall, k, threads
        self._random = np.random.default_rng(seed)
        self._n_cells = n_cells or n_cells_for(len(vectors))
        self._dims_per_part = dims_per_part or dims_per_part_for(space.n_dims)

    def build(self, ids: Rows, queries: Floats | None, progress: Callable[[int, int], None] | None) -> Built:
        """Return the index of all rows.

        Args:
            ids: of the rows.
            queries: to tune on, as the space gives them; None takes some of the rows.
            progress: called now and then.
        """
        n_rows, metric = len(self._vectors), self._space.core_metric
        work = n_rows * self._space.n_dims / 5e9
        steps = Steps(
            {
                "exact neighbours": N_QUERIES * work / 5,
                "cells": 1 + self._n_cells * ROWS_PER_CELL * math.sqrt(self._n_cells) * self._space.n_dims / 4e9,
                "sketches": 2.0,
                "rows": 0.2 + self._n_cells * work,
                "tuning": 8.0,
            },
            progress,
        )
        ks = chosen_ks(self._k, n_rows)
        truth = steps.run("exact neighbours", lambda report: self._truth(queries, max(ks), report))
        centres = steps.run("cells", lambda report: self._centres(truth.itself, report))
        books = steps.run("sketches", lambda report: self._codebooks(centres, report))
        row_type, ceilings = self._row_type(truth)
        core = _native.NeighborCore(self._space.n_dims, metric, row_type, centres, books)
        steps.run("rows", lambda report: self._add(core, ids, report))
        numbers = NumbersOfIds(ids)
        costs = Costs.of(self._space.n_dims, len(centres), len(books), BYTES_PER_NUMBER[row_type])

        def search(queries: Floats, wanted: int, budget: int, comparisons: int) -> tuple[Rows, Any]:
            found, _, counts = core.search(queries, wanted, budget, comparisons, self._threads)
            return numbers.of(found), counts

        def tuned(report: Callable[[float], None]) -> dict[int, Curve]:
            return {
                k: measure_curve(
                    # Half of the queries do for numbers of neighbours that are less often asked for.
                    truth if k == self._k else truth.every(2),
                    k,
                    search,
                    self._rows_of,
                    metric,
                    n_rows=n_rows,
                    n_cells=len(centres),
                    ceiling=self._ceiling(truth, k, row_type),
                    costs=costs,
                    report=_share_of(report, place, len(ks)),
                )
                for place, k in enumerate(ks)
            }

        core.compact()
        curves = steps.run("tuning", tuned)
        return Built(core, row_type, len(centres), self._dims_per_part, curves, ceilings, truth.seconds, steps.seconds)

    def _blocks(self, report: Callable[[float], None]) -> Iterator[Floats]:
        """Yield all rows, in blocks."""
        for here in blocks_of(len(self._vectors), self._space.n_dims):
            yield self._space.rows(self._vectors[here], first=here.start)
            report(here.stop / len(self._vectors))

    def _rows_of(self, numbers: Rows) -> Floats:
        return self._space.rows(self._vectors[numbers])

    def _truth(self, queries: Floats | None, most: int, report: Callable[[float], None]) -> Truth:
        """Return queries with their true neighbours, more than any curve asks for."""
        n_rows = len(self._vectors)
        itself = None
        if queries is None:
            itself = np.sort(self._random.choice(n_rows, min(N_QUERIES, n_rows // 4), replace=False))
            queries = self._space.queries(self._vectors[itself])[0]
        elif len(queries) > 2 * N_QUERIES:
            queries = queries[np.sort(self._random.choice(len(queries), 2 * N_QUERIES, replace=False))]
        begin = time.process_time()
        rows, scores = approximate_nearest(
            queries, self._blocks(report), min(2 * most + 40, n_rows - 1), self._space.core_metric, skip=itself
        )
        return Truth(queries, rows, scores, itself, (time.process_time() - begin) / len(queries))

    def _sample(self, count: int, without: Rows | None) -> Floats:
        """Return some rows, none of them held out."""
        n_rows = len(self._vectors)
        may = np.ones(n_rows, dtype=bool)
        if without is not None:
            may[without] = False
        numbers = np.flatnonzero(may)
        if len(numbers) > count:
            numbers = np.sort(self._random.choice(numbers, count, replace=False))
        sample = np.empty((len(numbers), self._space.n_dims), dtype=np.float32)
        for here in blocks_of(len(numbers), self._space.n_dims):
            sample[here] = self._rows_of(numbers[here])
        return sample

    def _centres(self, held_out: Rows | None, report: Callable[[float], None]) -> Floats:
        count = min(self._n_cells * ROWS_PER_CELL, max(4 * self._n_cells, _SAMPLE_BYTES // (4 * self._space.n_dims)))
        return train_centres(self._sample(count, held_out), self._n_cells, self._random, report)

    def _codebooks(self, centres: Floats, report: Callable[[float], None]) -> Floats:
        sample = self._sample(TRAINING_ROWS, None)
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
        if row_type in ("uint8", "float32"):
            return 1.0
        return ceiling_of(truth, k, self._rows_of, self._space.core_metric, _ROUNDED[row_type])

    def _add(self, core: Any, ids: Rows, report: Callable[[float], None]) -> None:
        first = 0
        for block in self._blocks(report):
            core.add(ids[first : first + len(block)], block, threads=self._threads)
            first += len(block)


def _share_of(report: Callable[[float], None], place: int, count: int) -> Callable[[float], None]:
    """Return a function that reports the progress of one of several equal parts of a work."""
    return lambda part: report((place + part) / count)


class NumbersOfIds:
    """Tells the number of a row by its id."""

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


_ROUNDED: dict[str, Callable[[Floats], Floats]] = {"int8": _rounded_int8, "float16": _rounded_float16}
