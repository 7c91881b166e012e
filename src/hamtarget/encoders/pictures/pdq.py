"""The hash `pdqhash.compute`, bit for bit."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._picture_form import PictureForm
from hamtarget.encoders.pictures.picture_hash import PictureHash

# Sides of the reduced picture, and of the part of its frequencies that are kept: 1 to 16, without the mean.
_SIDE, _KEPT_SIDE = 64, 16
# The median of an even number of values is the lower of the two in the middle.
_MEDIAN = _KEPT_SIDE**2 // 2 - 1
_LEVELS = 255
_BEST_QUALITY = 100
# Steps of brightness, in percent, that are worth one point of quality.
_STEPS_OF_A_POINT = 90


class PDQ(PictureHash):
    """`pdqhash.compute`: low frequencies of a cosine transform, above their median or not.

    Sums are taken in single precision and in the order of the reference, so that even the bits of a plain picture are
    the same.
    """

    name = "pdq"
    n_bits = 256
    picture_form = PictureForm((_SIDE, _SIDE), "pdqhash")

    def quality(self, inputs: ArrayLike) -> NDArray[np.int64]:
        """Return how much detail each picture has, from 0 to 100, (rows,). Hashes below 50 are not to be relied on.

        Args:
            inputs: (rows, 64, 64), pictures in `picture_form`.
        """
        pictures = np.asarray(inputs, dtype=np.float32).reshape(-1, _SIDE, _SIDE)
        total = np.zeros(len(pictures), dtype=np.int64)
        for axis in (1, 2):
            # Truncated towards 0, as the reference does: steps below one percent do not count.
            steps = (np.diff(pictures, axis=axis) * np.float32(100) / np.float32(_LEVELS)).astype(np.int64)
            total += np.abs(steps).sum(axis=(1, 2))
        return np.minimum(total // _STEPS_OF_A_POINT, _BEST_QUALITY)

    def _values(self, pictures: NDArray[np.number]) -> NDArray[np.number]:
        reduced: NDArray[np.float32] = pictures.astype(np.float32)
        cosines = _cosines()
        down = np.zeros((len(pictures), _KEPT_SIDE, _SIDE), dtype=np.float32)
        for k in range(_SIDE):
            down += cosines[:, k, None] * reduced[:, None, k, :]
        frequencies = np.zeros((len(pictures), _KEPT_SIDE, _KEPT_SIDE), dtype=np.float32)
        for k in range(_SIDE):
            frequencies += down[:, :, k, None] * cosines[None, None, :, k]
        flat = frequencies.reshape(len(pictures), -1)
        values: NDArray[np.float32] = flat - np.partition(flat, _MEDIAN, axis=1)[:, _MEDIAN, None]
        # The package writes the last frequency first.
        return values[:, ::-1]


@cache
def _cosines() -> NDArray[np.float32]:
    """Return the rows 1 to 16 of the matrix of the cosine transform of length 64."""
    scale = float(np.float32(math.sqrt(2 / _SIDE)))
    rows = [
        [scale * math.cos(math.pi / 2 / _SIDE * (row + 1) * (2 * column + 1)) for column in range(_SIDE)]
        for row in range(_KEPT_SIDE)
    ]
    return np.array(rows, dtype=np.float32)
