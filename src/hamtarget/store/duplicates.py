"""Near duplicates: every pair of rows within a radius, by searching the index for its own codes, block by block."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hamtarget.protocol import Progress
from hamtarget.search import Hits, MultiIndex

# Queries of one block, at first; and hits that a block may have before the next ones get smaller.
_FIRST_QUERIES = 256
_MOST_QUERIES = 16_384
_MOST_HITS = 2_000_000

Pairs = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint16]]
"""Rows a, rows b and distances of pairs."""


def close_pairs(index: MultiIndex, radius: int, *, threads: int, progress: Progress | None) -> Iterator[Pairs]:
    """All pairs within the radius, each once and with a < b, in blocks ascending by a."""
    rows = np.fromiter(index, np.int64, len(index))
    start, size = 0, _FIRST_QUERIES
    while start < len(rows):
        block = rows[start : start + size]
        hits = _search(index, block, radius, threads)
        a = np.repeat(block, np.diff(hits.offsets))
        later = hits.ids > a
        yield a[later], hits.ids[later], hits.distances[later]
        start += len(block)
        if progress:
            progress(start, len(rows))
        size = max(1, min(_MOST_QUERIES, 2 * size, int(size * _MOST_HITS / max(1, len(hits.ids)))))


def _search(index: MultiIndex, rows: NDArray[np.int64], radius: int, threads: int) -> Hits:
    found = index.get(rows)
    codes = found[0] if isinstance(found, tuple) else found
    hits = index.search(codes, radius, threads=threads)
    if not isinstance(hits, Hits):
        raise TypeError("a batch of codes gives a batch of hits")
    return hits


def connected(rows: NDArray[np.int64], pairs: Iterator[Pairs]) -> list[list[int]]:
    """Rows that pairs connect, directly or through others: groups of two or more, ascending, by their first row."""
    parent = np.arange(len(rows))
    for a, b, _ in pairs:
        left, right = np.searchsorted(rows, a), np.searchsorted(rows, b)
        # Each round hangs the larger root of every pair below the smaller one, until every pair has one root.
        while True:
            roots_left, roots_right = _roots(parent, left), _roots(parent, right)
            apart = roots_left != roots_right
            if not apart.any():
                break
            left, right = roots_left[apart], roots_right[apart]
            np.minimum.at(parent, np.maximum(left, right), np.minimum(left, right))
    roots = _roots(parent, np.arange(len(rows)))
    order = np.argsort(roots, kind="stable")
    bounds = np.flatnonzero(np.diff(roots[order])) + 1
    return [rows[group].tolist() for group in np.split(order, bounds) if len(group) > 1]


def _roots(parent: NDArray[np.int64], nodes: NDArray[np.int64]) -> NDArray[np.int64]:
    roots = parent[nodes]
    while True:
        above = parent[roots]
        if np.array_equal(above, roots):
            parent[nodes] = roots
            return roots
        roots = above
