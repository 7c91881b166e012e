"""The tables of an index in words: how many substrings suit its rows, and what a search in them is expected to cost.

The native core computes the figures (native/core/table_plan.cpp), by which every piece of an index gets its tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hamtarget._checks import check_integer
from hamtarget._core import _native
from hamtarget.codes import check_n_bits, check_radius

_ROWS_OF_A_TABLE = 8
_MOST_ROWS = 2**62


@dataclass(frozen=True)
class SubstringChoice:
    """A number of substrings, and the cost of a search if codes are well distributed (uniform)."""

    substrings: int
    lengths: tuple[int, ...]
    """Bits of each substring."""
    flips: tuple[int, ...]
    """Bits of each substring in which buckets are read that differ from the query's own."""
    excerpt_bytes: int
    """Bytes of a code in each table but the first; 0: whole codes in every table."""
    buckets: int
    """Buckets that a query looks up."""
    candidates: float
    """Rows that a query reads, a row in several buckets counted in each."""
    bytes_per_row: int
    """Bytes of a row in all tables, without its id."""
    memory: int
    """Most bytes that a compact index takes: tables, row numbers and ids."""
    cost: float
    """Nanoseconds that a query is expected to take, or would on the machine that the costs were measured on."""
    reason: str = ""
    """Why this number, in a sentence or two, where it is the choice of `choose_substrings`."""


@dataclass(frozen=True, repr=False)
class TableExplanation:
    """An explanation of the tables of an index; `print` shows it as a page.

    Attributes:
        n_rows: rows of the largest piece, which the other figures are about.
        n_codes: its codes that are stored; fewer than rows where rows share codes.
        n_bits: bits of a code.
        radius: that of the index.
        is_planned: the index chose the number of substrings; False: its maker did.
        tables: the substrings there are, and the expected cost of a search.
        alternatives: the other numbers of substrings, cheapest first.
        scan: nanoseconds that reading every row takes.
        pieces: rows and substrings of every piece, the largest first; 0 substrings: it is scanned.
        memory: bytes of the index.
        why: the reason, in a sentence or two.
    """

    n_rows: int
    n_codes: int
    n_bits: int
    radius: int
    is_planned: bool
    tables: SubstringChoice
    alternatives: tuple[SubstringChoice, ...]
    scan: float
    pieces: tuple[tuple[int, int], ...]
    memory: int
    why: str

    @classmethod
    def of(cls, core: _native.MultiIndex, substrings: int) -> TableExplanation:
        """Explain an index of the core by the substrings of its largest piece."""
        parts, radius, n_bits = core.parts, core.radius, 8 * core.n_bytes
        pieces = tuple((rows, tables) for rows, tables, *_ in parts)
        # Equal codes are read once, so they cost a search nothing.
        n_codes = max(1, parts[0][-1] if parts else 0)
        chosen = choose_substrings(n_codes, n_bits, radius)
        if not any(tables for _, tables in pieces):
            why = "There are so few rows that every row is read; tables come with more."
        elif chosen.substrings == substrings:
            why = chosen.reason
        elif core.is_planned:
            why = f"{substrings} substrings were chosen for other rows; {chosen.substrings} would suit these."
        else:
            why = f"{substrings} substrings were asked for; the index would choose {chosen.substrings}."
        others = [each for each in substring_choices(n_codes, n_bits, radius) if each.substrings != substrings]
        return cls(
            max(1, pieces[0][0] if pieces else 0),
            n_codes,
            n_bits,
            radius,
            core.is_planned,
            _choice(n_codes, n_bits, radius, substrings, is_planned=core.is_planned),
            tuple(sorted(others, key=lambda choice: choice.cost)),
            _native.scan_cost(n_codes, core.n_bytes),
            pieces,
            core.memory,
            why,
        )

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        tables = self.tables
        kept = (
            f"{tables.excerpt_bytes} bytes of a code in each but the first" if tables.excerpt_bytes else "whole codes"
        )
        shared = f" with {self.n_codes:,} different codes, each stored once" if self.n_codes < self.n_rows else ""
        lines = [
            f"{self.n_rows:,} rows of {self.n_bits:,} bits{shared}, radius {self.radius}",
            self.why,
            f"{tables.substrings} tables of {_spread(tables.lengths)} bits, up to {max(tables.flips)} flipped; {kept}",
            f"{tables.bytes_per_row:,} bytes a code in the tables; {self.memory:,} bytes in all",
            "",
            "substrings  look-ups  candidates  bytes a row  expected us",
        ]
        for choice in (tables, *self.alternatives[:_ROWS_OF_A_TABLE]):
            mark = "  (this index)" if choice is tables else ""
            lines.append(
                f"{choice.substrings:10,}  {choice.buckets:8,}  {in_words(choice.candidates):>10}  "
                f"{choice.bytes_per_row:11,}  {in_words(choice.cost / 1000):>11}{mark}"
            )
        lines.append(f"      scan                                      {in_words(self.scan / 1000):>11}")
        if len(self.pieces) > 1:
            shown = ", ".join(f"{rows:,} rows in {tables or 'no'} tables" for rows, tables in self.pieces)
            lines.append(f"pieces: {shown}")
        return "\n".join(lines)


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
    n_rows, n_bits, radius = _checked(n_rows, n_bits, radius)
    chosen = _choice(n_rows, n_bits, radius, _native.planned_tables(n_bits // 8, radius, n_rows))
    return replace(chosen, reason=_reason(chosen, n_rows, n_bits, radius))


def substring_choices(n_rows: int, n_bits: int, radius: int) -> tuple[SubstringChoice, ...]:
    """Return the cost of each number of substrings that an index may choose, in ascending order of that number.

    Raises:
        As `choose_substrings`.
    """
    n_rows, n_bits, radius = _checked(n_rows, n_bits, radius)
    return tuple(_of_core(found) for found in _native.table_choices(n_bits // 8, radius, n_rows))


def in_words(value: float) -> str:
    """Return a number with as many digits as matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _checked(n_rows: int, n_bits: int, radius: int) -> tuple[int, int, int]:
    n_bits = check_n_bits(n_bits)
    return check_integer(n_rows, name="n_rows", most=_MOST_ROWS), n_bits, check_radius(radius, n_bits)


def _choice(n_rows: int, n_bits: int, radius: int, substrings: int, *, is_planned: bool = True) -> SubstringChoice:
    """Return the cost of a number of tables; only an index that chose their number has excerpts in them."""
    return _of_core(_native.table_choice(n_bits // 8, radius, n_rows, substrings, is_planned))


def _of_core(found: tuple[Any, ...]) -> SubstringChoice:
    substrings, lengths, flips, excerpt_bytes, buckets, candidates, row_bytes, memory, cost = found
    return SubstringChoice(
        substrings, tuple(lengths), tuple(flips), excerpt_bytes, buckets, candidates, row_bytes, int(memory), cost
    )


def _reason(choice: SubstringChoice, n_rows: int, n_bits: int, radius: int) -> str:
    text = (
        f"With {choice.substrings} substring{'s' if choice.substrings > 1 else ''} a query looks up "
        f"{in_words(choice.buckets)} bucket{'s' if choice.buckets != 1 else ''} and reads about "
        f"{in_words(choice.candidates)} of {n_rows:,} rows"
    )
    if choice.substrings < radius + 1:
        other = _choice(n_rows, n_bits, radius, radius + 1)
        text += f"; with {radius + 1}, {in_words(other.buckets)} buckets and {in_words(other.candidates)} rows"
    text += "."
    if choice.cost >= _native.scan_cost(n_rows, n_bits // 8):
        text += " A linear scan is cheaper, and the index will do that."
    return text


def _spread(numbers: tuple[int, ...]) -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else f"{min(numbers)} to {max(numbers)}"
