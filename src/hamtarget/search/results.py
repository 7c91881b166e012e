"""What a search gives back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Hit(NamedTuple):
    """A stored code that was found."""

    id: int
    distance: int
    """Hamming distance to the query."""
    embedding_distance: float | None = None
    """Distance of the embeddings, where hits were re-ranked by it."""


class Cost(NamedTuple):
    """What one query took."""

    buckets: int
    """Buckets looked up."""
    candidates: int
    """Rows read, a row in several buckets counted in each."""
    comparisons: int
    """Embedding distances computed."""


class QueryHits(tuple[Hit, ...]):
    """Hits of one query, as a tuple.

    Attributes:
        cost: what the query took, if the search was asked to count.
    """

    cost: Cost | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What the queries of a batch took, int64 of shape (queries,) each; see `Cost`."""

    buckets: NDArray[np.int64]
    candidates: NDArray[np.int64]
    comparisons: NDArray[np.int64]


# No `==`: comparing arrays gives arrays. Compare `offsets`, `ids` and `distances` with numpy.
@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Hits of a batch of queries: `hits[q]` are those of query q, by distance and then id.

    The arrays hold all hits one after another; those of query q lie from `offsets[q]` to `offsets[q + 1]`.

    Attributes:
        offsets: int64, (queries + 1,).
        ids: int64, (hits,).
        distances: uint16, (hits,): Hamming distances.
        embedding_distances: float32, (hits,), if the hits were re-ranked; they are then ordered by it.
        costs: what each query took, if the search was asked to count.
    """

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    distances: NDArray[np.uint16]
    embedding_distances: NDArray[np.float32] | None = None
    costs: Costs | None = None

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> QueryHits:
        """Hits of one query.

        Raises:
            IndexError: there is no such query.
        """
        if not -len(self) <= query < len(self):
            raise IndexError(f"query {query} of a batch of {len(self):,}")
        query %= len(self)
        here = slice(*self.offsets[query : query + 2].tolist())
        ids, distances = self.ids[here].tolist(), self.distances[here].tolist()
        closeness = repeat(None) if self.embedding_distances is None else self.embedding_distances[here].tolist()
        found = QueryHits(map(Hit, ids, distances, closeness))
        if self.costs is not None:
            counts = (self.costs.buckets, self.costs.candidates, self.costs.comparisons)
            found.cost = Cost(*(int(count[query]) for count in counts))
        return found

    def __iter__(self) -> Iterator[QueryHits]:
        """Hits of each query in turn."""
        return (self[query] for query in range(len(self)))
