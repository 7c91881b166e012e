"""A store whose searches tell what they took, and of whose codes a sample can be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import Codes
from hamtarget.errors import InputError
from hamtarget.search import Costs, Hits, MultiIndex
from hamtarget.store import Id, Store, StoreHits
from hamtarget.store.backend import Backend
from hamtarget.store.filters import Filter
from hamtarget.store.sqlite.folder import FolderEngine
from hamtarget.store.sqlite.searching import Rows, rows_for_nearest, rows_for_search


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """What is looked for, the same for all queries of a batch.

    Attributes:
        radius: bits within which hits lie; None: the nearest are looked for.
        limit: most hits of a query.
        rerank: so many of them, by embedding.
        filter: what their payloads must say.
    """

    radius: int | None
    limit: int
    rerank: int | None = None
    filter: Filter | None = None


class CountingStore(Store):
    """A `Store` in a folder that also tells candidates and comparisons, which the index counts anyway."""

    def __init__(self, engine: Backend) -> None:
        """Use `CountingStore.open`.

        Raises:
            InputError: the store is not in a folder.
        """
        super().__init__(engine)
        if not isinstance(engine, FolderEngine):
            engine.close()
            raise InputError(f"{engine.path} is in a database; expected a store in a folder: only those are served")
        self._folder = engine

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
        # A search that meets a change is done again; what counts is the last time.
        counted: list[_CountedIndex] = []

        def find(index: _CountedIndex, rows: Rows | None = None) -> Hits:
            counted.append(index)
            how = _How(look.limit, rows, look.rerank, embeddings, threads)
            return (
                index.nearest(codes, look.limit, how) if look.radius is None else index.search(codes, look.radius, how)
            )

        def find_all(index: MultiIndex, _asked: object) -> Hits:
            return find(_CountedIndex(index))

        def find_filtered(connection: Any, index: MultiIndex) -> Hits:
            watched = _CountedIndex(index)
            as_index = cast(MultiIndex, watched)
            if look.radius is None:
                rows = rows_for_nearest(connection, as_index, look.filter or {}, codes, look.limit)
            else:
                rows = rows_for_search(connection, as_index, look.filter or {}, codes, look.radius)
            return find(watched, rows)

        found = self._folder.search_in_step(find_filtered) if look.filter else self._folder.search(find_all, ())
        if not isinstance(found, StoreHits):
            raise TypeError("a batch of queries gave the hits of one")
        return found, counted[-1].costs

    def sample(self, n_rows: int, n_ids: int, seed: int = 0) -> tuple[Codes, list[Id]]:
        """Codes of so many items, drawn without repeats, and ids of some of them; of all where there are fewer."""
        index = self._folder.index
        rows = np.fromiter(index, np.int64, len(index))
        rows = np.random.default_rng(seed).permutation(rows)[:n_rows]
        # Some may have been deleted since the line above.
        rows = np.array([row for row in rows.tolist() if row in index], dtype=np.int64)
        found = index.get(rows)
        ids = self._folder.ids_of(rows[:n_ids])
        return found[0] if isinstance(found, tuple) else found, list(ids.values())

    @property
    def index_memory(self) -> int:
        """Bytes that the index takes."""
        return self._folder.index.memory

    @property
    def substrings(self) -> int:
        """Number of tables of the index."""
        return self._folder.index.substrings


class _How(NamedTuple):
    """The rest of what the index is told."""

    limit: int | None = None
    filter: Rows | None = None
    rerank: int | None = None
    queries: NDArray[Any] | None = None
    threads: int = 1


class _CountedIndex:
    """An index that adds up what its searches of one batch take: with a filter, there may be several."""

    def __init__(self, index: MultiIndex) -> None:
        self._index = index
        self._costs: list[Costs] = []

    def __len__(self) -> int:
        return len(self._index)

    def search(self, codes: ArrayLike, radius: int | None, how: _How = _How()) -> Hits:  # noqa: B008
        limit, filter, rerank, queries, threads = how
        return self._counted(
            self._index.search(
                codes, radius, limit=limit, filter=filter, rerank=rerank, queries=queries, threads=threads, cost=True
            )
        )

    def nearest(self, codes: ArrayLike, k: int, how: _How = _How()) -> Hits:  # noqa: B008
        _, filter, rerank, queries, threads = how
        return self._counted(
            self._index.nearest(codes, k, filter=filter, rerank=rerank, queries=queries, threads=threads, cost=True)
        )

    @property
    def costs(self) -> Costs:
        if len(self._costs) == 1:
            return self._costs[0]
        names = ("buckets", "candidates", "comparisons")
        return Costs(*(np.sum([getattr(cost, name) for cost in self._costs], axis=0) for name in names))

    def _counted(self, hits: object) -> Hits:
        if not isinstance(hits, Hits) or hits.costs is None:
            raise TypeError("a batch of queries gave the hits of one")
        self._costs.append(hits.costs)
        return hits
