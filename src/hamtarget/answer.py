"""Answers, the same for indexes and stores: hits of one query, hits of a batch, and their costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import repeat
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from hamtarget.items import CodePair, Id, Match

__all__ = ["Answer", "Cost", "Costs", "Hit", "Hits"]

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

    def part(self, start: int, stop: int) -> Costs:
        """Return the costs of some of the queries, from `start` to before `stop`."""
        return Costs(self.buckets[start:stop], self.candidates[start:stop], self.comparisons[start:stop])

    def summed(self, offsets: NDArray[np.int64]) -> Costs:
        """Return the costs of queries of several codes: those of query q lie from `offsets[q]` to `offsets[q + 1]`."""
        sums = (np.concatenate(([0], np.cumsum(part))) for part in (self.buckets, self.candidates, self.comparisons))
        return Costs(*(np.diff(total[offsets]) for total in sums))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the costs of several batches as those of one."""
        names = [each.name for each in fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


def _column(*, default: Any = None) -> Any:
    """Make a column with an element for each hit: `select` and `join` treat all of them alike."""
    return field(default=default, metadata={"column": True})


# No `==`: comparing arrays gives arrays. Compare `offsets`, `ids` and `distances` with numpy.
@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """Hits of a batch of queries: `answer[q]` are those of query q, nearest first.

    The columns hold all hits one after another; those of query q lie from `offsets[q]` to `offsets[q + 1]`.

    Attributes:
        offsets: int64, (queries + 1,).
        rows: int64, (hits,): the numbers by which the index knows the hits; an index's ids are these.
        distances: uint16, (hits,): Hamming distances. Of items that were matched, the smallest of their codes.
        embedding_distances: float32, (hits,), if the hits were re-ranked; they are then ordered by it.
        code_pairs: (hits,), where codes were matched: for each item its pairs of codes within the radius.
        n_item_codes: int64, (hits,), where codes were matched: how many codes each item has.
        n_query_codes: int64, (queries,), where codes were matched: how many codes each query has.
        costs: the work that each query took, if the search was asked to count it.
        names: gives the ids of rows, where a store has ids that are not row numbers.
    """

    offsets: NDArray[np.int64]
    rows: NDArray[np.int64] = field(metadata={"column": True})
    distances: NDArray[np.uint16] = field(metadata={"column": True})
    embedding_distances: NDArray[np.float32] | None = _column()
    code_pairs: NDArray[np.object_] | None = _column()
    n_item_codes: NDArray[np.int64] | None = _column()
    n_query_codes: NDArray[np.int64] | None = None
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
        here = self._hits_of(query)
        ids = self._ids_at(here)
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
        return f"Answer({_count(len(self), 'query', 'queries')}, {_count(len(self.rows), 'hit', 'hits')}{how})"

    def matches(self, query: int) -> tuple[Match, ...]:
        """Return the items that match one query of several codes, and which of the codes matched.

        Raises:
            IndexError: there is no such query.
            ValueError: no codes were matched; see `match_batch`.
        """
        if self.code_pairs is None or self.n_item_codes is None or self.n_query_codes is None:
            raise ValueError("the answer is not that of match_batch; it has hits, and no matches")
        here = self._hits_of(query)
        n_codes = int(self.n_query_codes[query])
        return tuple(
            Match(id, distance, len({p[0] for p in pairs}), n_codes, len({p[1] for p in pairs}), n_item_codes, pairs)
            for id, distance, n_item_codes, pairs in zip(
                self._ids_at(here),
                self.distances[here].tolist(),
                self.n_item_codes[here].tolist(),
                self.code_pairs[here],
                strict=True,
            )
        )

    def with_costs(self, costs: Costs | None) -> Self:
        """Return the same hits with other costs."""
        return replace(self, costs=costs)

    def with_names(self, names: Callable[[NDArray[np.int64]], NDArray[Any]]) -> Self:
        """Return the same hits with ids that `names` gives."""
        return replace(self, names=names)

    def select(self, kept: NDArray[np.int64], offsets: NDArray[np.int64]) -> Self:
        """Return some of the hits, by their places, divided among the queries by other offsets.

        Args:
            kept: places of hits in the columns.
            offsets: of the hits that are kept, (queries + 1,).
        """
        columns: dict[str, Any] = {name: column[kept] for name, column in self._columns().items()}
        return replace(self, offsets=offsets, **columns)

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the hits of one or more batches, of the same kind of search, as those of one batch; ids are rows."""
        counts = np.concatenate([np.diff(part.offsets) for part in parts])
        columns: dict[str, Any] = {
            name: np.concatenate([part._columns()[name] for part in parts]) for name in parts[0]._columns()
        }
        costs = [part.costs for part in parts if part.costs is not None]
        n_codes = [part.n_query_codes for part in parts if part.n_query_codes is not None]
        return cls(
            offsets=np.concatenate(([0], np.cumsum(counts))),
            n_query_codes=np.concatenate(n_codes) if n_codes else None,
            costs=Costs.join(costs) if costs else None,
            **columns,
        )

    def _columns(self) -> dict[str, NDArray[Any]]:
        """Return the columns that there are, by name."""
        found = {each.name: getattr(self, each.name) for each in fields(self) if each.metadata.get("column")}
        return {name: column for name, column in found.items() if column is not None}

    def _hits_of(self, query: int) -> slice:
        if not -len(self) <= query < len(self):
            raise IndexError(f"query {query} of a batch of {len(self):,}")
        query %= len(self)
        return slice(*self.offsets[query : query + 2].tolist())

    def _ids_at(self, here: slice) -> list[Any]:
        rows = self.rows[here]
        ids: list[Any] = (rows if self.names is None else self.names(rows)).tolist()
        return ids


def pairs_column(pairs: Sequence[Sequence[CodePair]]) -> NDArray[np.object_]:
    """Return pairs of codes, those of each item, as a column."""
    column = np.empty(len(pairs), dtype=object)
    for place, of_item in enumerate(pairs):
        column[place] = tuple(of_item)
    return column


def bytes_in_words(n_bytes: int) -> str:
    """Return a number of bytes as people write it: 1.5 MB."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} bytes"


def _count(number: int, one: str, many: str) -> str:
    return f"{number:,} {one if number == 1 else many}"
