"""The explanation that `MultiIndex.explain` returns: tables, what a search in them costs, and the alternatives."""

from __future__ import annotations

from dataclasses import dataclass

from hamtarget.search.table_costs import SubstringChoice, in_words

_ROWS_OF_A_TABLE = 8


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


def _spread(numbers: tuple[int, ...]) -> str:
    return str(numbers[0]) if len(set(numbers)) == 1 else f"{min(numbers)} to {max(numbers)}"
