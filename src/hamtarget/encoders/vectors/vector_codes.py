"""Codes of vectors where nobody has trained a model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._metric import MetricName
from hamtarget.encoders.vectors.itq import ITQ
from hamtarget.encoders.vectors.linear import LinearEncoder, check_directions
from hamtarget.encoders.vectors.lsh import LSH
from hamtarget.errors import ShapeError

MOST_LEARNED_FROM = 25_000
"""Vectors that codes are learned from, if there are more."""

_N_BITS = 64


def learn_vector_codes(vectors: NDArray[Any], metric: MetricName, *, n_bits: int | None = None) -> LinearEncoder:
    """Return an encoder for a store that finds near vectors: ITQ, or LSH where there are more bits than columns.

    In a folder, the nearest are found by the vectors themselves, so the codes need no long training.

    Args:
        vectors: finite numbers, (rows, columns); an array that is mapped from a file is not copied.
        metric: by what vectors are near.
        n_bits: bits of a code; 64 by default.

    Raises:
        ShapeError: there are fewer than 2 rows.
        NotFiniteError: an element is NaN or infinite.
        InputError: a row is all zeros under "cosine".
    """
    if len(vectors) < 2:
        raise ShapeError(
            f"vectors have {len(vectors)} rows; a new store learns its codes from the first vectors, at least 2, "
            "better thousands: begin with more of them and add single ones afterwards, or pass a model"
        )
    if metric == "cosine":
        check_directions(vectors, name="vectors")
    if len(vectors) > MOST_LEARNED_FROM:
        chosen = np.random.default_rng(0).choice(len(vectors), MOST_LEARNED_FROM, replace=False, shuffle=False)
        vectors = vectors[np.sort(chosen)]
    n_bits = _N_BITS if n_bits is None else n_bits
    method = ITQ if n_bits <= vectors.shape[1] else LSH
    return method(n_bits, metric=metric).fit(vectors)
