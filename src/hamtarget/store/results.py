"""What a store gives back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Id = str | int
"""An item's name: a string, or an integer that int64 holds. 1 and "1" are two ids."""


class StoreHit(NamedTuple):
    """An item that was found."""

    id: Id
    distance: int
    """Hamming distance to the query."""
    embedding_distance: float | None = None
    """Distance of the embeddings, where hits were re-ranked by it."""


class StoreQueryHits(tuple[StoreHit, ...]):
    """Hits of one query, as a tuple."""


def same(rows: NDArray[np.int64]) -> NDArray[Any]:
    """Row numbers that are their own ids."""
    return rows


# No `==`: comparing arrays gives arrays.
@dataclass(frozen=True, eq=False)
class StoreHits:
    """Hits of a batch of queries: `hits[q]` are those of query q, nearest first.

    The arrays hold all hits one after another; those of query q lie from `offsets[q]` to `offsets[q + 1]`.

    Attributes:
        offsets: int64, (queries + 1,).
        rows: int64, (hits,): the numbers by which the index knows the items.
        distances: uint16, (hits,): Hamming distances.
        embedding_distances: float32, (hits,), if the hits were re-ranked; they are then ordered by it.
        names: ids of rows that were hits; they are in memory, whatever happens to the store.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.uint16]
    embedding_distances: NDArray[np.float32] | None = None
    names: Callable[[NDArray[np.int64]], NDArray[Any]] = field(default=same, repr=False)

    @cached_property
    def ids(self) -> NDArray[Any]:
        """(hits,): int64 where all ids are integers below 2**62, otherwise an array of str and int objects.

        Made when first asked for: a million Python objects take longer than finding them.
        """
        return self.names(self.rows)

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> StoreQueryHits:
        """Hits of one query.

        Raises:
            IndexError: there is no such query.
        """
        if not -len(self) <= query < len(self):
            raise IndexError(f"query {query} of a batch of {len(self):,}")
        query %= len(self)
        here = slice(*self.offsets[query : query + 2].tolist())
        closeness = repeat(None) if self.embedding_distances is None else self.embedding_distances[here].tolist()
        ids = self.names(self.rows[here]).tolist()
        return StoreQueryHits(map(StoreHit, ids, self.distances[here].tolist(), closeness))

    def __iter__(self) -> Iterator[StoreQueryHits]:
        """Hits of each query in turn."""
        return (self[query] for query in range(len(self)))


class Pair(NamedTuple):
    """Two items that lie near each other; `a` was stored before `b`, or has the smaller integer id."""

    a: Id
    b: Id
    distance: int
    """Hamming distance between them."""


@dataclass(frozen=True, slots=True)
class StoreStats:
    """What a store holds.

    Attributes:
        items: number of items.
        sequence: number of the last change.
        n_bits: bits of a code.
        radius: what a search without a radius of its own looks within.
        snapshot_sequence: the last change that the saved index knows of; None where there is no saved index.
        index_bytes: memory that the index takes.
        disk_bytes: bytes of all files of the store.
    """

    items: int
    sequence: int
    n_bits: int
    radius: int
    snapshot_sequence: int | None
    index_bytes: int
    disk_bytes: int


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What `verify` found.

    Attributes:
        items: rows that were compared.
        problems: one line for each thing that is wrong, the first hundred; empty where everything is as it should be.
        n_problems: how many there are.
    """

    items: int
    problems: tuple[str, ...]
    n_problems: int

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return self.n_problems == 0
