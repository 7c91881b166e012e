"""All codes of a store in groups at once: by chains of near codes, or around representatives."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from hamtarget.codes import Codes
from hamtarget.query import PLAIN_WORK, Work
from hamtarget.search.multi import MultiIndex
from hamtarget.search.pairs import Pairs, hits_in_blocks, pairs_within
from hamtarget.store.groups.source import Rows, keys_of
from hamtarget.store.groups.tables import Kind

# So few codes are compared in less time than an index of them is made.
_FEW_CODES = 32


def partition(codes: Codes, kind: Kind, work: Work = PLAIN_WORK) -> Rows:
    """Return for each code the number of the first one of its group.

    Args:
        codes: different codes, in the order of their first rows.
        kind: radius and linkage.
        work: threads that search, progress in codes, and bounds.
    """
    if kind.linkage == "single" and len(codes) <= _FEW_CODES:
        if work.progress is not None:
            work.progress(len(codes), len(codes))
        return _roots_of_few(codes, kind.radius)
    if kind.linkage == "single":
        return _roots(len(codes), pairs_within(codes, kind.radius, work=work))
    return _leaders(codes, kind.radius, work)


def _leaders(codes: Codes, radius: int, work: Work) -> Rows:
    """Let each code in turn join the first representative within the radius, or become one.

    A code that has joined is not searched for: a crowd of near codes takes few searches.
    """
    index = MultiIndex(8 * codes.shape[1], radius)
    index.add(np.arange(len(codes)), codes)
    leaders = np.full(len(codes), -1)

    def read(block: Rows) -> tuple[Rows, Codes]:
        free = block[leaders[block] < 0]
        return free, codes[free]

    for block, hits in hits_in_blocks(index, radius, np.arange(len(codes)), read, work):
        counts = np.diff(hits.offsets)
        # Most codes have no other near them.
        alone = block[counts == 1]
        leaders[alone] = alone
        for query in np.flatnonzero(counts > 1).tolist():
            own = block[query]
            if leaders[own] < 0:
                near = hits.rows[hits.offsets[query] : hits.offsets[query + 1]]
                leaders[near[leaders[near] < 0]] = own
    return leaders


def _roots_of_few(codes: Codes, radius: int) -> Rows:
    """Return, for each code, the first one that steps within the radius connect it with, by comparing all."""
    numbers = [int.from_bytes(key) for key in keys_of(codes)]
    roots = list(range(len(numbers)))
    for number, one in enumerate(numbers):
        for other in range(number):
            if roots[other] != roots[number] and (one ^ numbers[other]).bit_count() <= radius:
                low, high = sorted((roots[other], roots[number]))
                roots = [low if root == high else root for root in roots]
    return np.array(roots)


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
