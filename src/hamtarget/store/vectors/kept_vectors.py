"""Vectors as a store keeps them, to rank by."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget._metric import MetricName, check_metric
from hamtarget.codes import check_vectors
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import InputError
from hamtarget.search.embeddings import Embeddings, unit_int8

VectorChoice = MetricName | Literal["auto"]


def vectors_for(encoder: Encoder | None, choice: VectorChoice | None, *, has_embeddings: bool) -> MetricName | None:
    """Return the metric of the vectors that a new store keeps; None if it keeps none.

    Args:
        encoder: that of the store.
        choice: a metric; None for no vectors; or "auto": those that the encoder was trained to find, if it was.
        has_embeddings: True if the store keeps embeddings of the caller's own choice.

    Raises:
        InputError: the choice does not go with the rest.
    """
    if choice == "auto":
        metric = None if encoder is None or has_embeddings else getattr(encoder, "neighbor_metric", None)
        return None if metric is None else check_metric(metric)
    if choice is None:
        return None
    metric = check_metric(choice)
    if encoder is None or len(encoder.input_shape) != 1:
        raise InputError(
            f"vectors is {metric!r}, but the store has no encoder of vectors; pass encoder=, or leave it out"
        )
    if has_embeddings:
        raise InputError("vectors and embeddings are both given; a store keeps one of them to rank by")
    return metric


def kind_of_vectors(n_dims: int, metric: MetricName) -> Embeddings:
    """Return how vectors are kept: one byte a number for "cosine", where lengths do not count, and two for the others.

    float16 holds the whole numbers up to 2,048 exactly, and so all vectors of uint8 or int8.
    """
    return Embeddings(n_dims, "int8" if metric == "cosine" else "float16", metric)


def kept_rows(vectors: ArrayLike, kind: Embeddings, *, name: str = "vectors") -> NDArray[Any]:
    """Return vectors, (rows, n_dims), as a store keeps them.

    Raises:
        ShapeError, DtypeError, NotFiniteError: they are not finite numbers, `n_dims` in a row.
        InputError: a vector is all zeros, and the metric is "cosine".
    """
    rows = check_vectors(np.asarray(vectors), name=name, n_columns=kind.n_dims)
    if kind.metric == "cosine":
        empty = np.flatnonzero(~rows.any(axis=1))
        if len(empty):
            raise InputError(
                f"row {empty[0]} of {name} is all zeros, which has no cosine; leave it out, or use a store with "
                "vectors='l2' or 'dot'"
            )
        return unit_int8(rows)
    return kind.check(rows, n_rows=len(rows), name=name)


def query_rows(vectors: ArrayLike, kind: Embeddings, *, name: str = "query") -> NDArray[Any]:
    """Return vectors as they are compared with those that are kept: int8 with int8, and else float32.

    Raises:
        As `kept_rows`.
    """
    if kind.dtype == "int8":
        return kept_rows(vectors, kind, name=name)
    return check_vectors(np.asarray(vectors), name=name, n_columns=kind.n_dims)


def restored_vectors(rows: NDArray[Any], kind: Embeddings) -> NDArray[np.float32]:
    """Return kept vectors as an encoder takes them; those that are compared by cosine have unit length."""
    vectors: NDArray[np.float32] = rows.astype(np.float32)
    if kind.metric == "cosine":
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors /= np.maximum(lengths, np.float32(1e-30))
    return vectors
