"""Search that reads every code: no tables, no tuning, the reference for every other index."""

from __future__ import annotations

from hamtarget.codes import check_n_bits
from hamtarget.search.embeddings import Embeddings
from hamtarget.search.index import CodeIndex


class FlatIndex(CodeIndex):
    """Codes of `n_bits` bits and their ids; every search reads all of them."""

    _has_tables = False

    def __init__(self, n_bits: int, *, embeddings: Embeddings | None = None) -> None:
        """An empty index.

        Raises:
            InputError: `n_bits` is not a multiple of 8 from 8 to 1,024.
            DtypeError: it is not an integer.
        """
        super().__init__(check_n_bits(n_bits), substrings=0, radius=None, embeddings=embeddings)
