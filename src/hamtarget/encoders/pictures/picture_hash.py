"""The base of classic hashes of pictures, which need no training."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._files import write_atomically
from hamtarget._picture_form import PictureForm
from hamtarget.codes import Codes, check_finite, from_logits
from hamtarget.encoders.embedding import unit_rows
from hamtarget.encoders.shipped import recorded_figures
from hamtarget.errors import DtypeError, ShapeError

HASH_FILE_NAME = "picture_hash.json"
"""Name of the file in the folder of a saved hash."""
HASH_FORMAT = 1

_ROWS_AT_A_TIME = 1024
_TINY = np.finfo(np.float32).tiny


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
