"""Matching of items by several codes: from hits of a query's codes to items, and which of their codes were matched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hamtarget.codes import Codes
from hamtarget.errors import InputError
from hamtarget.items import MAX_CODES, CodePair, Match
from hamtarget.search.requests import check_count, many_codes
from hamtarget.search.results import BatchHits
from hamtarget.store.items.code_rows import item_row, item_rows, n_codes_of

_ONE = np.uint64(1)
# So many hits are grouped by a dictionary, and more by arrays.
_FEW_HITS = 256


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
    check_n_codes(checked)
    return checked


def check_n_codes(codes: Codes) -> None:
    """Check that a query has no more codes than an item can have, and at least one.

    Raises:
        InputError: it has.
    """
    if not 1 <= len(codes) <= MAX_CODES:
        raise InputError(f"the query has {len(codes):,} codes; expected 1 to {MAX_CODES}")


@dataclass(frozen=True, slots=True, eq=False)
class Matched:
    """Items that were matched, by their rows.

    Attributes:
        hits: the first row of each item and its smallest distance, as hits of one query.
        n_query_codes: codes of the query.
        pairs: of each item, by the query's code and then the item's.
    """

    hits: BatchHits
    n_query_codes: int
    pairs: list[list[CodePair]]

    def named(self, ids: list[Any]) -> tuple[Match, ...]:
        """Return the matches of items that have these ids."""
        return tuple(
            Match(
                id,
                distance,
                len({pair[0] for pair in pairs}),
                self.n_query_codes,
                len({pair[1] for pair in pairs}),
                n_codes_of(row),
                tuple(pairs),
            )
            for id, row, distance, pairs in zip(
                ids, self.hits.rows.tolist(), self.hits.distances.tolist(), self.pairs, strict=True
            )
        )


def match_items(hits: BatchHits, threshold: Threshold) -> Matched:
    """Return the items that hits of a query's codes belong to, if enough of the query's codes matched.

    Those with most matched codes of the query come first, then those at the smallest distance, then by row.
    """
    rows, best, pairs = (_match_few if len(hits.rows) <= _FEW_HITS else _match_many)(hits, threshold)
    found = BatchHits(np.array([0, len(rows)]), np.array(rows, dtype=np.int64), np.array(best, dtype=np.uint16))
    return Matched(found, len(hits), pairs)


_Chosen = tuple[list[int], list[int], list[list[CodePair]]]
"""First rows of items, their smallest distances, and their pairs."""


def _match_few(hits: BatchHits, threshold: Threshold) -> _Chosen:
    """Do `match_items` by a dictionary: for few hits, each call of numpy would take longer."""
    rows, distances, offsets = hits.rows.tolist(), hits.distances.tolist(), hits.offsets.tolist()
    groups: dict[int, list[CodePair]] = {}
    for query in range(len(offsets) - 1):
        for place in range(offsets[query], offsets[query + 1]):
            item = item_row(rows[place])
            groups.setdefault(item, []).append(CodePair(query, rows[place] - item, distances[place]))
    kept = []
    for item, pairs in groups.items():
        n_matched = len({pair[0] for pair in pairs})
        if n_matched >= threshold.at_least:
            kept.append((-n_matched, min(pair[2] for pair in pairs), item))
    kept = sorted(kept)[: threshold.limit]
    return [item for _, _, item in kept], [best for _, best, _ in kept], [sorted(groups[item]) for _, _, item in kept]


def _match_many(hits: BatchHits, threshold: Threshold) -> _Chosen:
    """Do `match_items` by arrays."""
    items = item_rows(hits.rows)
    order = np.argsort(items, kind="stable")
    items = items[order]
    queries = np.repeat(np.arange(len(hits)), np.diff(hits.offsets))[order]
    positions, distances = hits.rows[order] - items, hits.distances[order]
    is_first = np.ones(len(items), dtype=bool)
    np.not_equal(items[1:], items[:-1], out=is_first[1:])
    starts = np.flatnonzero(is_first)
    matched = np.bitwise_count(np.bitwise_or.reduceat(_ONE << queries.astype(np.uint64), starts)).astype(np.int64)
    best = np.minimum.reduceat(distances, starts)
    kept = np.flatnonzero(matched >= threshold.at_least)
    kept = kept[np.lexsort((best[kept], -matched[kept]))][: threshold.limit]
    stops = np.append(starts[1:], len(items))
    pairs = []
    for start, stop in zip(starts[kept].tolist(), stops[kept].tolist(), strict=True):
        here = slice(start, stop)
        pairs.append(sorted(map(CodePair, queries[here].tolist(), positions[here].tolist(), distances[here].tolist())))
    return items[starts[kept]].tolist(), best[kept].tolist(), pairs
