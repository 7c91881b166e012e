"""The hash `imagehash.dhash`, bit for bit."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import PictureForm
from hamtarget.encoders.pictures.picture_hash import PictureHash


class DHash(PictureHash):
    """`imagehash.dhash` with its defaults: is each pixel of a small picture brighter than its left neighbour?"""

    name = "dhash"
    n_bits = 64
    picture_form = PictureForm((8, 9), "imagehash", "lanczos")

    def _values(self, pictures: NDArray[np.number]) -> NDArray[np.number]:
        values: NDArray[np.float64] = np.diff(pictures.astype(np.float64), axis=2)
        return values
