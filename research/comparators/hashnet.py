"""HashNet: weighted pairwise logistic loss of tanh codes that sharpen during training (Cao et al., ICCV 2017)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.errors import InputError
from hamtarget.learn.losses.base import LossTerms, PairLoss
from research.comparators.dhn import mean_where

# The published schedule: sharpness sqrt(1 + .005 iteration), refreshed every 200 of 10,000 iterations.
_ITERATIONS = 10_000
_REFRESHED = 200
_GROWTH = 0.005


class HashNetLoss(PairLoss):
    """Cost of a pair by the inner product of h = tanh(sharpness z).

    A pair costs log(1 + exp(a)) - s a, with a = h_i . h_j 10 / n_bits and s = 1 if the two are similar. Similar
    pairs weigh |S| / |S1| and others |S| / |S0|, which makes the mean over all pairs the sum of the two kinds' means.

    Args:
        n_bits: length of a code.
        steps: of the training; the published schedule of the sharpness, made for 10,000, is stretched to these.
        product_scale: alpha n_bits of its paper: 10.
        gather: see `BatchLoss`.
    """

    sharpness: Tensor

    def __init__(
        self, n_bits: int, *, steps: int = _ITERATIONS, product_scale: float = 10.0, gather: bool = False
    ) -> None:
        super().__init__(n_bits, gather=gather)
        if steps < 1:
            raise InputError(f"steps is {steps}; expected 1 or more")
        self.steps = steps
        self.product_scale = float(product_scale)
        self.register_buffer("sharpness", torch.ones(()), persistent=False)

    def at_step(self, step: int) -> None:
        """Set the sharpness of this step of the schedule."""
        iteration = step * _ITERATIONS // self.steps
        self.sharpness.fill_(math.sqrt(1 + _GROWTH * (iteration // _REFRESHED * _REFRESHED)))

    def _terms(self, logits: Tensor, similar: Tensor) -> LossTerms:
        codes = torch.tanh(self.sharpness * logits)
        product = codes @ codes.T * (self.product_scale / self.n_bits)
        other = ~torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        cost = F.softplus(product) - product * similar
        near, far = mean_where(cost, similar & other), mean_where(cost, ~similar & other)
        return self._report(near + far, logits, similar, similar=near, dissimilar=far)

    def extra_repr(self) -> str:
        """Return all settings that the value depends on."""
        return f"n_bits={self.n_bits}, steps={self.steps}, product_scale={self.product_scale}"
