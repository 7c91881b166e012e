"""The paper's cost model (section 1.2): which radius suits a number of rows, and how many rows a query reads.

A code is split into substrings, in the paper `radius + 1` of them. Each substring has a table from its value to a
bucket of rows. A row within `radius` equals the query in at least one substring (pigeonhole), so reading the query's
bucket of every table misses nothing. With well-distributed codes of n bits a query reads (r+1) N / 2^(n/(r+1)) rows.
An index may choose fewer substrings: see `hamtarget.search.tables`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, comb, floor, log2

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._checks import check_integer
from hamtarget.codes import Codes, check_codes, check_n_bits, check_radius, distances, substring_bounds
from hamtarget.search.tables import in_words


@dataclass(frozen=True)
class Plan:
    """Cost of searching a number of rows within a radius, if their codes are well distributed (uniform)."""

    n_rows: int
    n_bits: int
    radius: int
    substrings: int
    """Number of substrings, in the paper: radius + 1. An index may choose fewer (`choose_substrings`)."""
    substring_lengths: tuple[int, ...]
    """Bits of each substring."""
    expected_candidates: float
    """Rows a query reads, a row in several buckets counted in each."""
    expected_hits: float
    """Rows within the radius of a query that resembles none of them: its false hits."""
    expected_false_pairs: float
    """Pairs of rows within the radius that do not resemble each other: half the false hits of all rows together."""
    share_read: float
    """expected_candidates / n_rows; above 1 the tables read more than a linear scan."""
    reason: str
    """Why this radius, or what is wrong with it, in a sentence or two."""


@dataclass(frozen=True, eq=False)
class MeasuredCandidates:
    """Cost and hits of every query in `radius + 1` tables, as arrays of shape (queries,)."""

    rows_read: NDArray[np.int64]
    """Sum of the sizes of the buckets read: a row in several of them counts in each."""
    candidates: NDArray[np.int64]
    """Distinct rows read."""
    hits: NDArray[np.int64]
    """Rows within the radius."""


def recommended_radius(n_rows: int, n_bits: int) -> int:
    """Return the radius whose substrings are nearest in length to log2 of `n_rows`: about one row a bucket.

    For few rows it is large: it says how far the tables still serve, not how far similar rows are.

    Raises:
        InputError: `n_rows` is below 1, or `n_bits` is not a code length.
        DtypeError: one of them is not an integer.
    """
    n_rows, n_bits = check_integer(n_rows, name="n_rows"), check_n_bits(n_bits)
    wanted = log2(n_rows)
    # The length n / m falls as m grows: the nearest is on one of the two sides of n / log2 N. A substring has at
    # least one bit, so at most n_bits of them, reached when there are one or two rows.
    most = n_bits / max(wanted, 1.0)
    around = {max(1, floor(most)), min(n_bits, ceil(most))}
    return min(around, key=lambda substrings: (abs(n_bits / substrings - wanted), substrings)) - 1


def expected_candidates(n_rows: int, n_bits: int, radius: int) -> float:
    """Return how many rows a query reads in `radius + 1` tables if codes are well distributed (uniform).

    A row in several buckets counts in each.

    Raises:
        InputError: `n_rows` is below 1, `n_bits` is not a code length, or `radius` is not from 0 to `n_bits - 1`.
        DtypeError: one of them is not an integer.
    """
    n_rows, n_bits = check_integer(n_rows, name="n_rows"), check_n_bits(n_bits)
    return sum(_uniform_rows(n_rows, length, 0) for length in _lengths(n_bits, check_radius(radius, n_bits) + 1))


def measured_candidates(
    query_codes: ArrayLike, database_codes: ArrayLike, *, n_bits: int, radius: int
) -> MeasuredCandidates:
    """Return rows read, distinct rows read and hits of every query, in `radius + 1` tables of these very codes.

    The tables take 8 bytes a row and table; nothing grows with queries x database.

    Raises:
        ShapeError: a row does not hold `n_bits` bits.
        DtypeError: codes are not uint8, or `radius` is not an integer.
        InputError: `n_bits` is not a code length, or `radius` is not from 0 to `n_bits - 1`.
    """
    radius = check_radius(radius, check_n_bits(n_bits))
    queries = check_codes(query_codes, n_bits, name="query_codes")
    database = check_codes(database_codes, n_bits, name="database_codes")
    tables = [_buckets(queries, database, bounds) for bounds in substring_bounds(n_bits, radius + 1)]

    rows_read = np.zeros(len(queries), dtype=np.int64)
    for _, starts, stops in tables:
        rows_read += stops - starts
    candidates = np.zeros(len(queries), dtype=np.int64)
    hits = np.zeros(len(queries), dtype=np.int64)
    seen = np.zeros(len(database), dtype=np.bool_)
    for query in np.flatnonzero(rows_read):
        for order, starts, stops in tables:
            seen[order[starts[query] : stops[query]]] = True
        rows = np.flatnonzero(seen)
        seen[rows] = False
        candidates[query] = len(rows)
        # Every hit is a candidate (pigeonhole): no other row has to be looked at.
        hits[query] = np.count_nonzero(distances(queries[query], database[rows], n_bits) <= radius)
    return MeasuredCandidates(rows_read, candidates, hits)


def plan(n_rows: int, n_bits: int, radius: int | None = None) -> Plan:
    """Return what to expect of searching `n_rows` codes within `radius` (the recommended one if not given).

    Raises:
        InputError: `n_rows` is below 1, `n_bits` is not a code length, or `radius` is not from 0 to `n_bits - 1`.
        DtypeError: one of them is not an integer.
    """
    recommended = recommended_radius(n_rows, n_bits)
    chosen = recommended if radius is None else check_radius(radius, n_bits)
    read = expected_candidates(n_rows, n_bits, chosen)
    return Plan(
        n_rows=int(n_rows),
        n_bits=int(n_bits),
        radius=chosen,
        substrings=chosen + 1,
        substring_lengths=tuple(_lengths(int(n_bits), chosen + 1)),
        expected_candidates=read,
        expected_hits=_uniform_rows(int(n_rows), int(n_bits), chosen),
        expected_false_pairs=n_rows * _uniform_rows(int(n_rows) - 1, int(n_bits), chosen) / 2,
        share_read=read / n_rows,
        reason=_reason(int(n_rows), int(n_bits), chosen, recommended, read),
    )


def _lengths(n_bits: int, substrings: int) -> list[int]:
    return [stop - start for start, stop in substring_bounds(n_bits, substrings)]


def _uniform_rows(n_rows: int, length: int, radius: int) -> float:
    """Return how many of `n_rows` uniform strings of `length` bits are expected within `radius` of a given one."""
    near = sum(comb(length, flipped) for flipped in range(min(radius, length) + 1))
    # Python divides whole numbers of any size and rounds once, though 2^1024 itself is no float.
    return n_rows * near / (1 << length)


def _reason(n_rows: int, n_bits: int, radius: int, recommended: int, read: float) -> str:
    lengths = sorted(set(_lengths(n_bits, radius + 1)))
    split = (
        f"Radius {radius} splits {n_bits} bits into {radius + 1} substring{'s' if radius else ''} "
        f"of {' or '.join(map(str, lengths))} bit{'s' if lengths != [1] else ''}"
    )
    cost = f"a query reads about {in_words(read)} of {n_rows:,} rows ({in_words(100 * read / n_rows)}%)"
    ideal = f"log2 of the rows ({log2(n_rows):.1f})"
    # Looking up a bucket costs no less than reading a row.
    if radius + 1 + read >= n_rows:
        return f"{split}: {cost} out of {radius + 1} buckets. A linear scan would be as cheap."
    if radius > recommended:
        return (
            f"{split}, shorter than {ideal}, so buckets are crowded: {cost}. "
            f"Radius {recommended} or longer codes would read less."
        )
    if radius < recommended:
        return (
            f"{split}, longer than {ideal}, so most buckets are empty: {cost}. "
            f"Any radius up to {recommended} is about as cheap."
        )
    return f"{split}, nearest to {ideal}: {cost}."


def _buckets(
    queries: Codes, database: Codes, bounds: tuple[int, int]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return database rows by bucket of one table, and where each query's bucket starts and stops among them."""
    # Substrings can be longer than any integer: they become numbers in the order of their bytes.
    keys = np.concatenate([_substring(queries, bounds), _substring(database, bounds)])
    _, numbers = np.unique(keys.view(f"V{keys.shape[1]}")[:, 0], return_inverse=True)
    wanted, stored = numbers[: len(queries)], numbers[len(queries) :]
    order = np.argsort(stored, kind="stable")
    in_order = stored[order]
    return order, np.searchsorted(in_order, wanted, side="left"), np.searchsorted(in_order, wanted, side="right")


def _substring(codes: Codes, bounds: tuple[int, int]) -> Codes:
    """Return bits `start` to `stop - 1` of every code as packed rows, the last byte filled with zeros."""
    start, stop = bounds
    length = stop - start
    cut = codes[:, start // 8 : -(-stop // 8)]
    shift = start % 8
    moved: Codes = cut >> np.uint8(shift)
    if shift:
        moved[:, :-1] |= cut[:, 1:] << np.uint8(8 - shift)
    # Moved down, the last byte may hold nothing any more.
    moved = np.ascontiguousarray(moved[:, : -(-length // 8)])
    if length % 8:
        moved[:, -1] &= np.uint8((1 << length % 8) - 1)
    return moved
