"""Approximate searches in PostgreSQL: the most likely values of substrings are looked up first, within a budget.

The smaller the sum of the query's |logit| over the bits that a value flips, the more likely it is. `MultiIndex.probe`
does the same; but here sums are not rounded, and a bucket holds all rows with one value of one substring.
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

from hamtarget.codes import substring_bounds
from hamtarget.search.requests import Request
from hamtarget.store.postgres.rows import bit_strings
from hamtarget.store.postgres.schema import substring_of, substring_type
from hamtarget.store.postgres.statements import flips_as_array
from hamtarget.store.settings import Settings

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

# Values that the first statements ask for; each of the next ones asks for so many times more.
_FIRST_VALUES = 64
_FACTOR = 4


@dataclass(frozen=True, slots=True, eq=False)
class Probed:
    """Rows that a budget led to.

    Attributes:
        rows: each once, ascending.
        buckets: values of substrings that were looked up.
        candidates: rows that were read; a row in several buckets counts in each.
    """

    rows: NDArray[np.int64]
    buckets: int
    candidates: int


def probe(connection: Connection, settings: Settings, request: Request) -> Probed:
    """Return the rows of the most likely buckets of one query, of at most `budget` rows; an empty bucket counts as one.

    Args:
        connection: in a transaction.
        settings: of the store.
        request: a probe for one query.
    """
    bounds = substring_bounds(settings.n_bits, settings.substrings)
    (text,) = bit_strings(request.codes)
    weights = np.zeros(settings.n_bits) if request.logits is None else np.abs(request.logits[0])
    likely = likely_flips([weights[start:stop].tolist() for start, stop in bounds])
    rows: list[int] = []
    buckets, left, n_values = 0, request.budget, _FIRST_VALUES
    while left > 0 and (block := list(islice(likely, min(n_values, left)))):
        found: dict[int, list[int]] = {}
        for number, (start, stop) in enumerate(bounds):
            places = [place for place, (table, _) in enumerate(block) if table == number]
            if places:
                flips = flips_as_array([block[place][1] for place in places], stop - start)
                sql = _bucket_sql(settings.n_bits, number, start, stop)
                for place, row in connection.execute(sql, [text, flips, left], prepare=True, binary=True):
                    found.setdefault(places[place - 1], []).append(row)
        for place in range(len(block)):
            read = found.get(place, [])[:left]
            rows += read
            buckets += 1
            left -= max(1, len(read))
            if left <= 0:
                break
        n_values *= _FACTOR
    return Probed(np.unique(np.array(rows, dtype=np.int64)), buckets, len(rows))


def likely_flips(weights: list[list[float]]) -> Iterator[tuple[int, int]]:
    """Yield every (substring, flips of its bits), by the sum of the weights of the flipped bits, smallest first.

    Args:
        weights: of the bits of each substring. Bit 0 of a substring is the highest bit of its flips.
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
def _bucket_sql(n_bits: int, number: int, start: int, stop: int) -> str:
    """Return SQL for columns n (place of the flips, from 1) and row: rows of one substring with flipped bits.

    Parameters: $1 the code, $2 the array of flips, $3 most rows of each.
    """
    wanted = substring_of(f"$1::bit({n_bits})", start, stop)
    return f"""
        SELECT f.n, b.row
        FROM unnest($2::{substring_type(stop - start)}[]) WITH ORDINALITY AS f(flips, n)
        CROSS JOIN LATERAL (
            SELECT i.row FROM items i WHERE i.substring_{number} = ({wanted} # f.flips)
            ORDER BY i.code, i.row LIMIT $3::bigint
        ) b
    """
