"""Locality-sensitive hashing: signs of random projections."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hamtarget.encoders.linear import LinearEncoder


class LSH(LinearEncoder):
    """Codes that are the signs of random projections, sgn(W (x - mean)) with W ~ N(0, 1).

    A bit of two inputs differs with probability angle / pi, where the angle is between the centred inputs. Only the
    mean is taken from the data, so `fit` is fast and needs no labels.

    Args:
        n_bits: bits of a code, a multiple of 8.
        seed: of the random projections.
        metric: by what vectors are near, as for `ITQ`.

    Example:
        >>> import numpy as np
        >>> vectors = np.random.default_rng(0).normal(size=(100, 16))
        >>> LSH(n_bits=32).fit(vectors).encode(vectors).shape
        (100, 4)
    """

    def _learn_projection(self, vectors: NDArray[np.float32], mean: NDArray[np.float32]) -> NDArray[np.float32]:
        random = np.random.default_rng(self.seed)
        return random.standard_normal((self.n_bits, vectors.shape[1]), dtype=np.float32).T
