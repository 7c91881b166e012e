"""What an encoder is: the agreement between whoever makes codes and whoever keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    # The command shows its help without waiting for numpy.
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


@runtime_checkable
class Encoder(Protocol):
    """A learned map from inputs to binary codes: HashEncoder and every baseline are one."""

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        ...

    def fit(self, inputs: ArrayLike, similar: Any = None) -> Self:
        """The encoder itself, having learned from `inputs` (and, where it can, from what is similar)."""
        ...

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Real values before the sign, (rows, n_bits)."""
        ...

    def encode(self, inputs: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes, (rows, n_bits / 8)."""
        ...


@runtime_checkable
class TrainedEncoder(Protocol):
    """An encoder that has learned, and can be kept: HashEncoder, or OnnxEncoder, which runs without torch."""

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        ...

    @property
    def radius(self) -> int | tuple[int, ...] | None:
        """Hamming distance target, or several, that it was trained for; None for probing, or where there is none."""
        ...

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: (columns,), (height, width) of a grey image, or (channels, height, width)."""
        ...

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Real values before the sign, (rows, n_bits)."""
        ...

    def encode(self, inputs: ArrayLike) -> NDArray[np.uint8]:
        """Packed codes, (rows, n_bits / 8)."""
        ...

    def embedding(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Logits scaled to unit length, (rows, n_bits)."""
        ...

    def save(self, folder: str | Path) -> None:
        """Write it to `folder`, where `hamtarget.encoders.open_encoder` finds it."""
        ...
