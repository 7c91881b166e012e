"""Exact search by Hamming distance, on the native core."""

from hamtarget.errors import MissingExtraError

try:
    from hamtarget import _native as _native
except ImportError as error:
    raise MissingExtraError(
        f"the native core hamtarget._native cannot be imported ({error}); hamtarget.search is built on it: "
        "run `pip install .` in the source folder (it needs a C++20 compiler)"
    ) from error

from hamtarget.search.embeddings import Embeddings, unit_int8
from hamtarget.search.flat import FlatIndex
from hamtarget.search.multi import MultiIndex
from hamtarget.search.pairs import Pairs, pairs_within
from hamtarget.search.results import BatchHits, Cost, Costs, Hit, Hits

__all__ = [
    "BatchHits",
    "Cost",
    "Costs",
    "Embeddings",
    "FlatIndex",
    "Hit",
    "Hits",
    "MultiIndex",
    "Pairs",
    "pairs_within",
    "unit_int8",
]
