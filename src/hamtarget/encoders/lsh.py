"""Locality-sensitive hashing: signs of random projections."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hamtarget.encoders.linear import LinearEncoder


class LSH(LinearEncoder):
    """sgn(W (x - mean)) with W ~ N(0, 1): learns nothing of the data but their mean.

    A bit of two inputs differs with probability angle / pi, the angle taken between the centred inputs.
    """

    def _learn_projection(self, vectors: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float32]:
        random = np.random.default_rng(self.seed)
        return random.standard_normal((self.n_bits, vectors.shape[1]), dtype=np.float32).T
