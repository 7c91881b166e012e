"""Estimate what a search costs with each number of substrings, and choose the number that suits the rows.

This is the arithmetic of the native core (native/core/table_plan.cpp), by which every piece of an index gets its
tables; here it explains them, without the core. A test compares both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, sqrt

import numpy as np

from hamtarget.codes import check_n_bits, check_radius, substring_bounds
from hamtarget.errors import DtypeError, InputError

# Nanoseconds; SearchCosts of the core says what each is.
_CACHE_BYTES = 293e6
_BUCKET, _FAR_BUCKET = 74.0, 12.0
_ENTRY, _ENTRY_BYTE, _FAR_BYTE, _NOTICED_BYTES = 0.042, 0.034, 0.154, 4376.0
_FETCHED_CODE, _FETCHED_SHARE = 22.5, 0.03
_SCANNED_BYTE = 0.0125

_ROW_NUMBER_BYTES = 4
_MOST_ROW_BYTES, _MOST_ROW_BYTES_OF, _MOST_WHOLE_BYTES = 256, 32, 304
_DEVIATIONS = 1.9
_MAX_KEY_BITS = 28


@dataclass(frozen=True)
class SubstringChoice:
    """A number of substrings, and the cost of a search if codes are well distributed (uniform)."""

    substrings: int
    lengths: tuple[int, ...]
    """Bits of each substring."""
    flips: tuple[int, ...]
    """Bits of each substring in which buckets are read that differ from the query's own; -1: none is read."""
    excerpt_bytes: int
    """Bytes of a code in each table but the first; 0: whole codes in every table."""
    buckets: int
    """Buckets that a query looks up."""
    candidates: float
    """Rows that a query reads, a row in several buckets counted in each."""
    bytes_per_row: int
    """Bytes of a row in all tables, without its id."""
    cost: float
    """Nanoseconds that a query is expected to take, or would on the machine that the costs were measured on."""
    reason: str = ""
    """Why so many, in a sentence or two, where this is the choice of `choose_substrings`."""


def choose_substrings(n_rows: int, n_bits: int, radius: int) -> SubstringChoice:
    """Return the number of substrings, 1 to `radius + 1`, with which `MultiIndex` searches fastest within `radius`.

    With fewer than `radius + 1` substrings, bits are flipped: the longer substrings have smaller buckets, but more of
    them are looked up. This is the number that an index of so many rows takes by itself. Where reading every row is
    cheaper, it is the number for the largest radius at which it is not.

    Example:
        >>> choice = choose_substrings(1_000_000, n_bits=64, radius=8)
        >>> choice.substrings, choice.buckets
        (5, 57)

    Raises:
        InputError: `n_rows` is below 1, `n_bits` is not a code length, or `radius` is not from 0 to `n_bits - 1`.
        DtypeError: one of them is not an integer.
    """
    n_rows, n_bits = check_n_rows(n_rows), check_n_bits(n_bits)
    radius = check_radius(radius, n_bits)
    scan = scan_cost(n_rows, n_bits)
    best = _cheapest(_choices(n_rows, n_bits, radius, within=radius))
    within = radius
    while best.cost >= scan and within > 0:
        within -= 1
        best = _cheapest(_choices(n_rows, n_bits, radius, within=within))
    chosen = substring_choice(n_rows, n_bits, radius, best.substrings)
    return SubstringChoice(**{**vars(chosen), "reason": _reason(chosen, n_rows, n_bits, radius, scan)})


def substring_choices(n_rows: int, n_bits: int, radius: int) -> tuple[SubstringChoice, ...]:
    """Return the cost of each number of substrings that an index may choose, in ascending order of that number."""
    n_rows, n_bits = check_n_rows(n_rows), check_n_bits(n_bits)
    radius = check_radius(radius, n_bits)
    return tuple(_choices(n_rows, n_bits, radius, within=radius))


def substring_choice(
    n_rows: int, n_bits: int, radius: int, substrings: int, *, within: int | None = None, excerpts: bool = True
) -> SubstringChoice:
    """Return the cost of a search in tables of so many substrings, by an index made for `radius`.

    Args:
        n_rows: rows in the tables.
        n_bits: bits of a code.
        radius: that of the index, by which excerpts are chosen.
        substrings: number of tables.
        within: radius of the search; that of the index by default.
        excerpts: tables may hold excerpts, as they do where the index chose their number.
    """
    within = radius if within is None else within
    n_bytes = n_bits // 8
    lengths = tuple(stop - start for start, stop in substring_bounds(n_bits, substrings))
    flips = tuple((within - table) // substrings for table in range(substrings))
    excerpt_bytes = _excerpt_bytes(n_bytes, radius, substrings) if excerpts else 0
    row_bytes = _row_bytes(n_bytes, substrings, excerpt_bytes)
    buckets, candidates, cost = 0, 0.0, 0.0
    for table, (length, flipped) in enumerate(zip(lengths, flips, strict=True)):
        bits = directory_bits(n_rows, length)
        looked_up = sum(comb(bits, count) for count in range(min(flipped, bits) + 1))
        rows = n_rows / 2**bits
        has_excerpts = excerpt_bytes > 0 and table > 0
        entry_bytes = _ROW_NUMBER_BYTES + (excerpt_bytes if has_excerpts else n_bytes)
        buckets += looked_up
        candidates += looked_up * rows
        cost += looked_up * _bucket_cost(rows, entry_bytes, n_rows * row_bytes, has_excerpts=has_excerpts)
    return SubstringChoice(substrings, lengths, flips, excerpt_bytes, buckets, candidates, row_bytes, cost)


def scan_cost(n_rows: int, n_bits: int) -> float:
    """Return the nanoseconds that reading every row takes."""
    return _SCANNED_BYTE * n_rows * (n_bits // 8)


def directory_bits(n_rows: int, length: int) -> int:
    """Return the bits of a bucket's number, at most about log2 of the rows: directory_bits of the native core."""
    return min(length, min(max(4, n_rows.bit_length()), _MAX_KEY_BITS + 2) - 2)


def in_words(value: float) -> str:
    """Return a number with as many digits as matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def check_n_rows(n_rows: int) -> int:
    """Return a number of rows, checked."""
    if not isinstance(n_rows, int | np.integer) or isinstance(n_rows, bool):
        raise DtypeError(f"n_rows is {n_rows!r}; expected an integer")
    if n_rows < 1:
        raise InputError(f"n_rows is {n_rows}; expected 1 or more: the number of rows that will be searched")
    return int(n_rows)


def _choices(n_rows: int, n_bits: int, radius: int, *, within: int) -> list[SubstringChoice]:
    n_bytes = n_bits // 8
    most_bytes = _MOST_ROW_BYTES * max(1, n_bytes // _MOST_ROW_BYTES_OF) ** 2
    choices = [substring_choice(n_rows, n_bits, radius, 1, within=within)]
    for substrings in range(2, within + 2):
        excerpt_bytes = _excerpt_bytes(n_bytes, radius, substrings)
        most = most_bytes if excerpt_bytes else max(most_bytes, _MOST_WHOLE_BYTES)
        if _row_bytes(n_bytes, substrings, excerpt_bytes) > most:
            break
        choices.append(substring_choice(n_rows, n_bits, radius, substrings, within=within))
    return choices


def _cheapest(choices: Sequence[SubstringChoice]) -> SubstringChoice:
    return min(choices, key=lambda choice: choice.cost)


def _bucket_cost(rows: float, entry_bytes: int, table_bytes: float, *, has_excerpts: bool) -> float:
    far = table_bytes / (table_bytes + _CACHE_BYTES)
    fetched = _FETCHED_SHARE * _FETCHED_CODE if has_excerpts else 0.0
    lookup = _BUCKET + far * (_FAR_BUCKET + _FAR_BYTE * min(rows * entry_bytes, _NOTICED_BYTES))
    return lookup + rows * (_ENTRY + _ENTRY_BYTE * entry_bytes + fetched)


def _excerpt_bytes(n_bytes: int, radius: int, substrings: int) -> int:
    """Return how many bytes of a code stand in all tables but the first; 0 where whole codes are short enough."""
    if _row_bytes(n_bytes, substrings, 0) <= _MOST_WHOLE_BYTES:
        return 0
    for count in range(4, n_bytes - _ROW_NUMBER_BYTES, 2):
        if 4 * count - _DEVIATIONS * sqrt(2 * count) > radius + 0.5:
            return count
    return 0


def _row_bytes(n_bytes: int, substrings: int, excerpt_bytes: int) -> int:
    return n_bytes + _ROW_NUMBER_BYTES + (substrings - 1) * ((excerpt_bytes or n_bytes) + _ROW_NUMBER_BYTES)


def _reason(choice: SubstringChoice, n_rows: int, n_bits: int, radius: int, scan: float) -> str:
    text = (
        f"With {choice.substrings} substring{'s' if choice.substrings > 1 else ''} a query looks up "
        f"{in_words(choice.buckets)} bucket{'s' if choice.buckets != 1 else ''} and reads about "
        f"{in_words(choice.candidates)} of {n_rows:,} rows"
    )
    if choice.substrings < radius + 1:
        other = substring_choice(n_rows, n_bits, radius, radius + 1, excerpts=False)
        text += f"; with {radius + 1}, {in_words(other.buckets)} buckets and {in_words(other.candidates)} rows"
    text += "."
    if choice.cost >= scan:
        text += " A linear scan is cheaper, and the index will do that."
    return text
