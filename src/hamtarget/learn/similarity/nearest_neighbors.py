"""Exact nearest neighbours of vectors, by torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hamtarget._metric import MetricName, check_metric
from hamtarget.errors import InputError
from hamtarget.progress import Progress

# Cells of a (rows, items) matrix of distances that are computed in one go.
_CELLS = 1 << 24


@torch.no_grad()
def nearest_neighbors(
    vectors: Tensor | NDArray[Any],
    k: int,
    *,
    metric: MetricName = "l2",
    rows: Tensor | None = None,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Return the k nearest other rows of each row, or of some rows, (rows, k), nearest first; exact.

    Args:
        vectors: a tensor or an array, (rows, ...).
        k: number of neighbours.
        metric: "l2": the smallest Euclidean distance; "cosine": the largest cosine; "dot": the largest inner product.
        rows: numbers of the rows whose neighbours are wanted. None: all rows.
        device: device to compute on; the result is there, too. None: that of a tensor, or the CPU.
        progress: called with the number of rows done and of all rows.

    Raises:
        InputError: there are not more than k rows, or a row of zeros under "cosine".

    Example:
        >>> nearest_neighbors(torch.tensor([[0.0], [1.0], [5.0]]), 1).tolist()
        [[1], [0], [1]]
    """
    check_metric(metric)
    if not isinstance(vectors, Tensor):
        vectors = torch.from_numpy(np.array(vectors))
    if not 1 <= k < len(vectors):
        raise InputError(f"k is {k}; expected 1 to {len(vectors) - 1}, fewer than the {len(vectors):,} rows")
    everything = vectors.to(device=device or vectors.device, dtype=torch.float32).flatten(1)
    squares = torch.zeros(len(everything), device=everything.device)
    if metric == "l2":
        # Distances are differences of large squares; around the mean the squares are smaller, and so is the rounding.
        everything = everything - everything.mean(dim=0)
        squares = everything.pow(2).sum(dim=1)
    elif metric == "cosine":
        everything = unit_length(everything)
    wanted = torch.arange(len(everything)) if rows is None else rows
    wanted = wanted.to(everything.device)
    result = []
    for some in wanted.split(max(1, _CELLS // len(everything))):
        distance = torch.addmm(squares[None, :], everything[some], everything.T, alpha=-2)
        distance.scatter_(1, some[:, None], torch.inf)
        result.append(distance.topk(k, dim=1, largest=False).indices)
        if progress is not None:
            progress(sum(map(len, result)), len(wanted))
    return torch.cat(result)


def unit_length(vectors: Tensor) -> Tensor:
    """Return vectors, (rows, columns), scaled to unit length.

    Raises:
        InputError: a row is all zeros, and has no direction; the error names the first.
    """
    lengths = vectors.norm(dim=1, keepdim=True)
    if bool((lengths == 0).any()):
        first = int((lengths[:, 0] == 0).nonzero()[0])
        raise InputError(f"row {first} is all zeros, which has no cosine; leave it out, or use metric 'l2' or 'dot'")
    scaled: Tensor = vectors / lengths
    return scaled
