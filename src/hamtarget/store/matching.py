"""Matching of items by several codes: from hits of a query's codes to items, and which of their codes were matched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import Codes
from hamtarget.errors import InputError
from hamtarget.items import MAX_CODES, CodePair, Match
from hamtarget.search.requests import check_count, many_codes
from hamtarget.search.results import BatchHits
from hamtarget.store.code_rows import item_rows, n_codes_of, positions_of

_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Which of the items that have a matched code are wanted.

    Attributes:
        at_least: fewest of the query's codes that match a code of the item.
        limit: most items; all of them where it is None.
    """

    at_least: int
    limit: int | None


def check_threshold(at_least: int, limit: int | None, n_codes: int) -> Threshold:
    """Return the threshold that a caller asks for, with a query of so many codes.

    Raises:
        InputError: a number is out of range. DtypeError: one is not an integer.
    """
    checked = check_count(at_least, name="at_least")
    if checked > n_codes:
        raise InputError(
            f"at_least is {checked}, and the query has {n_codes} codes, of which no more can match; ask for fewer"
        )
    return Threshold(checked, None if limit is None else check_count(limit, name="limit"))


def query_codes(codes: ArrayLike, n_bits: int) -> Codes:
    """Return the codes of one query, (codes, n_bits / 8).

    Raises:
        InputError: there are none, or more than an item has.
        ShapeError, DtypeError: they are no codes of so many bits.
    """
    checked = many_codes(codes, n_bits, instead="search")
    if not 1 <= len(checked) <= MAX_CODES:
        raise InputError(f"the query has {len(checked):,} codes; expected 1 to {MAX_CODES}")
    return checked


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Items that were matched, by their rows.

    Attributes:
        hits: the first row of each item and its smallest distance, as hits of one query.
        n_query_codes: codes of the query.
        starts: where the pairs of each item begin.
        counts: how many pairs each item has.
        queries: of all pairs, which code of the query it is.
        positions: of all pairs, which code of the item it is.
        distances: of all pairs.
    """

    hits: BatchHits
    n_query_codes: int
    starts: NDArray[np.int64]
    counts: NDArray[np.int64]
    queries: NDArray[np.int64]
    positions: NDArray[np.int64]
    distances: NDArray[np.uint16]

    def named(self, ids: list[Any]) -> tuple[Match, ...]:
        """Return the matches of items that have these ids."""
        found = []
        rows, best = self.hits.rows.tolist(), self.hits.distances.tolist()
        for place, (start, count) in enumerate(zip(self.starts.tolist(), self.counts.tolist(), strict=True)):
            here = slice(start, start + count)
            queries, positions = self.queries[here].tolist(), self.positions[here].tolist()
            pairs = sorted(map(CodePair, queries, positions, self.distances[here].tolist()))
            found.append(
                Match(
                    ids[place],
                    best[place],
                    len(set(queries)),
                    self.n_query_codes,
                    len(set(positions)),
                    n_codes_of(rows[place]),
                    tuple(pairs),
                )
            )
        return tuple(found)


def match_items(hits: BatchHits, threshold: Threshold) -> Matched:
    """Return the items that hits of a query's codes belong to, if enough of the query's codes matched.

    Those with most matched codes of the query come first, then those at the smallest distance, then by row.
    """
    items = item_rows(hits.rows)
    order = np.argsort(items, kind="stable")
    items = items[order]
    queries = np.repeat(np.arange(len(hits)), np.diff(hits.offsets))[order]
    distances = hits.distances[order]
    is_first = np.ones(len(items), dtype=bool)
    np.not_equal(items[1:], items[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    if len(starts):
        matched = np.bitwise_count(np.bitwise_or.reduceat(_ONE << queries.astype(np.uint64), starts)).astype(np.int64)
        best = np.minimum.reduceat(distances, starts)
    else:
        matched, best = starts, distances
    kept = np.flatnonzero(matched >= threshold.at_least)
    kept = kept[np.lexsort((best[kept], -matched[kept]))][: threshold.limit]
    counts = np.diff(starts, append=len(items))[kept]
    found = BatchHits(np.array([0, len(kept)]), items[starts[kept]], best[kept])
    return Matched(found, len(hits), starts[kept], counts, queries, positions_of(hits.rows[order]), distances)
