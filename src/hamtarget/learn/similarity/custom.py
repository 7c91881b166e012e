"""Similarity by a function of item numbers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from hamtarget.errors import ShapeError
from hamtarget.learn.similarity.relation import Similarity


class Custom(Similarity):
    """Items are similar if a function says so.

    Args:
        function: takes two tensors of item numbers, (r,) and (c,), and returns a boolean (r, c).
        n_items: number of items.

    Example:
        >>> even = Custom(lambda rows, columns: (rows[:, None] - columns) % 2 == 0, n_items=4)
        >>> even.matrix(torch.arange(3)).int().tolist()
        [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    """

    capturable = False

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor], n_items: int) -> None:
        self.function = function
        self.n_items = n_items

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the function's answer, after checking its shape and type."""
        similar = self.function(rows, columns)
        if similar.dtype != torch.bool or similar.shape != (len(rows), len(columns)):
            raise ShapeError(
                f"the similarity function gave {similar.dtype} of shape {tuple(similar.shape)}; "
                f"expected torch.bool of shape {(len(rows), len(columns))}"
            )
        return similar

    def subset(self, items: Tensor) -> Custom:
        """Return the same function, asked about the original items."""
        return Custom(lambda rows, columns: self.function(items[rows], items[columns]), len(items))
