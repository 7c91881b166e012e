"""Jobs of the lanes: what requests ask for and get, and how jobs are joined and divided."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.answer import Answer, Costs
from hamtarget.codes import Codes, unpack
from hamtarget.items import Id, Item, Payload
from hamtarget.serve.lanes.memory import Holding
from hamtarget.serve.lanes.showing import Shown
from hamtarget.serve.messages.search_messages import AnySearch, Histogram, NearestRequest, ProbeRequest, SearchRequest

Input = bytes | str | list[float]
"""Bytes of an image file, a text, or a vector."""

# A union that was written where it is used would be made anew for each request.
_ONE = (SearchRequest, NearestRequest, ProbeRequest)


@dataclass(frozen=True, slots=True, eq=False)
class Encoded:
    """Inputs of one request, encoded.

    Attributes:
        codes: (inputs, n_bits / 8).
        logits: (inputs, n_bits); None if codes were given.
        embeddings: (inputs, n_dims), if the store keeps embeddings and these are known.
        ms: milliseconds in the encoder, for the whole batch.
    """

    codes: Codes
    logits: NDArray[np.float32] | None = None
    embeddings: NDArray[Any] | None = None
    ms: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class EncodeJob:
    """Inputs to encode, and the memory that the request holds: pixels are taken from it."""

    inputs: Sequence[Input]
    holding: Holding | None = None


@dataclass(slots=True, eq=False)
class SearchJob:
    """A request to search.

    Attributes:
        asked: the request, with the radius and the budget of the search.
        queries: its queries.
        cost_key: what the cost of a query depends on.
        n_tries: times that it was tried in the quick lane and given up.
    """

    asked: AnySearch
    queries: Encoded
    cost_key: tuple[object, ...] = ()
    n_tries: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Hits of one request.

    Attributes:
        job: the request and its queries, with the radius and the budget of the search.
        hits: hits of the queries.
        costs: costs of the queries.
        ms: milliseconds in the index, for the whole batch.
        shown: what is told of the hits, if asked for; None for one that was deleted meanwhile.
        histogram: items at each distance from the query, if asked for.
    """

    job: SearchJob
    hits: Answer
    costs: Costs
    ms: float
    shown: list[Shown | None] = field(default_factory=list)
    histogram: Histogram | None = None


@dataclass(frozen=True, slots=True, eq=False)
class PutJob:
    """Items of one request, as `Store.put_rows` takes them; and how many codes each has, where some have several."""

    ids: list[Id]
    codes: Codes
    embeddings: NDArray[Any] | None
    payloads: list[dict[str, Any] | None]
    counts: list[int] | None = None

    def items(self) -> Iterator[Item]:
        """Yield the items, as `Store.put` takes them."""
        start = 0
        for id, n_codes, payload in zip(self.ids, self.counts or [1] * len(self.ids), self.payloads, strict=True):
            here = slice(start, start + n_codes)
            embeddings = None if self.embeddings is None else self.embeddings[here]
            yield Item(id, codes=self.codes[here], embeddings=embeddings, payload=payload)
            start += n_codes


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """An id to delete."""

    id: Id


@dataclass(frozen=True, slots=True)
class PictureJob:
    """A picture to draw: its item's payload, the most pixels of its sides, and the memory that the request holds."""

    payload: Payload
    side: int
    holding: Holding | None = None


def total(counts: NDArray[np.int64]) -> int:
    """Return the sum of the counts of one or more queries."""
    # Most requests have one, and numpy takes long to add up a single number.
    return int(counts[0] if len(counts) == 1 else counts.sum())


def asks_for_items(asked: AnySearch) -> bool:
    """Return True if a request asks for payloads or codes of its hits."""
    return isinstance(asked, _ONE) and (asked.payload or asked.codes)


def needs_items(found: Found) -> bool:
    """Return True if hits were asked for with payloads or codes, which are not there yet."""
    return asks_for_items(found.job.asked) and not found.shown and len(found.hits.rows) > 0


def join_found(job: SearchJob, parts: list[Found]) -> Found:
    """Return what was found for the parts of a job as that of the whole."""
    if len(parts) == 1:
        return replace(parts[0], job=job)
    hits = Answer.join([part.hits for part in parts])
    costs = hits.costs
    if costs is None:
        raise TypeError("the store did not tell the costs of a search")
    if any(part.hits.names is not None for part in parts):
        hits = hits.with_names(_Names([part.hits for part in parts]))
    return Found(job, hits, costs, sum(part.ms for part in parts))


def part_of(job: SearchJob, start: int, stop: int) -> SearchJob:
    """Return the search for some of the queries of a job."""
    queries = job.queries
    return replace(
        job,
        queries=Encoded(
            queries.codes[start:stop],
            None if queries.logits is None else queries.logits[start:stop],
            None if queries.embeddings is None else queries.embeddings[start:stop],
            queries.ms,
        ),
    )


class _Names:
    """Ids of the rows of several batches of hits."""

    def __init__(self, parts: list[Answer]) -> None:
        ids = [part.ids for part in parts]
        self._dtype = np.int64 if all(part.dtype.kind == "i" for part in ids) else np.object_
        self._ids: dict[int, Id] = {}
        for part, of_part in zip(parts, ids, strict=True):
            self._ids.update(zip(part.rows.tolist(), of_part.tolist(), strict=True))

    def __call__(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        array = np.empty(len(rows), dtype=self._dtype)
        array[:] = [self._ids[row] for row in rows.tolist()]
        return array


def join_encoded(parts: list[Encoded]) -> Encoded:
    """Return the queries of several jobs as one batch."""
    if len(parts) == 1:
        return parts[0]
    embeddings = [part.embeddings for part in parts if part.embeddings is not None]
    return Encoded(
        np.concatenate([part.codes for part in parts]),
        None if all(part.logits is None for part in parts) else np.concatenate([logits_of(part) for part in parts]),
        np.concatenate(embeddings) if len(embeddings) == len(parts) else None,
        sum(part.ms for part in parts),
    )


def logits_of(queries: Encoded) -> NDArray[np.float32]:
    """Return the logits of queries; each bit of a code that was given counts alike."""
    if queries.logits is not None:
        return queries.logits
    bits = unpack(queries.codes, 8 * queries.codes.shape[1])
    return 2 * bits.astype(np.float32) - 1


def part_of_hits(hits: Answer, start: int, stop: int) -> Answer:
    """Return the hits of some queries of a batch."""
    offsets = hits.offsets[start : stop + 1]
    part = hits.select(np.arange(offsets[0], offsets[-1]), offsets - offsets[0])
    return part if hits.costs is None else part.with_costs(hits.costs.part(start, stop))
