"""Search: codes by Hamming distance, exact or by a budget, and vectors by their nearest neighbours.

Nothing is imported until it is asked for. Indexes need the native core; a `FlatIndex` on a device does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.answer import Answer, Hit
    from hamtarget.search.embeddings import Embeddings, unit_int8
    from hamtarget.search.flat import FlatIndex
    from hamtarget.search.multi import MultiIndex
    from hamtarget.search.neighbor_index import NeighborIndex
    from hamtarget.search.pairs import pairs_within

__all__ = [
    "Answer",
    "Embeddings",
    "FlatIndex",
    "Hit",
    "MultiIndex",
    "NeighborIndex",
    "pairs_within",
    "unit_int8",
]

_HOMES = {
    "Answer": "hamtarget.answer",
    "Embeddings": "hamtarget.search.embeddings",
    "FlatIndex": "hamtarget.search.flat",
    "Hit": "hamtarget.answer",
    "MultiIndex": "hamtarget.search.multi",
    "NeighborIndex": "hamtarget.search.neighbor_index",
    "pairs_within": "hamtarget.search.pairs",
    "unit_int8": "hamtarget.search.embeddings",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
