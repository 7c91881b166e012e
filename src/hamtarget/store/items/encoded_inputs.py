"""From what people have (vectors, texts, image files, images) to codes and embeddings, by a store's encoder."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import form_of
from hamtarget.codes import Codes
from hamtarget.encoders.protocol import Encoder
from hamtarget.encoders.texts.text_inputs import check_texts, takes_texts
from hamtarget.errors import InputError, ShapeError
from hamtarget.search.embeddings import Embeddings
from hamtarget.store.vectors.kept_vectors import kept_rows


def one_input(encoder: Encoder, query: Any, *, instead: str) -> NDArray[Any]:
    """Return one input (an array, a text, an image path, bytes of an image file, an image of Pillow) as a batch of one.

    Args:
        encoder: takes the input.
        query: the input.
        instead: the call for several inputs.

    Raises:
        ShapeError: it is not one input of the encoder.
        InputError: it is a text without words, and the encoder compares words.
        ImageError: an image cannot be read.
    """
    if takes_texts(encoder):
        if not isinstance(query, str):
            raise ShapeError(
                f"the query is a {type(query).__name__}; the store's encoder takes texts: for several, call {instead}"
            )
        if getattr(encoder, "name", "") == "simhash64" and not any(map(str.isalnum, query)):
            raise InputError(f"the query {query[:40]!r} has no words; simhash64 compares texts by their words")
        return np.array([query], dtype=object)
    shape = tuple(encoder.input_shape)
    if _is_picture(query):
        return _read_pictures([query], encoder)
    array = _as_array(query, shape)
    plain = _plain(shape)
    if array.shape in (shape, plain):
        return array.reshape(1, *shape)
    raise ShapeError(
        f"the query has shape {array.shape}; the store's encoder takes {plain}: for several queries, call {instead}"
    )


def many_inputs(encoder: Encoder, inputs: Any, *, instead: str) -> NDArray[Any]:
    """Return a batch of inputs (an array, or a list of what `one_input` takes) as one array that the encoder takes.

    Args:
        encoder: takes the inputs.
        inputs: the batch.
        instead: the call for one input.

    Raises:
        ShapeError: they are not a batch of the encoder's inputs.
        ImageError: an image cannot be read.
    """
    if takes_texts(encoder):
        if isinstance(inputs, str):
            raise ShapeError(f"inputs are one text; expected a list of them: for one, call {instead}")
        return np.array(check_texts(inputs), dtype=object)
    shape = tuple(encoder.input_shape)
    if isinstance(inputs, list | tuple) and inputs and any(_is_picture(element) for element in inputs):
        return _read_pictures(list(inputs), encoder)
    plain = _plain(shape)
    if _is_picture(inputs):
        raise ShapeError(f"inputs are one image; expected a list of them: for one, call {instead}")
    array = _as_array(inputs, shape)
    if array.shape[1:] in (shape, plain) and array.ndim:
        return array.reshape(len(array), *shape)
    raise ShapeError(
        f"inputs have shape {array.shape}; the store's encoder takes (rows, {', '.join(map(str, plain))}): for one, "
        f"call {instead}"
    )


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of an input without its one channel: grey images may come with or without it."""
    return shape[1:] if len(shape) == 3 and shape[0] == 1 else shape


def _as_array(inputs: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    try:
        return np.asarray(inputs)
    except ValueError as error:
        raise ShapeError(f"inputs do not have one shape ({error}); the store's encoder takes {shape}") from error


def encode(
    encoder: Encoder, inputs: NDArray[Any], embeddings: Embeddings | None, *, keeps_vectors: bool = False
) -> tuple[Codes, NDArray[Any] | None]:
    """Return codes of the inputs and, where the store keeps embeddings, these: the inputs themselves, or the logits.

    Raises:
        InputError: the store's embeddings have another length than those of the encoder, or an input has no cosine.
    """
    if embeddings is not None and keeps_vectors:
        return encoder.encode(inputs), kept_rows(inputs, embeddings, name="inputs")
    if embeddings is None:
        return encoder.encode(inputs), None
    logits = encoder.logits(inputs)
    return np.packbits(logits > 0, axis=1, bitorder="little"), embeddings_of(logits, embeddings)


def embeddings_of(logits: NDArray[np.float32], embeddings: Embeddings) -> NDArray[Any]:
    """Return the encoder's embeddings as a store keeps them: its logits, scaled to unit length.

    Raises:
        InputError: the store's embeddings have another length than those of the encoder.
    """
    if embeddings.n_dims != logits.shape[1]:
        raise InputError(
            f"the store keeps embeddings of {embeddings.n_dims} numbers, the encoder makes some of {logits.shape[1]}; "
            "pass the embeddings with the inputs"
        )
    return embeddings.of_logits(logits)


def _is_picture(value: Any) -> bool:
    # An image of Pillow is known by its methods: Pillow need not be installed.
    return isinstance(value, str | bytes | os.PathLike) or (hasattr(value, "convert") and hasattr(value, "getexif"))


def _read_pictures(sources: list[Any], encoder: Encoder) -> NDArray[Any]:
    form = form_of(encoder)
    from hamtarget.datasets.pictures.images import read_images

    return read_images(sources, form)
