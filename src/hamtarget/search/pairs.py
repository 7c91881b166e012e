"""All pairs of one set of codes within a radius: the self-join, by searching an index for its own codes in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import as_array
from hamtarget.answer import Answer
from hamtarget.codes import Codes, check_codes, check_n_bits, check_radius
from hamtarget.errors import InputError, LimitError, ShapeError
from hamtarget.query import Asked, Bounds, Query, Work, check_work
from hamtarget.search.index import CodeIndex
from hamtarget.search.multi import MultiIndex

# Queries of the first block; later ones are as large as these bounds let them be. A block that finds more hits is
# searched again in smaller ones: memory is bounded by hits, also where thousands of codes are the same.
_FIRST_QUERIES = 256
_MOST_QUERIES = 16_384
_MOST_HITS = 2_000_000
# Most of what a block is expected to find, so that few of them are searched again.
_EXPECTED_HITS = _MOST_HITS // 2


class Pairs(NamedTuple):
    """A block of pairs of rows, as arrays of shape (pairs,); a < b in each pair."""

    a: NDArray[np.int64]
    b: NDArray[np.int64]
    distances: NDArray[np.uint16]


def pairs_within(
    codes: CodeIndex | ArrayLike, radius: int | None = None, *, work: Work | None = None
) -> Iterator[Pairs]:
    """Yield every pair of codes within `radius` bits once, in blocks of at most two million, ascending by `a`.

    Memory is bounded by the pairs of a block, however many codes are the same; a code that has more pairs than that is
    searched alone, and its pairs are yielded in several blocks.

    Example:
        >>> codes = np.array([[0, 0], [1, 0], [255, 255]], dtype=np.uint8)
        >>> [(int(a), int(b), int(d)) for pairs in pairs_within(codes, 1) for a, b, d in zip(*pairs)]
        [(0, 1, 1)]

    Args:
        codes: an index, whose ids then name the rows; or packed codes, (rows, n_bits / 8), named by their row numbers.
        radius: a pair at exactly this distance counts. An index's own by default.
        work: threads that share the queries of a block, progress in rows, and bounds until the last block is taken.
            Rows and hits are those of a search for each code, which finds itself and both ends of a pair.

    Raises:
        InputError: the radius is missing, or a number is out of range.
        DtypeError: the codes are not uint8, or a number is not an integer.
        ShapeError: the codes are not (rows, bytes).
        LimitError: the work reached one of its bounds.
    """
    # Checked here, and not when the first block is asked for.
    work = check_work(work).started()
    if isinstance(codes, CodeIndex):
        within = codes.radius if radius is None else check_radius(radius, codes.n_bits)
        if within is None:
            raise InputError("radius is missing; a FlatIndex has none of its own: pass one")
        return _of_index(codes, within, work)
    array = as_array(codes, name="codes")
    if array.ndim != 2:
        raise ShapeError(f"codes have {array.ndim} dimensions; expected 2: (rows, bytes)")
    n_bits = check_n_bits(8 * array.shape[1])
    if radius is None:
        raise InputError("radius is missing; codes have none of their own: pass one")
    radius = check_radius(radius, n_bits)
    return _of_codes(check_codes(array, n_bits), radius, work)


def _of_codes(codes: Codes, radius: int, work: Work) -> Iterator[Pairs]:
    rows = np.arange(len(codes))
    index = MultiIndex(8 * codes.shape[1], radius)
    index.add(rows, codes)
    return _search(index, radius, rows, lambda block: (block, codes[block[0] : block[-1] + 1]), work)


def _of_index(index: CodeIndex, radius: int, work: Work) -> Iterator[Pairs]:
    return _search(index, radius, index.ids(), lambda block: present(index, block), work)


def _search(
    index: CodeIndex,
    radius: int,
    rows: NDArray[np.int64],
    read: Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], Codes]],
    work: Work,
) -> Iterator[Pairs]:
    for block, hits in hits_in_blocks(index, radius, rows, read, work):
        yield from _later_rows(block, hits)


def hits_in_blocks(
    index: CodeIndex,
    radius: int,
    rows: NDArray[np.int64],
    read: Callable[[NDArray[np.int64]], tuple[NDArray[np.int64], Codes]],
    work: Work,
) -> Iterator[tuple[NDArray[np.int64], Answer]]:
    """Search an index for the codes of rows, and yield rows and their hits in blocks of at most two million hits.

    Args:
        index: to search.
        radius: of all searches.
        rows: numbers of any kind.
        read: gives the codes of a block of them, and may leave some out: those that it returns are searched for.
        work: threads that share the queries of a block, progress in rows, and bounds.
    """
    work = work.started()
    start, size = 0, _FIRST_QUERIES
    while start < len(rows):
        block, codes = read(rows[start : start + size])
        hits = _found(index, codes, radius, work, most=_MOST_HITS if size > 1 else None)
        if hits is None:
            size = max(1, size // 8)
            continue
        yield block, hits
        start += size
        if work.progress:
            work.progress(min(start, len(rows)), len(rows))
        size = max(1, min(_MOST_QUERIES, 2 * size, size * _EXPECTED_HITS // max(1, len(hits.rows))))


def _found(index: CodeIndex, codes: Codes, radius: int, work: Work, *, most: int | None) -> Answer | None:
    """Return the hits of a block of queries; None if there are more than `most`, of which nothing is counted then."""
    limits = work.limits
    bound = Work(Bounds(hits=most)).limits if limits is None else limits.without_hits(most)
    request = index.request(Asked(codes), Query(radius), work)._replace(limits=bound)
    try:
        hits = index.find(request)
    except LimitError as error:
        if error.limit != "hits" or bound is None:
            raise
        bound.give_back_rows()
        return None
    if limits is not None:
        limits.take(hits=len(hits.rows))
    return hits


def _later_rows(block: NDArray[np.int64], hits: Answer) -> Iterator[Pairs]:
    """Yield the pairs of a block, at most `_MOST_HITS` at a time."""
    a = np.repeat(block, np.diff(hits.offsets)) if len(block) > 1 else np.broadcast_to(block, len(hits.rows))
    for first in range(0, len(hits.rows), _MOST_HITS):
        here = slice(first, first + _MOST_HITS)
        later = hits.rows[here] > a[here]
        yield Pairs(a[here][later], hits.rows[here][later], hits.distances[here][later])


def present(index: CodeIndex, rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], Codes]:
    """Return those of the rows that are in the index still, and their codes."""
    while True:
        try:
            found = index.get(rows)
        except InputError:
            rows = rows[np.fromiter((row in index for row in rows.tolist()), bool, len(rows))]
        else:
            return rows, found[0] if isinstance(found, tuple) else found
