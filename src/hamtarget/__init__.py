"""Learn binary hash codes by Hamming distance targets, and search them exactly and fast.

Nothing slow is imported here: torch comes in with the first use of `HashEncoder`, the native core with that of
an index.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hamtarget.encoders import Encoder, OnnxEncoder, open_encoder
    from hamtarget.learn import HammingTargetLoss, HashEncoder, HashModel
    from hamtarget.search import FlatIndex, MultiIndex
    from hamtarget.store import Store

__version__ = "0.1.0"

__all__ = [
    "Encoder",
    "FlatIndex",
    "HammingTargetLoss",
    "HashEncoder",
    "HashModel",
    "MultiIndex",
    "OnnxEncoder",
    "Store",
    "open_encoder",
]

_HOMES = {
    "Encoder": "hamtarget.encoders",
    "FlatIndex": "hamtarget.search",
    "HammingTargetLoss": "hamtarget.learn",
    "HashEncoder": "hamtarget.learn",
    "HashModel": "hamtarget.learn",
    "MultiIndex": "hamtarget.search",
    "OnnxEncoder": "hamtarget.encoders",
    "Store": "hamtarget.store",
    "open_encoder": "hamtarget.encoders",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'hamtarget' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
