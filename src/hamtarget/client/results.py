"""Results of a service, in the shape of the library's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hamtarget.items import Id, Match


class ServedHit(NamedTuple):
    """An item that was found; `code` and `payload` are None unless they were asked for.

    An item with several codes has them in `codes`, and none in `code`.
    """

    id: Id
    distance: int
    """Hamming distance to the query."""
    embedding_distance: float | None = None
    """Distance of the embeddings, where hits were re-ranked by it."""
    code: bytes | None = None
    payload: dict[str, Any] | None = None
    codes: tuple[bytes, ...] | None = None


class ServedMember(NamedTuple):
    """An item of a group; `payload` is None unless it was asked for."""

    id: Id
    distance: int
    """Hamming distance to the representative of the group."""
    payload: dict[str, Any] | None = None


class ServedGroup(NamedTuple):
    """A group of two or more items; see `hamtarget.store.groups.results.Group`."""

    id: int
    size: int
    representative: Id
    members: tuple[ServedMember, ...]

    @property
    def is_capped(self) -> bool:
        """True if the group has more items than are given here."""
        return len(self.members) < self.size


class ServedGroups(NamedTuple):
    """A page of groups, largest first, then by id; `after=next` gives the next page, unless `next` is None."""

    radius: int
    linkage: str
    n_groups: int
    n_items: int
    groups: tuple[ServedGroup, ...]
    next: int | None


class ServedCost(NamedTuple):
    """Work that one query took: buckets looked up, rows read, embedding distances computed."""

    buckets: int
    candidates: int
    comparisons: int


class ServedHits(tuple[ServedHit, ...]):
    """Hits of one query, a tuple of `ServedHit`, nearest first.

    Attributes:
        cost: the work that the query took: buckets, candidates, comparisons.
        code: the code of the query; empty for a query of a batch.
        truncated: True if there are as many hits as the limit allows, and perhaps more.
        encode_ms: milliseconds in the encoder, for the service's batch with this query.
        index_ms: milliseconds in the index, for the service's batch with this query.
    """

    cost: ServedCost
    code: bytes = b""
    truncated: bool = False
    encode_ms: float = 0.0
    index_ms: float = 0.0


class ServedMatch(Match):
    """An item that was matched by codes of a query.

    Attributes:
        payload: None unless it was asked for.
    """

    payload: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ServedBatch:
    """Hits of a batch of queries: `batch[q]` are those of query q, nearest first.

    The lists hold all hits one after another; those of query q lie from `offsets[q]` to `offsets[q + 1]`.

    Attributes:
        offsets: queries + 1 numbers.
        ids: ids of all hits.
        distances: Hamming distances of all hits.
        embedding_distances: distances of the embeddings, if the hits were re-ranked; they are then ordered by it.
        costs: the work of each query: buckets, candidates, comparisons.
        encode_ms: milliseconds in the encoder.
        index_ms: milliseconds in the index.
    """

    offsets: list[int]
    ids: list[Id]
    distances: list[int]
    embedding_distances: list[float] | None
    costs: list[ServedCost]
    encode_ms: float
    index_ms: float

    def __len__(self) -> int:
        """Return the number of queries."""
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> ServedHits:
        """Return the hits of one query.

        Raises:
            IndexError: there is no such query.
        """
        if not -len(self) <= query < len(self):
            raise IndexError(f"query {query} of a batch of {len(self):,}")
        query %= len(self)
        places = range(self.offsets[query], self.offsets[query + 1])
        closeness = self.embedding_distances
        hits = ServedHits(
            ServedHit(self.ids[place], self.distances[place], None if closeness is None else closeness[place])
            for place in places
        )
        hits.cost = self.costs[query]
        hits.encode_ms, hits.index_ms = self.encode_ms, self.index_ms
        return hits

    def __iter__(self) -> Iterator[ServedHits]:
        """Yield the hits of each query in turn."""
        return (self[query] for query in range(len(self)))
