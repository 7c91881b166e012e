"""Matching by several codes, in the slow lane: a match is many searches, and clients take turns with them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hamtarget.items import Match
from hamtarget.query import RunningBounds, Work
from hamtarget.serve.lanes.jobs import Encoded
from hamtarget.serve.lanes.showing import Shown
from hamtarget.serve.lanes.work import ServiceWork
from hamtarget.serve.messages.match_messages import MatchRequest

# Of a pair in memory: three numbers, and as text of the answer.
_PAIR_BYTES = 32


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Items that were matched.

    Attributes:
        queries: codes of the query.
        radius: within which they were matched.
        matches: the items.
        shown: what is told of them, if it was asked for; None for one that was deleted meanwhile.
        ms: milliseconds in the index.
    """

    queries: Encoded
    radius: int
    matches: tuple[Match, ...]
    shown: list[Shown | None]
    ms: float


def match_slowly(service: ServiceWork, asked: MatchRequest, queries: Encoded, bounds: RunningBounds) -> Matched:
    """Match the codes of a query within the bounds of its request, and read the payloads of what is found.

    Raises:
        LimitError: it reached one of them.
    """
    radius = service.store.radius if asked.radius is None else asked.radius
    began = time.perf_counter()
    matches = service.store.match(
        codes=queries.codes,
        radius=radius,
        at_least=asked.at_least,
        limit=asked.limit,
        filter=asked.payload_filter,
        work=Work(bounds, service.slow_threads),
    )
    ms = 1000 * (time.perf_counter() - began)
    bounds.take(bytes=_PAIR_BYTES * sum(len(match.pairs) for match in matches))
    shown: list[Shown | None] = []
    if asked.payload and matches:
        pieces = service.shown_in_pieces([match.id for match in matches], bounds)
        shown = [each for piece in pieces for each in piece]
    return Matched(queries, radius, matches, shown, ms)
