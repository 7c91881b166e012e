"""The nearest vectors in a store: by probing with tuned settings, or by comparing all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import InputError, PrivilegeError
from hamtarget.progress import Progress
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.limits import Limits, check_limits
from hamtarget.search.requests import Request, Requests, check_count
from hamtarget.store.backend import Backend
from hamtarget.store.kept_vectors import restored_vectors
from hamtarget.store.tuning import (
    FEWEST_ITEMS,
    SEED,
    Point,
    Tuning,
    check_recall,
    n_tuning_queries,
    scan_request,
    tune_index,
    tuning_of,
)

USUAL_RECALL = 0.95
"""Recall of searches that do not name one."""

USUAL_K = 10
"""Neighbours for which a store is tuned first."""

# Another process may have tuned the store: it is looked for again after so many seconds.
_LOOK_SECONDS = 1.0


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
        self._lock = threading.Lock()

    def request(
        self,
        vectors: NDArray[Any],
        k: int,
        recall: float | None,
        *,
        logits: NDArray[np.float32] | None = None,
        scans: bool = False,
        limits: Limits | None = None,
    ) -> Request:
        """Return the request for the `k` nearest of each of some vectors.

        Args:
            vectors: as they are kept, (queries, n_dims).
            k: number of neighbours.
            recall: share of them to find; 0.95 by default.
            logits: of the vectors; those of the encoder by default.
            scans: if True, all vectors are compared, whatever the recall: what a filter leaves was not tuned for.
            limits: bounds on the work. Under bounds the store is not tuned: until it is, all vectors are compared.
        """
        wanted = USUAL_RECALL if recall is None else check_recall(recall)
        k = check_count(k, name="k")
        if limits is not None:
            check_limits(limits)
        if logits is None:
            logits = self._encoder().logits(restored_vectors(vectors, self._kind))
        n_items = self._engine.count(None)
        point = None if scans else self._point(k, wanted, n_items, tunes=limits is None)
        if point is None:
            codes = np.packbits(logits > 0, axis=1, bitorder="little")
            return scan_request(self._requests, codes, vectors, k)._replace(limits=limits)
        return self._requests.probe(
            logits,
            point.budget + self._engine.scanned_rows,
            radius=self._requests.n_bits - 1,
            limit=None,
            rerank=k,
            embedding=vectors,
            comparisons=max(k, point.comparisons),
            limits=limits,
        )

    def needs_tuning(self) -> bool:
        """Return True if searches of the usual kind would gain by `tune`: the store is large, and has grown."""
        n_items = self._engine.count(None)
        return n_items >= FEWEST_ITEMS and self._suiting(USUAL_K, n_items) is None

    def tunings(self) -> dict[int, Tuning]:
        """Return what was measured, by `k`."""
        self._look()
        return dict(sorted(self._known.items()))

    def tune(self, k: int, *, threads: int = 1, progress: Progress | None = None) -> Tuning:
        """Measure which settings give which recall, and keep them in the store.

        Raises:
            InputError: there are too few items.
        """
        k = check_count(k, name="k")
        with self._lock:
            index = self._engine.whole_index()
            if len(index) <= k + 1:
                raise InputError(f"the store has {len(index):,} items; tuning for k = {k} needs more than {k + 1}")
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
            tuning = tune_index(index, self._requests, rows, logits, queries, k, threads=threads, progress=progress)
            self._known[k] = tuning
            if not self._engine.read_only:
                try:
                    self._engine.write_tuning(k, tuning.as_text())
                except PrivilegeError:
                    # Who may put items, but not write this table, has it in memory only.
                    pass
            return tuning

    def _point(self, k: int, recall: float, n_items: int, *, tunes: bool) -> Point | None:
        """Return the setting that reaches a recall; None: all vectors are to be compared."""
        if n_items < max(FEWEST_ITEMS, 4 * k) or recall >= 1:
            return None
        tuning = self._suiting(k, n_items)
        if tuning is None and tunes:
            tuning = self.tune(max(k, USUAL_K))
        elif tuning is None:
            # One that was made for fewer items is better than none.
            tuning = self._nearest_known(k)
        return None if tuning is None else tuning.point_for(recall)

    def _suiting(self, k: int, n_items: int) -> Tuning | None:
        tuning = self._nearest_known(k)
        if tuning is None or not tuning.suits(n_items):
            self._look()
            tuning = self._nearest_known(k)
        return tuning if tuning is not None and tuning.suits(n_items) else None

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
