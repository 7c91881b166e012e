"""A store whose searches tell what they took, and of whose codes a sample can be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.search import Costs
from hamtarget.store import Id, Store, StoreHits
from hamtarget.store.filters import Filter
from hamtarget.store.live import StoreIndex
from hamtarget.store.searching import Rows, rows_for_nearest, rows_for_search


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What is looked for, the same for all queries of a batch.

    Attributes:
        radius: bits within which hits lie; None: the nearest are looked for.
        limit: most hits of a query; None: all.
        rerank: so many of them, by embedding.
        filter: what their payloads must say.
    """

    radius: int | None
    limit: int | None
    rerank: int | None = None
    filter: Filter | None = None


class CountingStore(Store):
    """A `Store` that also tells candidates and comparisons, which the index counts anyway."""

    def look(
        self, codes: Codes, look: Look, *, embeddings: NDArray[Any] | None = None, threads: int = 1
    ) -> tuple[StoreHits, Costs]:
        """Hits of a batch of queries, and what each of them took.

        Args:
            codes: (queries, n_bits / 8).
            look: what is looked for.
            embeddings: of the queries, where hits are to be re-ranked.
            threads: the queries are shared among so many.
        """
        costs: list[Costs] = []

        def find(index: StoreIndex, limit: int | None, *, rows: Rows | None = None, rank: bool = True) -> Any:
            rerank, queries = (look.rerank, embeddings) if rank else (None, None)
            if look.radius is None:
                hits: Any = index.nearest(
                    codes, limit or 1, filter=rows, rerank=rerank, queries=queries, threads=threads, cost=True
                )
            else:
                hits = index.search(
                    codes,
                    look.radius,
                    limit=limit,
                    filter=rows,
                    rerank=rerank,
                    queries=queries,
                    threads=threads,
                    cost=True,
                )
            costs.append(hits.costs)
            return hits

        def find_all(index: StoreIndex) -> Any:
            # A search that met a change is done again; what counts is the last time.
            costs.clear()
            return find(index, look.limit)

        def find_filtered(connection: Any, index: StoreIndex) -> Any:
            costs.clear()
            wanted = look.filter or {}
            if look.radius is None:
                rows = rows_for_nearest(
                    connection, len(index), wanted, look.limit or 1, nearest=lambda k: find(index, k, rank=False)
                )
            else:
                rows = rows_for_search(connection, len(index), wanted, search=lambda: find(index, None, rank=False))
            return find(index, look.limit, rows=rows)

        if look.filter:
            found = self._engine.search_in_step(find_filtered)
        else:
            found = self._engine.search(find_all)
        if not isinstance(found, StoreHits):
            raise TypeError("a batch of queries gave the hits of one")
        return found, _sum(costs)

    def sample(self, n_rows: int, n_ids: int, seed: int = 0) -> tuple[Codes, list[Id]]:
        """Codes of so many items, drawn without repeats, and ids of some of them; of all where there are fewer."""
        index = self._engine.index
        rows = np.fromiter(index, np.int64, len(index))
        rows = np.random.default_rng(seed).permutation(rows)[:n_rows]
        # Some may have been deleted since the line above.
        rows = np.array([row for row in rows.tolist() if row in index], dtype=np.int64)
        found = index.get(rows)
        ids = self._engine.ids_of(rows[:n_ids])
        return found[0] if isinstance(found, tuple) else found, [] if ids is None else ids.tolist()

    @property
    def index_memory(self) -> int:
        """Bytes that the index takes."""
        return self._engine.index.memory

    @property
    def substrings(self) -> int:
        """Number of tables of the index."""
        return self._engine.index.substrings


def _sum(costs: list[Costs]) -> Costs:
    """What a query took in all: with a filter, there may be several searches."""
    if len(costs) == 1:
        return costs[0]
    return Costs(*(sum(getattr(cost, name) for cost in costs) for name in ("buckets", "candidates", "comparisons")))
