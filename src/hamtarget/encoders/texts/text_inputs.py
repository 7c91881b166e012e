"""Texts as inputs of an encoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from hamtarget.errors import DtypeError, ShapeError

TEXT_SHAPE: tuple[int, ...] = ()
"""`input_shape` of an encoder of texts: a batch of texts is an array of one dimension."""


def takes_texts(encoder: object) -> bool:
    """Return True if an encoder takes texts: its `input_kind` is "text"."""
    return getattr(encoder, "input_kind", None) == "text"


def check_texts(inputs: Any) -> list[str]:
    """Return a batch of texts as a list.

    Raises:
        ShapeError: the batch is one text, or has more dimensions than one.
        DtypeError: an input is not a text.
    """
    if isinstance(inputs, str | bytes):
        raise ShapeError("inputs are one text; expected a list of texts")
    if isinstance(inputs, np.ndarray) and inputs.ndim != 1:
        raise ShapeError(f"inputs have shape {inputs.shape}; this encoder takes (rows,) texts")
    texts = list(inputs)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DtypeError(f"input {row:,} is a {type(text).__name__}; this encoder takes texts")
    return texts
