"""The nearest vectors in a store: in cells, by probing with tuned settings, or by comparing all."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import InputError, PrivilegeError
from hamtarget.filters import Filter
from hamtarget.progress import Progress
from hamtarget.query import Work
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.limits import Limits, check_limits
from hamtarget.search.neighbor_index import NeighborIndex
from hamtarget.search.requests import Requests, check_count
from hamtarget.search.results import BatchHits
from hamtarget.store.backend import Backend
from hamtarget.store.vectors.cells import find_in_cells, work_within
from hamtarget.store.vectors.kept_vectors import restored_vectors
from hamtarget.store.vectors.tuning import (
    FEWEST_ITEMS,
    GROWTH_OF_CELLS,
    SEED,
    Point,
    Tuning,
    check_recall,
    n_tuning_queries,
    scan_request,
    tune_index,
    tuning_of,
    tuning_of_cells,
)

USUAL_RECALL = 0.95
"""Recall of searches that do not name one."""

USUAL_K = 10
"""Neighbours for which a store is tuned first."""

# Another process may have tuned the store: it is looked for again after so many seconds.
_LOOK_SECONDS = 1.0
# A search that tunes the store first warns if that takes longer; cells are made of about so many numbers a second.
_SILENT_SECONDS = 10.0
_NUMBERS_PER_SECOND = 3e6


class NearestVectors:
    """Searches of a store that keeps vectors.

    Args:
        engine: keeps the items.
        requests: of the store.
        kind: how vectors are kept.
        encoder: returns the store's encoder.
    """

    def __init__(self, engine: Backend, requests: Requests, kind: Embeddings, encoder: Callable[[], Encoder]) -> None:
        self._engine = engine
        self._requests = requests
        self._kind = kind
        self._encoder = encoder
        self._known: dict[int, Tuning] = {}
        self._next_look = 0.0
        self._lock = threading.RLock()

    def find_batch(
        self,
        vectors: NDArray[Any],
        k: int,
        recall: float | None,
        *,
        logits: NDArray[np.float32],
        filter: Filter | None,
        threads: int,
        cost: bool,
        limits: Limits | None,
    ) -> BatchHits:
        """Return the `k` nearest of each of some vectors.

        Args:
            vectors: as they are compared with kept ones, (queries, n_dims).
            k: number of neighbours.
            recall: share of them to find; 0.95 by default.
            logits: of the vectors.
            filter: with one, all vectors are compared, whatever the recall: what it leaves was not tuned for.
            threads: the queries are shared among so many threads.
            cost: if True, the result's `costs` say how much work each query took.
            limits: bounds on the work. Under bounds the store is not tuned: until it is, all vectors are compared.
        """
        wanted = USUAL_RECALL if recall is None else check_recall(recall)
        k = check_count(k, name="k")
        if limits is not None:
            check_limits(limits)
        codes = np.packbits(logits > 0, axis=1, bitorder="little")
        n_items = self._engine.count(None)
        # Few are compared faster than anything else is done; so are all, where they are wanted.
        # An item with several vectors is found once, for which all of them are compared.
        is_quick = not filter and wanted < 1 and not self._engine.has_several
        if is_quick and n_items >= max(FEWEST_ITEMS, 4 * k):
            if limits is None and not self._is_tuned(k, n_items):
                self._tune_by_the_way(max(k, USUAL_K), n_items)
            hits = self._find_in_cells(codes, vectors, k, wanted, threads=threads, limits=limits)
            if hits is not None:
                return hits if cost else hits.with_costs(None)
            point = self._point(k, wanted)
            if point is not None:
                request = self._requests.probe(
                    logits,
                    point.budget + self._engine.scanned_rows,
                    radius=self._requests.n_bits - 1,
                    limit=None,
                    rerank=k,
                    embedding=vectors,
                    comparisons=max(k, point.comparisons),
                    limits=limits,
                )
                return self._engine.find_batch(request, filter, threads=threads, cost=cost)
        request = scan_request(self._requests, codes, vectors, k)._replace(limits=limits)
        return self._engine.find_batch(request, filter, threads=threads, cost=cost)

    def needs_tuning(self) -> bool:
        """Return True if searches of the usual kind would gain by `tune`: the store is large, and has grown."""
        n_items = self._engine.count(None)
        return n_items >= FEWEST_ITEMS and not self._engine.has_several and not self._is_tuned(USUAL_K, n_items)

    def tunings(self) -> dict[int, Tuning]:
        """Return what was measured, by `k`."""
        self._look()
        return dict(sorted(self._known.items()))

    def tune(self, k: int, *, threads: int | None = None, progress: Progress | None = None) -> Tuning:
        """Make cells, or measure which settings of probes give which recall, and keep what was measured in the store.

        Raises:
            InputError: there are too few items.
        """
        k = check_count(k, name="k")
        with self._lock:
            n_items = self._engine.count(None)
            if n_items <= k + 1:
                raise InputError(f"the store has {n_items:,} items; tuning for k = {k} needs more than {k + 1}")
            tune = self._tune_cells if self._engine.has_cells else self._tune_probes
            tuning = tune(k, threads or os.cpu_count() or 1, progress)
            self._known[k] = tuning
            if not self._engine.read_only:
                try:
                    self._engine.write_tuning(k, tuning.as_text())
                except PrivilegeError:
                    # Who may put items, but not write this table, has it in memory only.
                    pass
            return tuning

    def _tune_cells(self, k: int, threads: int, progress: Progress | None) -> Tuning:
        # What served more neighbours goes on to do so.
        known = [tuning.k for tuning in self._known.values() if tuning.way == "cells"]
        asked = NeighborIndex(self._kind.metric, USUAL_RECALL, k=max([k, *known]), seed=SEED)
        self._engine.make_cells(asked, Work(threads=threads, progress=progress))
        return tuning_of_cells(asked, k)

    def _tune_probes(self, k: int, threads: int, progress: Progress | None) -> Tuning:
        index = self._engine.whole_index()
        rows = index.ids()
        n_queries = min(n_tuning_queries(len(rows)), len(rows))
        rows = np.sort(np.random.default_rng(SEED).choice(rows, n_queries, replace=False))
        found = index.get(rows)
        if not isinstance(found, tuple):
            raise TypeError("a store of vectors has an index without them")
        vectors = found[1]
        logits = self._encoder().logits(restored_vectors(vectors, self._kind))
        # Queries of float16 are compared as float32.
        queries = vectors if self._kind.dtype == "int8" else vectors.astype(np.float32)
        return tune_index(index, self._requests, rows, logits, queries, k, threads=threads, progress=progress)

    def _tune_by_the_way(self, k: int, n_items: int) -> None:
        """Call `tune` because somebody searches; warn if that takes long."""
        with self._lock:
            # Another thread may have done it meanwhile.
            if self._is_tuned(k, n_items):
                return
            seconds = n_items * self._kind.n_dims / _NUMBERS_PER_SECOND
            if self._engine.has_cells and seconds > _SILENT_SECONDS:
                warnings.warn(
                    f"{self._engine.path} is tuned for its {n_items:,} vectors before this search, once: that takes a "
                    "minute or so for a million of 128 numbers; call tune(progress=...) to have it done earlier",
                    stacklevel=5,
                )
            self.tune(k)

    def _find_in_cells(
        self, codes: Codes, vectors: NDArray[Any], k: int, recall: float, *, threads: int, limits: Limits | None
    ) -> BatchHits | None:
        """Return hits by cells; None if there are none, or none that reach the recall."""
        cells = self._engine.cells()
        if cells is None or cells.setting(k, recall) is None:
            return None
        work = work_within(limits, threads)
        return self._engine.find_in_cells(
            lambda cells, index: find_in_cells(cells, index, codes, vectors, k, recall, work)
        )

    def _is_tuned(self, k: int, n_items: int) -> bool:
        """Return True if searches for `k` need not be tuned again."""
        cells = self._engine.cells()
        if cells is not None and cells.is_tuned_for(k):
            return n_items <= GROWTH_OF_CELLS * cells.n_rows_at_fit
        tuning = self._nearest_known(k)
        if tuning is None or not tuning.suits(n_items):
            self._look()
            tuning = self._nearest_known(k)
        if tuning is None or not tuning.suits(n_items):
            return False
        # Cells that are lost are made again, and what an earlier version has measured for probes gives way to them.
        return not self._engine.has_cells or (tuning.way == "cells" and not tuning.points)

    def _point(self, k: int, recall: float) -> Point | None:
        """Return the setting of a probe that reaches a recall; None: all vectors are to be compared."""
        tuning = self._nearest_known(k)
        return None if tuning is None or tuning.way != "probe" else tuning.point_for(recall)

    def _nearest_known(self, k: int) -> Tuning | None:
        """Return the tuning for the fewest neighbours that are at least `k`: fewer are found as well by it."""
        able = [known for known in list(self._known) if known >= k]
        return self._known[min(able)] if able else None

    def _look(self) -> None:
        """Read what another process may have measured."""
        now = monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        for k, text in self._engine.read_tunings().items():
            tuning = tuning_of(text)
            if tuning.k == k and (k not in self._known or self._known[k].n_items < tuning.n_items):
                self._known[k] = tuning
