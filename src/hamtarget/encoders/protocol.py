"""The encoder protocol: the agreement between code that makes binary codes and code that stores them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    # The command line shows its help without waiting for numpy.
    import numpy as np
    from numpy.typing import ArrayLike, NDArray


@runtime_checkable
class Encoder(Protocol):
    """A fitted map from inputs to binary codes that a store can keep and open again.

    `HashEncoder`, `OnnxEncoder`, `ITQ`, `LSH` and the picture hashes are encoders. An encoder of pictures may also have
    `picture_form`, which says how a picture becomes an input; without it, pictures are cropped to `input_shape`. An
    encoder of vectors may have `neighbor_metric`, by which a store finds near vectors. An encoder of texts has
    `input_kind`, which is "text", and the `input_shape` (). An encoder of your own needs no base class: it has these
    methods, and `register_encoder` lets `open_encoder` open what its `save` wrote.
    """

    @property
    def n_bits(self) -> int:
        """Bits of a code."""
        ...

    @property
    def radius(self) -> int | tuple[int, ...] | None:
        """The Hamming distance target or targets that the codes were trained for; None: they were trained for none."""
        ...

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input: (columns,), (height, width) of a grey image, or (channels, height, width)."""
        ...

    def logits(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the real values before the sign, (rows, n_bits)."""
        ...

    def encode(self, inputs: ArrayLike) -> NDArray[np.uint8]:
        """Return packed codes, (rows, n_bits / 8)."""
        ...

    def embedding(self, inputs: ArrayLike) -> NDArray[np.float32]:
        """Return the logits scaled to unit length, (rows, n_bits)."""
        ...

    def save(self, folder: str | Path) -> None:
        """Write the encoder to `folder`, from where `hamtarget.open_encoder` opens it."""
        ...
