"""Learn binary hash codes by Hamming distance targets, and search them exactly and fast.

The names below come from the package's rooms: `hamtarget.learn`, `hamtarget.encoders`, `hamtarget.search` and
`hamtarget.store`. Importing `hamtarget` alone imports nothing slow: torch is imported with the first use of
`HashEncoder`, the native core with the first use of an index.

Example:
    >>> import numpy as np
    >>> from hamtarget import MultiIndex
    >>> index = MultiIndex(n_bits=64, radius=2)
    >>> index.add(np.arange(3), np.array([[0] * 8, [1] * 8, [255] * 8], dtype=np.uint8))
    >>> len(index)
    3
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.encoders import Encoder, OnnxEncoder, open_encoder
    from hamtarget.learn import HammingTargetLoss, HashEncoder, HashModel
    from hamtarget.query import Asked, Bounds, Query, Work
    from hamtarget.search import FlatIndex, MultiIndex, NeighborIndex
    from hamtarget.store import Store

__version__ = "0.1.0"

__all__ = [
    "Asked",
    "Bounds",
    "Encoder",
    "FlatIndex",
    "HammingTargetLoss",
    "HashEncoder",
    "HashModel",
    "MultiIndex",
    "NeighborIndex",
    "OnnxEncoder",
    "Query",
    "Store",
    "Work",
    "open_encoder",
]

_HOMES = {
    "Asked": "hamtarget.query",
    "Bounds": "hamtarget.query",
    "Encoder": "hamtarget.encoders",
    "FlatIndex": "hamtarget.search",
    "HammingTargetLoss": "hamtarget.learn",
    "HashEncoder": "hamtarget.learn",
    "HashModel": "hamtarget.learn",
    "MultiIndex": "hamtarget.search",
    "NeighborIndex": "hamtarget.search",
    "OnnxEncoder": "hamtarget.encoders",
    "Query": "hamtarget.query",
    "Store": "hamtarget.store",
    "Work": "hamtarget.query",
    "open_encoder": "hamtarget.encoders",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
