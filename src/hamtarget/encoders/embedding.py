"""Embeddings: logits scaled to unit length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Shorter rows are divided by this length, as in torch: a row of zeros stays one.
_SHORTEST = np.float32(1e-12)


def unit_rows(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the rows scaled to unit length. A row of zeros stays one."""
    scaled: NDArray[np.float32] = logits / np.maximum(np.linalg.norm(logits, axis=1, keepdims=True), _SHORTEST)
    return scaled
