"""Hits as single numbers, whose order is that of an answer: by query, then distance, then row."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# A key is (query << 44) | (distance << 31) | row: a distance takes 13 bits, a row 31, a query 19.
ROW_BITS = 31
DISTANCE_BITS = 13
QUERY_SHIFT = ROW_BITS + DISTANCE_BITS
MAX_ROWS = (1 << ROW_BITS) - 1


class Answer(NamedTuple):
    """Hits of a batch, as arrays: `offsets` of each query, then the rows and distances of all."""

    offsets: NDArray[np.int64]
    rows: NDArray[np.int64]
    distances: NDArray[np.uint16]


def answer_of(keys: NDArray[np.int64], n_queries: int) -> Answer:
    """Return the answer that ascending keys stand for."""
    offsets = np.zeros(n_queries + 1, np.int64)
    np.cumsum(np.bincount(keys >> QUERY_SHIFT, minlength=n_queries), out=offsets[1:])
    distances = ((keys >> ROW_BITS) & ((1 << DISTANCE_BITS) - 1)).astype(np.uint16)
    return Answer(offsets, keys & MAX_ROWS, distances)


def join_answers(parts: list[Answer]) -> Answer:
    """Return the answers of batches, one or more, as that of one batch."""
    if len(parts) == 1:
        return parts[0]
    counts = np.concatenate([np.diff(part.offsets) for part in parts])
    return Answer(
        np.concatenate((np.zeros(1, np.int64), np.cumsum(counts))),
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.distances for part in parts]),
    )
