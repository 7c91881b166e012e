"""Standardising inputs, the first layer of the built-in networks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Standardize(nn.Module):
    """A layer that scales inputs to mean 0 in each column and variance 1 over all columns together.

    One scale for all columns keeps what distances mean; a scale of its own would blow up a nearly constant column.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, shape: tuple[int, ...], *, unit_length: bool = False) -> None:
        """Begin with mean 0 and scale 1; with `unit_length`, each input is first scaled to unit length."""
        super().__init__()
        self.unit_length = unit_length
        # So that it can stand alone before a head, where inputs are features already.
        self.out_features = shape[0]
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(()))

    @torch.no_grad()
    def fit(self, inputs: Tensor) -> None:
        """Learn mean and scale from `inputs`, (rows, *shape), in blocks of rows."""
        total = torch.zeros_like(self.mean, dtype=torch.float64)
        squares = torch.zeros((), dtype=torch.float64, device=self.mean.device)
        for block in inputs.split(8192):
            total += self._scaled(block).to(total).sum(0)
        mean = total / len(inputs)
        for block in inputs.split(8192):
            squares += (self._scaled(block).to(total) - mean).pow(2).sum()
        deviation = (squares / inputs.numel()).sqrt()
        self.mean.copy_(mean)
        # Inputs that are all equal have no scale; 1 leaves them finite.
        self.scale.copy_(torch.where(deviation > 0, 1 / deviation.clamp(min=1e-30), 1.0))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return standardised inputs, float32."""
        return (self._scaled(inputs) - self.mean) * self.scale

    def _scaled(self, inputs: Tensor) -> Tensor:
        """Return inputs as float32, scaled to unit length if that is wanted; zeros stay zeros."""
        numbers = inputs.float()
        return F.normalize(numbers, dim=1) if self.unit_length else numbers
