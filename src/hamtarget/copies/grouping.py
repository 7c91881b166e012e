"""Groups of codes around the best row of each: every other row of a group is within the radius of its best."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.query import PLAIN_WORK, Work
from hamtarget.search.distinct import distinct_codes
from hamtarget.search.multi import MultiIndex

Rows = NDArray[np.int64]

# Codes of the first search; later ones are as large as these bounds let them be.
_FIRST_QUERIES = 256
_MOST_QUERIES = 16_384
_MOST_HITS = 2_000_000
_FAR = np.iinfo(np.uint16).max


class RowGroup(NamedTuple):
    """Rows of a group, best first, then by distance; and the distance of each to the best."""

    rows: Rows
    distances: NDArray[np.uint16]


def group_around_best(codes: Codes, ranks: Rows, radius: int, work: Work = PLAIN_WORK) -> list[RowGroup]:
    """Return groups of two or more rows, largest first; of those of one size, the closest first.

    Rows are looked at from the best to the worst. One that is in no group yet becomes the best of a new group, and
    takes the rows within `radius` that are in no group, or nearer to it than to the best of theirs. So no chain of
    small steps leads from a picture to a different one, as it would if near groups were joined.

    Rows with the same code are one place, and a row that was taken is not searched for: a crowd of a million near
    codes takes a few searches, and not a million squared pairs.

    Args:
        codes: packed codes, (rows, bytes).
        ranks: (rows,) rank of each row, 0 for the best; no rank twice.
        radius: a row at exactly this distance of the best belongs to the group.
        work: threads that search, and progress in codes.
    """
    if not len(codes):
        return []
    first, place = distinct_codes(codes)
    best_rank = np.full(len(first), len(codes))
    np.minimum.at(best_rank, place, ranks)
    best, distances = _nearest_best(codes[first], np.argsort(best_rank), radius, work)
    # By group, in it by distance, and among rows of one distance by rank.
    of_row = best[place]
    order = np.lexsort((ranks, distances[place], of_row))
    starts = np.flatnonzero(np.diff(of_row[order], prepend=-1))
    groups = [RowGroup(rows, distances[place[rows]]) for rows in np.split(order, starts[1:]) if len(rows) > 1]
    return sorted(groups, key=lambda group: (-len(group.rows), int(group.distances[-1]), int(ranks[group.rows[0]])))


def _nearest_best(codes: Codes, order: Rows, radius: int, work: Work) -> tuple[Rows, NDArray[np.uint16]]:
    """Return, for each code, which code is the best of its group, and its distance to that."""
    n_bits = 8 * codes.shape[1]
    index = MultiIndex(n_bits, radius)
    index.add(np.arange(len(codes)), codes)
    best = np.full(len(codes), -1)
    distances = np.full(len(codes), _FAR, dtype=np.uint16)
    start, size = 0, _FIRST_QUERIES
    while start < len(order):
        block = order[start : start + size]
        start += len(block)
        block = block[best[block] < 0]
        hits = index.search_batch(codes[block], radius, work=Work(threads=work.threads))
        # Most codes have no other near them, and are their own best at once.
        counts = np.diff(hits.offsets)
        alone = block[counts == 1]
        best[alone], distances[alone] = alone, 0
        for query in np.flatnonzero(counts > 1).tolist():
            own = block[query]
            if best[own] >= 0:
                continue
            near = hits.rows[hits.offsets[query] : hits.offsets[query + 1]]
            far = hits.distances[hits.offsets[query] : hits.offsets[query + 1]]
            # The best of a group is at distance 0 of itself: nobody takes it away.
            taken = far < distances[near]
            best[near[taken]], distances[near[taken]] = own, far[taken]
        size = max(1, min(_MOST_QUERIES, 2 * size, size * _MOST_HITS // max(1, len(hits.rows))))
        if work.progress is not None:
            work.progress(start, len(order))
    return best, distances
