"""Approximate searches in PostgreSQL: the most likely buckets are read first, within a budget.

A bucket holds the rows whose substring begins with the same bits: so many bits that a bucket has a row or a few, as in
the tables of `MultiIndex`. In the B-tree of a substring they lie one after another. The smaller the sum of the query's
|logit| over the bits in which a bucket differs from it, the more likely the bucket is. A `MultiIndex` does the
same, but rounds the sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native
from hamtarget.codes import substring_bounds
from hamtarget.search.requests import Request
from hamtarget.store.postgres.rows import bit_strings
from hamtarget.store.postgres.schema import substring_of, substring_type
from hamtarget.store.postgres.statements import flips_as_array
from hamtarget.store.settings import Settings

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

# Buckets that the first statements ask for; each of the next ones asks for so many times more.
_FIRST_BUCKETS = 64
_FACTOR = 4


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """Rows that a budget led to.

    Attributes:
        rows: each once, ascending.
        buckets: number of those that were read.
        candidates: rows that were read; a row in several buckets counts in each.
    """

    rows: NDArray[np.int64]
    buckets: int
    candidates: int


def probe(connection: Connection, settings: Settings, request: Request, n_items: int) -> Probed:
    """Return the rows of the most likely buckets of one query, of at most `budget` rows; an empty bucket counts as one.

    Args:
        connection: in a transaction.
        settings: of the store.
        request: a probe for one query.
        n_items: in the store.
    """
    bounds = substring_bounds(settings.n_bits, settings.substrings)
    (text,) = bit_strings(request.codes)
    weights = np.zeros(settings.n_bits) if request.logits is None else np.abs(request.logits[0])
    most = _native.directory_bits(n_items)
    lengths = [min(most, stop - start) for start, stop in bounds]
    likely = likely_flips(
        [weights[start : start + length].tolist() for (start, _), length in zip(bounds, lengths, strict=True)]
    )
    rows: list[int] = []
    buckets, left, n_buckets = 0, request.budget, _FIRST_BUCKETS
    while left > 0 and (block := list(islice(likely, min(n_buckets, left)))):
        found: dict[int, list[int]] = {}
        for number, (start, stop) in enumerate(bounds):
            places = [place for place, (table, _) in enumerate(block) if table == number]
            if places:
                rest = stop - start - lengths[number]
                flips = flips_as_array([block[place][1] << rest for place in places], stop - start)
                sql = _bucket_sql(settings.n_bits, number, start, stop, rest)
                for place, row in connection.execute(sql, [text, flips, left], prepare=True, binary=True):
                    found.setdefault(places[place - 1], []).append(row)
        for place in range(len(block)):
            read = found.get(place, [])[:left]
            rows += read
            buckets += 1
            left -= max(1, len(read))
            if left <= 0:
                break
        n_buckets *= _FACTOR
    return Probed(np.unique(np.array(rows, dtype=np.int64)), buckets, len(rows))


def likely_flips(weights: list[list[float]]) -> Iterator[tuple[int, int]]:
    """Yield every (substring, flips of its first bits), by the sum of the weights of the flipped bits, smallest first.

    Args:
        weights: of the first bits of each substring. Bit 0 of a substring is the highest bit of its flips.
    """
    orders = [sorted(range(len(bits)), key=bits.__getitem__) for bits in weights]
    # Sum, substring, place of the heaviest flipped bit in the order of weights, flips. Each set of flips comes from
    # the one without its heaviest bit, or with the next lighter bit in its place, and so once only.
    heap = [(0.0, number, -1, 0) for number in range(len(weights))]
    heapify(heap)
    while heap:
        total, number, last, flips = heappop(heap)
        yield number, flips
        bits, order = weights[number], orders[number]
        if last + 1 < len(order):
            heavier = order[last + 1]
            added = flips | 1 << (len(bits) - 1 - heavier)
            heappush(heap, (total + bits[heavier], number, last + 1, added))
            if last >= 0:
                lighter = order[last]
                moved = added ^ 1 << (len(bits) - 1 - lighter)
                heappush(heap, (total - bits[lighter] + bits[heavier], number, last + 1, moved))


@lru_cache(maxsize=256)
def _bucket_sql(n_bits: int, number: int, start: int, stop: int, rest: int) -> str:
    """Return SQL for columns n (place of the flips, from 1) and row: rows of buckets of one substring.

    All bits of a substring but the last `rest` say which bucket it lies in. Parameters: $1 the code, $2 the array of
    flips, $3 most rows of each bucket.
    """
    kind = substring_type(stop - start)
    # The last bits of a bucket's first and last value are zeros and ones.
    (ones,) = flips_as_array([(1 << rest) - 1], stop - start)[1:-1].split(",")
    low = f"(({substring_of(f'$1::bit({n_bits})', start, stop)} | '{ones}'::{kind}) # '{ones}'::{kind} # f.flips)"
    return f"""
        SELECT f.n, b.row
        FROM unnest($2::{kind}[]) WITH ORDINALITY AS f(flips, n)
        CROSS JOIN LATERAL (
            SELECT i.row FROM items i
            WHERE i.substring_{number} BETWEEN {low} AND ({low} | '{ones}'::{kind})
            ORDER BY i.substring_{number}, i.code, i.row LIMIT $3::bigint
        ) b
    """
