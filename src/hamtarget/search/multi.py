"""Search that reads only what can be near: the paper's multi-index (section 1.2), exact for every radius."""

from __future__ import annotations

import numpy as np

from hamtarget.codes import check_n_bits, check_radius
from hamtarget.errors import DtypeError, InputError
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.index import CodeIndex


class MultiIndex(CodeIndex):
    """An index that reads only rows that can be near: codes of `n_bits` bits and their ids, in tables of substrings.

    A row within `radius` equals the query in one of radius + 1 substrings, so that one bucket of each table is read.
    With fewer substrings, or for a larger radius, buckets that differ by a few bits are read as well. Where that
    would take longer than reading every row, every row is read: the result is the same.

    Example:
        >>> import numpy as np
        >>> codes = np.random.default_rng(0).integers(0, 256, (1000, 8), dtype=np.uint8)
        >>> index = MultiIndex(64, radius=2)
        >>> index.add(np.arange(1000), codes)
        >>> index.search(codes[5])
        Hits(1 hit: Hit(id=5, distance=0))
        >>> index.search_batch(codes[:10], threads=2)
        BatchHits(10 queries, 10 hits)
        >>> index
        MultiIndex(rows=1,000, n_bits=64, radius=2, substrings=3, memory=...)
    """

    _has_tables = True

    def __init__(
        self, n_bits: int, radius: int, *, substrings: int | None = None, embeddings: Embeddings | None = None
    ) -> None:
        """Create an empty index.

        Args:
            n_bits: bits of a code, a multiple of 8 from 8 to 1,024.
            radius: that of searches that do not name one.
            substrings: number of tables, 1 to radius + 1, which is the default;
                `planning.choose_substrings` says which number suits how many rows.
            embeddings: kind of the embeddings that are kept with the codes; none by default.

        Raises:
            InputError: a number is out of range.
            DtypeError: a number is not an integer.
        """
        n_bits = check_n_bits(n_bits)
        radius = check_radius(radius, n_bits)
        substrings = radius + 1 if substrings is None else _check_substrings(substrings, radius)
        super().__init__(n_bits, substrings=substrings, radius=radius, embeddings=embeddings)

    @property
    def substrings(self) -> int:
        """Number of substrings, and of tables."""
        return self._core.n_tables


def _check_substrings(substrings: int, radius: int) -> int:
    if not isinstance(substrings, int | np.integer) or isinstance(substrings, bool):
        raise DtypeError(f"substrings is {substrings!r}; expected an integer")
    if not 1 <= substrings <= radius + 1:
        raise InputError(f"substrings is {substrings}; expected 1 to radius + 1 ({radius + 1})")
    return int(substrings)
