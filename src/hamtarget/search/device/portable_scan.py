"""The scan by operations that torch has on every device: bits as +1 and -1, and a product of matrices."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hamtarget.search.device.keys import QUERY_SHIFT, ROW_BITS

BITS_OF_WORD = 32
# Distances, or signs of rows, that are computed at a time.
_CELLS_AT_A_TIME = 1 << 24


def signs_of(words: Tensor) -> Tensor:
    """Return the bits of words as +1 and -1, (rows, 32 * words) of float32."""
    shifts = torch.arange(BITS_OF_WORD, dtype=torch.int32, device=words.device)
    bits = (words[:, :, None] >> shifts) & 1
    return (2 * bits - 1).to(torch.float32).reshape(len(words), -1)


def distances(words: Tensor, signs: Tensor) -> Tensor:
    """Return the distances of queries, given by their signs, to rows, (queries, rows) of int32."""
    # The sums are whole numbers of at most 4,096, which float32 holds exactly.
    dots = signs @ signs_of(words).T
    return (signs.shape[1] - dots).to(torch.int32) >> 1


def keys_of(queries: Tensor, distance: Tensor, rows: Tensor) -> Tensor:
    """Return the keys of hits."""
    return (queries.to(torch.int64) << QUERY_SHIFT) | (distance.to(torch.int64) << ROW_BITS) | rows


class PortableScan:
    """Finds rows within a radius by plain operations of torch."""

    def scan(
        self,
        words: Tensor,
        queries: NDArray[np.int32],
        radii: NDArray[np.int32],
        allowed: Tensor | None,
        span: range,
        capacity: int,
    ) -> tuple[int, NDArray[np.int64]]:
        """Return how many hits there are in a span of rows, and their keys, ascending; none if they are too many.

        Args:
            words: of all rows, (rows, words), on the device.
            queries: words of the queries.
            radii: the largest distance of a hit of each query; below 0 there is none.
            allowed: bool of each row, on the device, if only some may be hits.
            span: the rows to read.
            capacity: most keys to return.
        """
        signs = signs_of(torch.tensor(queries, device=words.device))
        most = torch.tensor(radii, device=words.device)[:, None]
        step = max(1, _CELLS_AT_A_TIME // max(len(queries), signs.shape[1]))
        count = 0
        found: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        for start in range(span.start, span.stop, step):
            stop = min(start + step, span.stop)
            distance = distances(words[start:stop], signs)
            is_hit = distance <= most
            if allowed is not None:
                is_hit &= allowed[start:stop]
            count += int(is_hit.sum())
            if count <= capacity:
                asked, row = torch.nonzero(is_hit, as_tuple=True)
                found.append(keys_of(asked, distance[asked, row], start + row).cpu().numpy())
        return count, np.sort(np.concatenate(found)) if count <= capacity else found[0]
