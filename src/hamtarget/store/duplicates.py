"""Near duplicates: every pair of rows within a radius, by searching the index for its own codes, block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.errors import InputError
from hamtarget.protocol import Progress
from hamtarget.search import Hits, MultiIndex

# Queries of the first block; later ones are as large as these bounds let them be.
_FIRST_QUERIES = 256
_MOST_QUERIES = 16_384
_MOST_HITS = 2_000_000

Rows = NDArray[np.int64]
Pairs = tuple[Rows, Rows, NDArray[np.uint16]]
"""Rows a, rows b and distances of pairs."""


def close_pairs(index: MultiIndex, radius: int, *, threads: int, progress: Progress | None) -> Iterator[Pairs]:
    """All pairs within the radius, each once and with a < b, in blocks ascending by a."""
    rows = np.fromiter(index, np.int64, len(index))
    start, size = 0, _FIRST_QUERIES
    while start < len(rows):
        block, codes = _present(index, rows[start : start + size])
        hits = index.search(codes, radius, threads=threads)
        if not isinstance(hits, Hits):
            raise TypeError("a batch of codes gives a batch of hits")
        a = np.repeat(block, np.diff(hits.offsets))
        later = hits.ids > a
        yield a[later], hits.ids[later], hits.distances[later]
        start += size
        if progress:
            progress(min(start, len(rows)), len(rows))
        size = max(1, min(_MOST_QUERIES, 2 * size, size * _MOST_HITS // max(1, len(hits.ids))))


def close_groups(index: MultiIndex, radius: int, *, threads: int, progress: Progress | None) -> list[Rows]:
    """Rows that steps of at most `radius` bits connect: groups of two or more, ascending, by their first row.

    Rows with the same code are one place, so that a million copies of one thing are not a million squared pairs.
    """
    rows, codes = _present(index, np.fromiter(index, np.int64, len(index)))
    if not len(rows):
        return []
    distinct, place = np.unique(codes, axis=0, return_inverse=True)
    places = MultiIndex(index.n_bits, radius)
    places.add(np.arange(len(distinct)), distinct)
    roots = _roots(len(distinct), close_pairs(places, radius, threads=threads, progress=progress))[place.reshape(-1)]
    order = np.argsort(roots, kind="stable")
    groups = np.split(rows[order], np.flatnonzero(np.diff(roots[order])) + 1)
    return sorted((group for group in groups if len(group) > 1), key=lambda group: int(group[0]))


def _present(index: MultiIndex, rows: Rows) -> tuple[Rows, Codes]:
    """Those of the rows that are in the index, which may have changed since they were listed, and their codes."""
    while True:
        try:
            found = index.get(rows)
        except InputError:
            rows = rows[np.fromiter((row in index for row in rows.tolist()), bool, len(rows))]
        else:
            return rows, found[0] if isinstance(found, tuple) else found


def _roots(n_nodes: int, pairs: Iterable[Pairs]) -> Rows:
    """The same number for all nodes that pairs connect: that of the smallest of them."""
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
    """Roots of the nodes, below which they then hang directly."""
    roots = parent[nodes]
    while not np.array_equal(above := parent[roots], roots):
        roots = above
    parent[nodes] = roots
    return roots
