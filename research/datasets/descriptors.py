"""Generate vectors that look like SIFT descriptors, for trials and tests without the real ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def generated_descriptors(rows: int, *, seed: int) -> NDArray[np.uint8]:
    """Return vectors of 128 bytes: few degrees of freedom, bent, not negative, of nearly equal length; (rows, 128).

    Different seeds give different vectors of the same kind, so that some can be learned from and others searched.
    """
    world = np.random.default_rng(7)
    inner, outer = world.normal(scale=0.7, size=(12, 64)), world.normal(scale=0.25, size=(64, 128))
    random = np.random.default_rng(seed)
    values = np.tanh(random.normal(size=(rows, 12)) @ inner) @ outer + 0.3 * random.normal(size=(rows, 128))
    values = np.maximum(values, 0)
    result: NDArray[np.uint8] = np.clip(
        np.rint(512 * values / np.linalg.norm(values, axis=1, keepdims=True)), 0, 255
    ).astype(np.uint8)
    return result
