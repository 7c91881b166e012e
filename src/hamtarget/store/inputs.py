"""From what people have (vectors, image files, images) to codes and embeddings, by a store's encoder."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes
from hamtarget.encoders.protocol import TrainedEncoder
from hamtarget.errors import InputError, ShapeError
from hamtarget.search import Embeddings, unit_int8


def as_batch(encoder: TrainedEncoder, inputs: Any) -> tuple[NDArray[Any], bool]:
    """Inputs as one array that the encoder takes, and whether it was one input alone.

    A path, bytes or an image of Pillow is one input, a list or tuple of them a batch; an array is one input or a batch
    by its number of dimensions.

    Raises:
        ShapeError: the array has another number of dimensions. ImageError: an image cannot be read.
    """
    shape = tuple(encoder.input_shape)
    if _is_picture(inputs):
        return _read_pictures([inputs], shape), True
    if isinstance(inputs, list | tuple) and inputs and any(_is_picture(element) for element in inputs):
        return _read_pictures(list(inputs), shape), False
    try:
        array = np.asarray(inputs)
    except ValueError as error:
        raise ShapeError(f"inputs do not have one shape ({error}); the store's encoder takes {shape}") from error
    # Grey images may come with their one channel or without.
    plain = shape[1:] if len(shape) == 3 and shape[0] == 1 else shape
    if array.shape in (shape, plain):
        return array.reshape(1, *shape), True
    if array.shape[1:] in (shape, plain):
        return array.reshape(len(array), *shape), False
    raise ShapeError(f"inputs have shape {array.shape}; the store's encoder takes {plain} or (rows, *{plain})")


def encode(
    encoder: TrainedEncoder, inputs: NDArray[Any], embeddings: Embeddings | None
) -> tuple[Codes, NDArray[Any] | None]:
    """Codes of the inputs and, where the store keeps embeddings, those of the encoder.

    Raises:
        InputError: the store's embeddings have another length than those of the encoder.
    """
    if embeddings is None:
        return encoder.encode(inputs), None
    if embeddings.n_dims != encoder.n_bits:
        raise InputError(
            f"the store keeps embeddings of {embeddings.n_dims} numbers, the encoder makes some of {encoder.n_bits}; "
            "pass the embeddings with the inputs"
        )
    logits = encoder.logits(inputs)
    codes = np.packbits(logits > 0, axis=1, bitorder="little")
    if embeddings.dtype == "int8":
        return codes, unit_int8(logits)
    lengths = np.maximum(np.linalg.norm(logits, axis=1, keepdims=True), np.float32(1e-12))
    return codes, (logits / lengths).astype(embeddings.dtype)


def _is_picture(value: Any) -> bool:
    # An image of Pillow is known by its methods: Pillow need not be installed.
    return isinstance(value, str | bytes | os.PathLike) or (hasattr(value, "convert") and hasattr(value, "getexif"))


def _read_pictures(sources: list[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if len(shape) < 2:
        raise InputError(f"inputs are images, but the store's encoder takes arrays of shape {shape}")
    from hamtarget.datasets.images import read_images

    return read_images(sources, shape)
