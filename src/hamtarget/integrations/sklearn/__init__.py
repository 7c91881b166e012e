"""Steps for scikit-learn: binary codes (`HashTransformer`, needs torch) and nearest neighbours (`NeighborTransformer`).

Neither is imported before it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports
from hamtarget.errors import MissingExtraError

try:
    import sklearn.base  # noqa: F401
except ImportError as error:
    raise MissingExtraError(
        "hamtarget.integrations.sklearn needs scikit-learn: pip install 'hamtarget[sklearn]'"
    ) from error

if TYPE_CHECKING:
    from hamtarget.integrations.sklearn.hash_transformer import HashTransformer
    from hamtarget.integrations.sklearn.neighbor_transformer import NeighborTransformer

__all__ = [
    "HashTransformer",
    "NeighborTransformer",
]

_HOMES = {
    "HashTransformer": "hamtarget.integrations.sklearn.hash_transformer",
    "NeighborTransformer": "hamtarget.integrations.sklearn.neighbor_transformer",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
