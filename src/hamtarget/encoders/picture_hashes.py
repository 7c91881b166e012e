"""Classic hashes of pictures, bit for bit: phash and dhash of the package imagehash, pdq of pdqhash."""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._files import write_atomically
from hamtarget._picture_form import PictureForm
from hamtarget.codes import Codes, check_finite, from_logits, unit_rows
from hamtarget.encoders.shipped import recorded_figures
from hamtarget.errors import DtypeError, ShapeError

HASH_FILE_NAME = "picture_hash.json"
"""Name of the file in the folder of a saved hash."""
HASH_FORMAT = 1

_ROWS_AT_A_TIME = 1024
_TINY = np.finfo(np.float32).tiny
# Sides of the picture whose cosine transform is taken, and of the part of the lowest frequencies.
_SIDE, _LOW_SIDE = 32, 8
# Sides of the reduced picture, and of the part of its frequencies that are kept: 1 to 16, without the mean.
_PDQ_SIDE, _PDQ_KEPT = 64, 16
# The median of an even number of values is the lower of the two in the middle.
_MEDIAN = _PDQ_KEPT**2 // 2 - 1
_LEVELS = 255
_BEST_QUALITY = 100
# Steps of brightness, in percent, that are worth one point of quality.
_STEPS_OF_A_POINT = 90


class PictureHash(ABC):
    """A hash that is computed from the pixels of a picture by a fixed rule.

    The digits of a code, `code.tobytes().hex()`, are those that the public packages write. They put a hash's first bit
    first, into the highest bit of a byte; bit k of a code is therefore bit `8 * (k // 8) + 7 - k % 8` of the package.

    Attributes:
        name: name by which `hamtarget.open_encoder` opens it.
        n_bits: bits of a code.
        picture_form: how pictures become inputs.
        radius: None, since no Hamming distance was trained for.
    """

    name: str
    n_bits: int
    picture_form: PictureForm
    radius: None = None

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: a picture in `picture_form`."""
        return self.picture_form.shape

    @property
    def recorded(self) -> Mapping[str, Any] | None:
        """Figures that were measured of the hash; None if there are none."""
        return recorded_figures(self.name)

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the real values before the threshold, minus the threshold, (rows, n_bits).

        Raises:
            ShapeError: an input does not have `input_shape`.
            DtypeError: the inputs are not numbers.
            NotFiniteError: an input holds NaN or infinity.
        """
        rows = np.asarray(inputs)
        if rows.dtype.kind not in "fiub":
            raise DtypeError(f"inputs have dtype {rows.dtype}; expected numbers")
        # Pictures in grey may come with their one channel.
        if rows.ndim == 0 or rows.shape[1:] not in (self.input_shape, (1, *self.input_shape)):
            raise ShapeError(
                f"inputs have shape {rows.shape}; {self.name} takes (rows, {', '.join(map(str, self.input_shape))}): "
                "read pictures by read_images(paths, encoder.picture_form)"
            )
        check_finite(rows, name="inputs")
        logits = np.empty((len(rows), self.n_bits), dtype=np.float32)
        for start in range(0, len(rows), _ROWS_AT_A_TIME):
            block = slice(start, start + _ROWS_AT_A_TIME)
            values = self._values(rows[block].reshape(-1, *self.input_shape)).reshape(-1, self.n_bits // 8, 8)
            logits[block] = _as_logits(values[:, :, ::-1].reshape(-1, self.n_bits))
        return logits

    def encode(self, inputs: ArrayLike) -> Codes:
        """Return packed codes, (rows, n_bits / 8)."""
        return from_logits(self.logits(inputs))

    def embedding(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the logits scaled to unit length, (rows, n_bits)."""
        return unit_rows(self.logits(inputs))

    def save(self, folder: str | Path) -> None:
        """Write the name of the hash to `folder`, from where `hamtarget.open_encoder` opens it."""
        content = json.dumps({"format": HASH_FORMAT, "picture_hash": self.name}) + "\n"
        write_atomically(Path(folder) / HASH_FILE_NAME, content.encode())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_bits={self.n_bits}) [inputs {self.input_shape}]"

    @abstractmethod
    def _values(self, pictures: NDArray[np.number]) -> NDArray[np.number]:
        """Return the real values of pictures minus their thresholds, the package's first bit first."""


def _as_logits(values: NDArray[np.number]) -> NDArray[np.float32]:
    """Return values as float32 of the same sign, however small they are."""
    logits = values.astype(np.float32)
    return np.where((values > 0) & (logits == 0), _TINY, logits)


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


class DHash(PictureHash):
    """`imagehash.dhash` with its defaults: is each pixel of a small picture brighter than its left neighbour?"""

    name = "dhash"
    n_bits = 64
    picture_form = PictureForm((8, 9), "imagehash", "lanczos")

    def _values(self, pictures: NDArray[np.number]) -> NDArray[np.number]:
        values: NDArray[np.float64] = np.diff(pictures.astype(np.float64), axis=2)
        return values


class PDQ(PictureHash):
    """`pdqhash.compute`: low frequencies of a cosine transform, above their median or not.

    Sums are taken in single precision and in the order of the reference, so that even the bits of a plain picture are
    the same.
    """

    name = "pdq"
    n_bits = 256
    picture_form = PictureForm((_PDQ_SIDE, _PDQ_SIDE), "pdqhash")

    def quality(self, inputs: ArrayLike) -> NDArray[np.int64]:
        """Return how much detail each picture has, from 0 to 100, (rows,). Hashes below 50 are not to be relied on.

        Args:
            inputs: (rows, 64, 64), pictures in `picture_form`.
        """
        pictures = np.asarray(inputs, dtype=np.float32).reshape(-1, _PDQ_SIDE, _PDQ_SIDE)
        total = np.zeros(len(pictures), dtype=np.int64)
        for axis in (1, 2):
            # Truncated towards 0, as the reference does: steps below one percent do not count.
            steps = (np.diff(pictures, axis=axis) * np.float32(100) / np.float32(_LEVELS)).astype(np.int64)
            total += np.abs(steps).sum(axis=(1, 2))
        return np.minimum(total // _STEPS_OF_A_POINT, _BEST_QUALITY)

    def _values(self, pictures: NDArray[np.number]) -> NDArray[np.number]:
        reduced: NDArray[np.float32] = pictures.astype(np.float32)
        cosines = _cosines()
        down = np.zeros((len(pictures), _PDQ_KEPT, _PDQ_SIDE), dtype=np.float32)
        for k in range(_PDQ_SIDE):
            down += cosines[:, k, None] * reduced[:, None, k, :]
        frequencies = np.zeros((len(pictures), _PDQ_KEPT, _PDQ_KEPT), dtype=np.float32)
        for k in range(_PDQ_SIDE):
            frequencies += down[:, :, k, None] * cosines[None, None, :, k]
        flat = frequencies.reshape(len(pictures), -1)
        values: NDArray[np.float32] = flat - np.partition(flat, _MEDIAN, axis=1)[:, _MEDIAN, None]
        # The package writes the last frequency first.
        return values[:, ::-1]


@cache
def _cosines() -> NDArray[np.float32]:
    """Return the rows 1 to 16 of the matrix of the cosine transform of length 64."""
    scale = float(np.float32(math.sqrt(2 / _PDQ_SIDE)))
    rows = [
        [scale * math.cos(math.pi / 2 / _PDQ_SIDE * (row + 1) * (2 * column + 1)) for column in range(_PDQ_SIDE)]
        for row in range(_PDQ_KEPT)
    ]
    return np.array(rows, dtype=np.float32)
