"""Search that reads every code: no tables, no tuning, the reference for every other index."""

from __future__ import annotations

from hamtarget.codes import check_n_bits
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.index import CodeIndex


class FlatIndex(CodeIndex):
    """An index without tables: codes of `n_bits` bits and their ids, all of which every search reads.

    It needs no radius and no tuning. Use it for few rows, or to check what another index finds.

    Example:
        >>> import numpy as np
        >>> index = FlatIndex(64)
        >>> index.add([7, 8], np.array([[0] * 8, [3] + [0] * 7], dtype=np.uint8))
        >>> index.search(np.zeros(8, dtype=np.uint8), radius=2)
        Hits(2 hits: Hit(id=7, distance=0), Hit(id=8, distance=2))
        >>> index
        FlatIndex(rows=2, n_bits=64, memory=...)
    """

    _has_tables = False

    def __init__(self, n_bits: int, *, embeddings: Embeddings | None = None) -> None:
        """Create an empty index.

        Raises:
            InputError: `n_bits` is not a multiple of 8 from 8 to 1,024.
            DtypeError: it is not an integer.
        """
        super().__init__(check_n_bits(n_bits), substrings=0, radius=None, embeddings=embeddings)
