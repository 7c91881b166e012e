"""A store whose searches tell what they took, and of whose codes a sample can be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.errors import InputError
from hamtarget.filters import Filter
from hamtarget.items import Id
from hamtarget.search import BatchHits, Costs
from hamtarget.store import Store
from hamtarget.store.backend import Backend
from hamtarget.store.sqlite.engine import FolderEngine


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
    ) -> tuple[BatchHits, Costs]:
        """Hits of a batch of queries, and what each of them took.

        Args:
            codes: (queries, n_bits / 8).
            look: what is looked for.
            embeddings: of the queries, where hits are to be re-ranked.
            threads: the queries are shared among so many.
        """
        if look.radius is None:
            found = self.nearest_batch(
                k=look.limit,
                codes=codes,
                filter=look.filter,
                rerank=look.rerank,
                embedding=embeddings,
                threads=threads,
                cost=True,
            )
        else:
            found = self.search_batch(
                radius=look.radius,
                codes=codes,
                limit=look.limit,
                filter=look.filter,
                rerank=look.rerank,
                embedding=embeddings,
                threads=threads,
                cost=True,
            )
        if found.costs is None:
            raise TypeError("the store did not count")
        return found, found.costs

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
