"""Near duplicates: pairs with their ids, and groups of rows that steps of at most a radius connect."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from hamtarget.items import Id
from hamtarget.progress import Progress
from hamtarget.search.distinct import distinct_codes
from hamtarget.search.limits import Limits
from hamtarget.search.multi import MultiIndex
from hamtarget.search.pairs import Pairs, pairs_within, present
from hamtarget.store.reports import Pair

Rows = NDArray[np.int64]

# Pairs that get their ids at a time; limits are looked at in between.
_NAMED_PAIRS = 16_384


def name_pairs(
    blocks: Iterable[Pairs], ids_of: Callable[[Rows], dict[int, Id]], limits: Limits | None
) -> Iterator[Pair]:
    """Yield pairs of rows with the ids of these rows, without those that were deleted meanwhile."""
    for pairs in blocks:
        for start in range(0, len(pairs.a), _NAMED_PAIRS):
            if limits is not None:
                limits.check()
            a, b, distances = (column[start : start + _NAMED_PAIRS] for column in pairs)
            ids = ids_of(np.concatenate((a, b)))
            for row_a, row_b, distance in zip(a.tolist(), b.tolist(), distances.tolist(), strict=True):
                if row_a in ids and row_b in ids:
                    yield Pair(ids[row_a], ids[row_b], distance)


def close_groups(
    index: MultiIndex, radius: int, *, threads: int, progress: Progress | None, limits: Limits | None = None
) -> list[Rows]:
    """Return groups of two or more rows that steps of at most `radius` bits connect, by their first row.

    Rows with the same code are one place, so that a million copies of one thing are not a million squared pairs.
    """
    rows, codes = present(index, index.ids())
    if not len(rows):
        return []
    if limits is not None:
        limits.check()
    first, place = distinct_codes(codes)
    if limits is not None:
        limits.check()
    pairs = pairs_within(codes[first], radius, threads=threads, progress=progress, limits=limits)
    roots = _roots(len(first), pairs)[place]
    order = np.argsort(roots, kind="stable")
    groups = np.split(rows[order], np.flatnonzero(np.diff(roots[order])) + 1)
    return sorted((group for group in groups if len(group) > 1), key=lambda group: int(group[0]))


def _roots(n_nodes: int, pairs: Iterable[Pairs]) -> Rows:
    """Return, for each node, the smallest node that pairs connect it with."""
    parent = np.arange(n_nodes)
    for left, right, _ in pairs:
        # Each round hangs the larger root of a pair below the smaller one, until both have the same.
        while len(left):
            left, right = _climb(parent, left), _climb(parent, right)
            apart = left != right
            left, right = left[apart], right[apart]
            np.minimum.at(parent, np.maximum(left, right), np.minimum(left, right))
    return _climb(parent, np.arange(n_nodes))


def _climb(parent: Rows, nodes: Rows) -> Rows:
    """Return the roots of the nodes, and hang the nodes directly below them."""
    roots = parent[nodes]
    while not np.array_equal(above := parent[roots], roots):
        roots = above
    parent[nodes] = roots
    return roots
