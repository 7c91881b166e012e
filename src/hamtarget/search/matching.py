"""Matching by several codes: from hits of a query's codes to items, and which of their codes were matched."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hamtarget.answer import Answer, pairs_column
from hamtarget.items import CodePair
from hamtarget.search.requests import Request

Rows = NDArray[np.int64]
# So many hits are grouped by a dictionary, and more by arrays.
_FEW_HITS = 256


def match_items(
    hits: Answer,
    request: Request,
    item_rows: Callable[[Rows], Rows] = lambda rows: rows,
    n_codes_of: Callable[[Rows], Rows] = np.ones_like,
) -> Answer:
    """Return the items that hits of the queries' codes belong to, if enough of a query's codes matched.

    Those with most matched codes of the query come first, then those at the smallest distance, then by row.

    Args:
        hits: of the codes of all queries.
        request: divides the codes among queries, and says how many of them must match.
        item_rows: gives, for each row, the first row of its item; by default every row is an item.
        n_codes_of: gives the number of codes of items, by their first rows.
    """
    offsets = np.array([0, len(hits)]) if request.offsets is None else request.offsets
    choose = _match_few if len(hits.rows) <= _FEW_HITS else _match_many
    queries, rows, best, pairs = choose(hits, offsets, item_rows(hits.rows), request)
    counts = np.bincount(np.asarray(queries, dtype=np.int64), minlength=len(offsets) - 1)
    items = np.asarray(rows, dtype=np.int64)
    return Answer(
        offsets=np.concatenate(([0], np.cumsum(counts))),
        rows=items,
        distances=np.asarray(best, dtype=np.uint16),
        code_pairs=pairs_column(pairs),
        n_item_codes=n_codes_of(items),
        n_query_codes=np.diff(offsets),
        costs=None if hits.costs is None else hits.costs.summed(offsets),
        names=hits.names,
    )


_Chosen = tuple[list[int], list[int], list[int], list[list[CodePair]]]
"""Numbers of queries, ascending; first rows of items, their smallest distances, and their pairs."""


def _match_few(hits: Answer, offsets: Rows, items: Rows, request: Request) -> _Chosen:
    """Do `match_items` by a dictionary: for few hits, each call of numpy would take longer."""
    rows, firsts, distances = hits.rows.tolist(), items.tolist(), hits.distances.tolist()
    code_offsets, starts = hits.offsets.tolist(), offsets.tolist()
    queries: list[int] = []
    chosen_items: list[int] = []
    nearest: list[int] = []
    code_pairs: list[list[CodePair]] = []
    for query, (start, stop) in enumerate(zip(starts, starts[1:], strict=False)):
        groups: dict[int, list[CodePair]] = {}
        for code in range(start, stop):
            for place in range(code_offsets[code], code_offsets[code + 1]):
                first = firsts[place]
                groups.setdefault(first, []).append(CodePair(code - start, rows[place] - first, distances[place]))
        found = []
        for item, pairs in groups.items():
            n_matched = len({pair[0] for pair in pairs})
            if n_matched >= request.at_least:
                found.append((query, -n_matched, min(pair[2] for pair in pairs), item, sorted(pairs)))
        for number, _, best, item, pairs in sorted(found)[: request.limit]:
            queries.append(number)
            chosen_items.append(item)
            nearest.append(best)
            code_pairs.append(pairs)
    return queries, chosen_items, nearest, code_pairs


def _match_many(hits: Answer, offsets: Rows, items: Rows, request: Request) -> _Chosen:
    """Do `match_items` by arrays."""
    codes = np.repeat(np.arange(len(hits)), np.diff(hits.offsets))
    queries = np.searchsorted(offsets, codes, side="right") - 1
    order = np.lexsort((hits.rows, codes, items, queries))
    queries, items, codes = queries[order], items[order], codes[order]
    positions, distances = hits.rows[order] - items, hits.distances[order]
    is_first = np.ones(len(items), dtype=bool)
    is_first[1:] = (items[1:] != items[:-1]) | (queries[1:] != queries[:-1])
    is_new_code = is_first.copy()
    is_new_code[1:] |= codes[1:] != codes[:-1]
    starts = np.flatnonzero(is_first)
    matched = np.add.reduceat(is_new_code.astype(np.int64), starts)
    best = np.minimum.reduceat(distances, starts)
    kept = np.flatnonzero(matched >= request.at_least)
    kept = kept[np.lexsort((best[kept], -matched[kept], queries[starts[kept]]))]
    if request.limit is not None:
        counts = np.bincount(queries[starts[kept]], minlength=len(offsets) - 1)
        ranks = np.arange(len(kept)) - np.repeat(np.cumsum(counts) - counts, counts)
        kept = kept[ranks < request.limit]
    stops = np.append(starts[1:], len(items))
    codes = codes - offsets[queries]
    pairs = []
    for start, stop in zip(starts[kept].tolist(), stops[kept].tolist(), strict=True):
        here = slice(start, stop)
        pairs.append(list(map(CodePair, codes[here].tolist(), positions[here].tolist(), distances[here].tolist())))
    return queries[starts[kept]].tolist(), items[starts[kept]].tolist(), best[kept].tolist(), pairs
