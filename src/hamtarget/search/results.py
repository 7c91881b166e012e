"""Results of searches, the same for indexes and stores: hits of one query, hits of a batch, and their costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hamtarget.items import Id

# Hits of one query that its `repr` shows.
_SHOWN = 3


class Hit(NamedTuple):
    """A row of an index, or an item of a store, that was found."""

    id: Id
    """The row's or item's id: an integer, or in a store perhaps a string."""
    distance: int
    """Hamming distance to the query."""
    embedding_distance: float | None = None
    """Distance of the embeddings, where hits were re-ranked by it."""

    def __repr__(self) -> str:
        """Return the fields in a line, without an embedding distance that there is not."""
        ranked = "" if self.embedding_distance is None else f", embedding_distance={self.embedding_distance:.6g}"
        return f"Hit(id={self.id!r}, distance={self.distance}{ranked})"


class Cost(NamedTuple):
    """Work that one query took."""

    buckets: int
    """Buckets looked up."""
    candidates: int
    """Rows read; a row in several buckets counts in each."""
    comparisons: int
    """Embedding distances computed."""


class Hits(tuple[Hit, ...]):
    """Hits of one query, a tuple of `Hit`, nearest first.

    Attributes:
        cost: the work that the query took, if the search was asked to count it.
    """

    cost: Cost | None = None

    def __repr__(self) -> str:
        """Return the number of hits and the first few of them."""
        shown = [repr(hit) for hit in self[:_SHOWN]] + ["..."] * (len(self) > _SHOWN)
        return f"Hits({_count(len(self), 'hit', 'hits')}{': ' if shown else ''}{', '.join(shown)})"


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """Work that the queries of a batch took: int64 of shape (queries,) each; see `Cost`."""

    buckets: NDArray[np.int64]
    candidates: NDArray[np.int64]
    comparisons: NDArray[np.int64]

    def __getitem__(self, query: int) -> Cost:
        """Return the cost of one query."""
        return Cost(int(self.buckets[query]), int(self.candidates[query]), int(self.comparisons[query]))

    def __add__(self, other: Costs) -> Costs:
        """Return the sum, query by query, of two searches for the same queries."""
        return Costs(
            self.buckets + other.buckets, self.candidates + other.candidates, self.comparisons + other.comparisons
        )


# No `==`: comparing arrays gives arrays. Compare `offsets`, `ids` and `distances` with numpy.
@dataclass(frozen=True, eq=False, repr=False)
class BatchHits:
    """Hits of a batch of queries: `hits[q]` are those of query q, nearest first.

    The arrays hold all hits one after another; those of query q lie from `offsets[q]` to `offsets[q + 1]`.

    Attributes:
        offsets: int64, (queries + 1,).
        rows: int64, (hits,): the numbers by which the index knows the hits; an index's ids are these.
        distances: uint16, (hits,): Hamming distances.
        embedding_distances: float32, (hits,), if the hits were re-ranked; they are then ordered by it.
        costs: the work that each query took, if the search was asked to count it.
        names: gives the ids of rows, where a store has ids that are not row numbers.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.uint16]
    embedding_distances: NDArray[np.float32] | None = None
    costs: Costs | None = None
    names: Callable[[NDArray[np.int64]], NDArray[Any]] | None = None

    @cached_property
    def ids(self) -> NDArray[Any]:
        """Ids of all hits, (hits,): int64, or an array of str and int objects if a store has other ids.

        Made when first asked for: a million Python objects take longer than finding them.
        """
        return self.rows if self.names is None else self.names(self.rows)

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> Hits:
        """Return the hits of one query.

        Raises:
            IndexError: there is no such query.
        """
        if not -len(self) <= query < len(self):
            raise IndexError(f"query {query} of a batch of {len(self):,}")
        query %= len(self)
        here = slice(*self.offsets[query : query + 2].tolist())
        rows = self.rows[here]
        ids = (rows if self.names is None else self.names(rows)).tolist()
        closeness = repeat(None) if self.embedding_distances is None else self.embedding_distances[here].tolist()
        hits = Hits(map(Hit, ids, self.distances[here].tolist(), closeness))
        if self.costs is not None:
            hits.cost = self.costs[query]
        return hits

    def __iter__(self) -> Iterator[Hits]:
        """Yield the hits of each query in turn."""
        return (self[query] for query in range(len(self)))

    def __repr__(self) -> str:
        """Return the numbers of queries and hits in a line."""
        how = "" if self.embedding_distances is None else ", re-ranked"
        return f"BatchHits({_count(len(self), 'query', 'queries')}, {_count(len(self.rows), 'hit', 'hits')}{how})"

    def with_costs(self, costs: Costs | None) -> Self:
        """Return the same hits with other costs."""
        return replace(self, costs=costs)

    def with_names(self, names: Callable[[NDArray[np.int64]], NDArray[Any]]) -> Self:
        """Return the same hits with ids that `names` gives."""
        return replace(self, names=names)


def join_hits(parts: Sequence[BatchHits]) -> BatchHits:
    """Return the hits of one or more batches, of the same kind of search, as those of one batch; ids are rows."""
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    ranked = [part.embedding_distances for part in parts if part.embedding_distances is not None]
    costs = [part.costs for part in parts if part.costs is not None]
    return BatchHits(
        np.concatenate(([0], np.cumsum(counts))),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.distances for part in parts]),
        np.concatenate(ranked) if ranked else None,
        Costs(
            np.concatenate([cost.buckets for cost in costs]),
            np.concatenate([cost.candidates for cost in costs]),
            np.concatenate([cost.comparisons for cost in costs]),
        )
        if costs
        else None,
    )


def bytes_in_words(n_bytes: int) -> str:
    """Return a number of bytes as people write it: 1.5 MB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} bytes"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
