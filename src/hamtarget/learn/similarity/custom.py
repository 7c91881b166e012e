"""Similarity by a function of item numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hamtarget.errors import ShapeError
from hamtarget.learn.similarity.relation import Similarity


class Custom(Similarity):
    """Items are similar if a function says so.

    Args:
        function: takes two tensors of item numbers, (r,) and (c,), and returns a boolean (r, c), of torch or numpy.
        n_items: number of items.

    Example:
        >>> even = Custom(lambda rows, columns: (rows[:, None] - columns) % 2 == 0, n_items=4)
        >>> even.matrix(torch.arange(3)).int().tolist()
        [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    """

    capturable = False

    def __init__(self, function: Callable[[Tensor, Tensor], Any], n_items: int) -> None:
        self.function = function
        self.n_items = n_items

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the function's answer, after checking its shape and type."""
        similar: Any = self.function(rows, columns)
        if isinstance(similar, np.ndarray) and similar.dtype == np.bool_:
            similar = torch.from_numpy(similar).to(rows.device)
        shape = (len(rows), len(columns))
        if not isinstance(similar, Tensor) or similar.dtype != torch.bool or similar.shape != shape:
            given = (
                f"{similar.dtype} of shape {tuple(similar.shape)}"
                if isinstance(similar, Tensor | np.ndarray)
                else repr(similar)[:40]
            )
            raise ShapeError(
                f"the similarity function gave {given}; expected torch.bool of shape {shape}: it is called with two "
                "lists of item numbers, and answers for each pair, as in labels[rows][:, None] == labels[columns]"
            )
        checked: Tensor = similar
        return checked

    def subset(self, items: Tensor) -> Custom:
        """Return the same function, asked about the original items."""
        return Custom(lambda rows, columns: self.function(items[rows], items[columns]), len(items))
