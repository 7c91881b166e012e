"""The hash `imagehash.phash`, bit for bit."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import PictureForm
from hamtarget.encoders.pictures.picture_hash import PictureHash

# Sides of the picture whose cosine transform is taken, and of the part of the lowest frequencies.
_SIDE, _LOW_SIDE = 32, 8


class PHash(PictureHash):
    """`imagehash.phash` with its defaults: the lowest frequencies of a cosine transform, above their median or not."""

    name = "phash"
    n_bits = 64
    picture_form = PictureForm((_SIDE, _SIDE), "imagehash", "lanczos")

    def _values(self, pictures: NDArray[np.number]) -> NDArray[np.number]:
        frequencies = _cosine_transform(_cosine_transform(pictures.astype(np.float64)).swapaxes(1, 2))
        low = frequencies.swapaxes(1, 2)[:, :_LOW_SIDE, :_LOW_SIDE]
        # The median of 64 numbers is the mean of two; the others differ from it by more than rounding, or tie.
        values: NDArray[np.float64] = low - np.median(low, axis=(1, 2), keepdims=True)
        return values


def _cosine_transform(signals: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosine transform (type II, unscaled) along axis 1, rounded as scipy rounds it.

    Frequencies of a plain picture are all 0 but for rounding, and yet each is above the median or not. So that bits
    agree even there, every operation is that of pocketfft, which scipy uses: the signal is folded, transformed by a
    real inverse Fourier transform (numpy's is pocketfft, too), and turned by twiddle factors.

    Args:
        signals: (rows, length, columns), of even length.
    """
    length = signals.shape[1]
    middle = length // 2
    # Numbers 1, 3, 5 ... give real parts with their successors' sums, and imaginary parts with the differences.
    folded = np.zeros((signals.shape[0], middle + 1, signals.shape[2]), dtype=np.complex128)
    folded[:, 0] = 2 * signals[:, 0]
    folded[:, 1:middle].real = signals[:, 2::2] + signals[:, 1:-1:2]
    folded[:, 1:middle].imag = signals[:, 2::2] - signals[:, 1:-1:2]
    folded[:, middle] = 2 * signals[:, -1]
    turned = np.fft.irfft(folded, length, axis=1, norm="forward")
    factors = _twiddles(length)
    result = np.empty_like(turned)
    result[:, 0] = turned[:, 0]
    result[:, middle] = turned[:, middle] * factors[middle - 1]
    ahead, back = slice(1, middle), slice(length - 1, middle, -1)
    near, far = factors[: middle - 1, None], factors[length - 2 : middle - 1 : -1, None]
    sums = near * turned[:, back] + far * turned[:, ahead]
    differences = near * turned[:, ahead] - far * turned[:, back]
    result[:, ahead] = 0.5 * (sums + differences)
    result[:, back] = 0.5 * (sums - differences)
    return result


@cache
def _twiddles(length: int) -> NDArray[np.float64]:
    """Return cos(pi k / (2 length)) for k from 1 to length, each rounded as the product of two table entries."""
    turn = 4 * length
    shift = 1
    while (1 << 2 * shift) < (turn + 2) // 2:
        shift += 1
    step = 1 << shift
    cosines = []
    for k in range(1, length + 1):
        (low_cos, low_sin), (high_cos, high_sin) = _point(k % step, turn), _point(k // step * step, turn)
        cosines.append(low_cos * high_cos - low_sin * high_sin)
    return np.array(cosines)


def _point(k: int, turn: int) -> tuple[float, float]:
    """Return the cosine and the sine of 2 pi k / turn, a quarter of a turn at most."""
    angle = 0.25 * math.pi / turn
    eighths = 8 * k
    if eighths < turn:
        return math.cos(eighths * angle), math.sin(eighths * angle)
    return math.sin((2 * turn - eighths) * angle), math.cos((2 * turn - eighths) * angle)
