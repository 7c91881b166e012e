"""What every method that turns inputs into codes has in common."""

from __future__ import annotations

from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray


@runtime_checkable
class Encoder(Protocol):
    """A learned map from inputs to binary codes: HashEncoder and every baseline are one."""

    n_bits: int

    def fit(self, inputs: ArrayLike, similar: Any = None) -> Self:
        """The encoder itself, having learned from `inputs` (and, where it can, from what is similar)."""
        ...

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Real values before the sign, (rows, n_bits)."""
        ...

    def encode(self, inputs: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes, (rows, n_bits / 8)."""
        ...
