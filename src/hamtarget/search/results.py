"""What a search gives back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Hit:
    """A stored code that was found: its id, and its Hamming distance to the query."""

    id: int
    distance: int


# No `==`: comparing arrays gives arrays. Compare `offsets`, `ids` and `distances` with numpy.
@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """Hits of a batch of queries: `hits[q]` are those of query q, by distance and then id.

    The arrays hold all hits one after another; those of query q lie from `offsets[q]` to `offsets[q + 1]`.

    Attributes:
        offsets: int64, (queries + 1,).
        ids: int64, (hits,).
        distances: uint16, (hits,).
    """

    offsets: NDArray[np.int64]
    ids: NDArray[np.int64]
    distances: NDArray[np.uint16]

    def __len__(self) -> int:
        """Number of queries."""
        return len(self.offsets) - 1

    def __getitem__(self, query: int) -> tuple[Hit, ...]:
        """Hits of one query.

        Raises:
            IndexError: there is no such query.
        """
        if not -len(self) <= query < len(self):
            raise IndexError(f"query {query} of a batch of {len(self):,}")
        start, stop = self.offsets[query % len(self) :][:2]
        found = zip(self.ids[start:stop].tolist(), self.distances[start:stop].tolist(), strict=True)
        return tuple(Hit(id, distance) for id, distance in found)

    def __iter__(self) -> Iterator[tuple[Hit, ...]]:
        """Hits of each query in turn."""
        return (self[query] for query in range(len(self)))
