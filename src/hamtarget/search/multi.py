"""Search that reads only what can be near: the paper's multi-index (section 1.2), exact for every radius."""

from __future__ import annotations

from hamtarget._checks import check_integer
from hamtarget.codes import check_n_bits, check_radius
from hamtarget.search.embeddings import Embeddings, check_kind
from hamtarget.search.index import CodeIndex
from hamtarget.search.tables import TableExplanation


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
                (`hamtarget.search.tables.choose_substrings`).
            embeddings: kind of the embeddings that are kept with the codes; none by default.

        Raises:
            InputError: a number is out of range.
            DtypeError: a number is not an integer, or `embeddings` are not `Embeddings`.
        """
        n_bits = check_n_bits(n_bits)
        radius = check_radius(radius, n_bits)
        check_kind(embeddings)
        is_planned = substrings is None
        if substrings is None:
            substrings = radius + 1
        substrings = check_integer(substrings, name="substrings", most=radius + 1, note="radius + 1 at most")
        super().__init__(n_bits, substrings=substrings, radius=radius, embeddings=embeddings, is_planned=is_planned)

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
        return TableExplanation.of(self.core, self.substrings)
