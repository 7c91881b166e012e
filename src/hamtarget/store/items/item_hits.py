"""Hits of codes as hits of items: an item with several codes is found once, by the code that is nearest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hamtarget.answer import Answer, Hit, Hits
from hamtarget.items import MAX_CODES
from hamtarget.search.matching import match_items
from hamtarget.search.requests import Request
from hamtarget.search.row_names import RowNames
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW, item_row, item_rows, n_codes_of_items

FindCodes = Callable[[Request], Answer]
"""Finds the codes that a request leads to."""

# So many times as many codes are asked for where too few items were found.
_FACTOR = 4


def find_items(find: FindCodes, request: Request) -> Answer:
    """Return hits of items, or the items that codes match: as `find` gives them where every item has one code.

    Where hits are limited, more codes are asked for until there are enough items.
    """
    if request.offsets is not None:
        return match_items(find(request.of_codes), request, item_rows, n_codes_of_items)
    hits = find(request)
    if not len(hits.rows) or hits.rows.max() < FIRST_SEVERAL_ROW:
        return hits
    # What is found here beside the first are no further hits of the request.
    limits = None if request.limits is None else request.limits.without_hits()
    if request.rerank:
        found = find(request._replace(rerank=request.rerank * MAX_CODES, limits=limits))
        return _with_all_costs(_once_each(found, request.rerank), hits)
    items, asked = _once_each(hits, request.limit), request.limit
    while request.limit is not None and asked is not None and asked < request.limit * MAX_CODES:
        counts, n_items = np.diff(hits.offsets), np.diff(items.offsets)
        if not bool(((counts >= asked) & (n_items < request.limit)).any()):
            break
        asked = min(asked * _FACTOR, request.limit * MAX_CODES)
        before, hits = hits, find(request._replace(limit=asked, limits=limits))
        hits = _with_all_costs(hits, before)
        items = _once_each(hits, request.limit)
    return items


def name_items(hits: Hits, names: RowNames) -> Hits | None:
    """Return hits of codes, known by their rows, as hits of items, known by their ids; None if an id is not known."""
    first: dict[int, Hit] = {}
    for hit in hits:
        first.setdefault(item_row(int(hit.id)), hit)
    rows = np.fromiter(first, np.int64, len(first))
    if not names.know(rows):
        return None
    found = Hits(Hit(id, hit.distance) for id, hit in zip(names.of(rows).tolist(), first.values(), strict=True))
    found.cost = hits.cost
    return found


def _once_each(hits: Answer, limit: int | None) -> Answer:
    """Return the first hit of each item for each query, and at most `limit` of them."""
    counts = np.diff(hits.offsets)
    queries = np.repeat(np.arange(len(counts)), counts)
    rows = item_rows(hits.rows)
    order = np.lexsort((rows, queries))
    is_first = np.ones(len(order), dtype=bool)
    ordered_rows, ordered_queries = rows[order], queries[order]
    is_first[1:] = (ordered_rows[1:] != ordered_rows[:-1]) | (ordered_queries[1:] != ordered_queries[:-1])
    kept = np.sort(order[is_first])
    counts = np.bincount(queries[kept], minlength=len(counts))
    if limit is not None:
        starts = np.cumsum(counts) - counts
        kept = kept[np.arange(len(kept)) - np.repeat(starts, counts) < limit]
        counts = np.minimum(counts, limit)
    once = hits.select(kept, np.concatenate(([0], np.cumsum(counts))))
    return replace(once, rows=rows[kept])


def _with_all_costs(hits: Answer, before: Answer) -> Answer:
    """Return hits with the costs of an earlier try added."""
    if hits.costs is None or before.costs is None:
        return hits
    return hits.with_costs(hits.costs + before.costs)
