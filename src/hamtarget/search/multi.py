"""Search that reads only what can be near: the paper's multi-index (section 1.2), exact for every radius."""

from __future__ import annotations

import numpy as np

from hamtarget.codes import check_n_bits, check_radius
from hamtarget.errors import DtypeError, InputError
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.index import CodeIndex
from hamtarget.search.table_costs import choose_substrings, scan_cost, substring_choice, substring_choices
from hamtarget.search.table_explanation import TableExplanation


class MultiIndex(CodeIndex):
    """An index that reads only rows that can be near: codes of `n_bits` bits and their ids, in tables of substrings.

    A row within `radius` equals the query in one of radius + 1 substrings, so that one bucket of each table is read.
    With fewer substrings, or for a larger radius, buckets that differ by a few bits are read as well. The index chooses
    the number of substrings by what a search is expected to cost, and again when it has grown: `explain` tells how.
    Where reading every row is faster than all of that, every row is read: the result is the same.

    Example:
        >>> import numpy as np
        >>> codes = np.random.default_rng(0).integers(0, 256, (1000, 8), dtype=np.uint8)
        >>> index = MultiIndex(64, radius=2)
        >>> index.add(np.arange(1000), codes)
        >>> index.search(codes[5])
        Hits(1 hit: Hit(id=5, distance=0))
        >>> index.search_batch(codes[:10])
        Answer(10 queries, 10 hits)
        >>> index
        MultiIndex(rows=1,000, n_bits=64, radius=2, substrings=3, memory=...)
    """

    _has_tables = True

    def __init__(
        self, n_bits: int, radius: int, *, substrings: int | None = None, embeddings: Embeddings | None = None
    ) -> None:
        """Create an empty index.

        Args:
            n_bits: bits of a code, a multiple of 8 from 8 to 4,096.
            radius: that of searches that do not name one.
            substrings: number of tables, 1 to radius + 1; by default the index chooses it, for each piece by its rows
                (`table_costs.choose_substrings`).
            embeddings: kind of the embeddings that are kept with the codes; none by default.

        Raises:
            InputError: a number is out of range.
            DtypeError: a number is not an integer.
        """
        n_bits = check_n_bits(n_bits)
        radius = check_radius(radius, n_bits)
        super().__init__(
            n_bits,
            substrings=radius + 1 if substrings is None else _check_substrings(substrings, radius),
            radius=radius,
            embeddings=embeddings,
            is_planned=substrings is None,
        )

    @property
    def substrings(self) -> int:
        """Number of substrings, and of tables, of the largest piece; radius + 1 where none has tables yet."""
        return next((tables for _, tables, *_ in self.core.parts if tables), self.core.n_tables)

    def _more_in_words(self) -> list[str]:
        return [f"substrings={self.substrings}"]

    @property
    def is_planned(self) -> bool:
        """True if the index chooses the number of substrings; False if its maker did."""
        return self.core.is_planned

    def explain(self) -> TableExplanation:
        """Explain the tables: substrings, look-ups, expected candidates and bytes, and the alternatives.

        Figures are those of codes that are spread evenly. `search(..., work=Work(costs=True))` counts what a query
        really takes.

        Example:
            >>> codes = np.random.default_rng(0).integers(0, 256, (5000, 8), dtype=np.uint8)
            >>> index = MultiIndex(64, radius=2)
            >>> index.add(np.arange(5000), codes)
            >>> print(index.explain().why)
            With 3 substrings a query looks up 3 buckets and reads about 7.3 of 5,000 rows.
        """
        parts = self.core.parts
        pieces = tuple((rows, tables) for rows, tables, *_ in parts)
        n_rows = max(1, pieces[0][0] if pieces else 0)
        # Equal codes are read once, so they cost a search nothing.
        n_codes = max(1, parts[0][-1] if parts else 0)
        radius = self.core.radius
        tables = substring_choice(n_codes, self.n_bits, radius, self.substrings, excerpts=self.is_planned)
        others = [
            each for each in substring_choices(n_codes, self.n_bits, radius) if each.substrings != self.substrings
        ]
        chosen = choose_substrings(n_codes, self.n_bits, radius)
        if not any(count for _, count in pieces):
            why = "There are so few rows that every row is read; tables come with more."
        elif chosen.substrings == self.substrings:
            why = chosen.reason
        elif self.is_planned:
            why = f"{self.substrings} substrings were chosen for other rows; {chosen.substrings} would suit these."
        else:
            why = f"{self.substrings} substrings were asked for; the index would choose {chosen.substrings}."
        return TableExplanation(
            n_rows,
            n_codes,
            self.n_bits,
            radius,
            self.is_planned,
            tables,
            tuple(sorted(others, key=lambda choice: choice.cost)),
            scan_cost(n_codes, self.n_bits),
            pieces,
            self.memory,
            why,
        )


def _check_substrings(substrings: int, radius: int) -> int:
    if not isinstance(substrings, int | np.integer) or isinstance(substrings, bool):
        raise DtypeError(f"substrings is {substrings!r}; expected an integer")
    if not 1 <= substrings <= radius + 1:
        raise InputError(f"substrings is {substrings}; expected 1 to radius + 1 ({radius + 1})")
    return int(substrings)
