"""DHN: pairwise logistic loss with a cost of logits far from +-1 (Zhu et al., AAAI 2016)."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.errors import InputError
from hamtarget.learn.losses.base import LossTerms, PairLoss


class DHNLoss(PairLoss):
    """Cost of a pair by its inner product, and of logits by their distance from +-1.

    A pair costs log(1 + exp(a)) - s a, with a = z_i . z_j / 2 and s = 1 if the two are similar. A row costs the sum of
    log cosh(|z| - 1) over its bits, averaged over rows, times `quantization_weight`.

    Args:
        n_bits: length of a code.
        quantization_weight: lambda of its paper.
        pair_average: "all_pairs" takes the mean over all pairs, as published. "per_kind" takes the mean over similar
            pairs plus the mean over others, which is much better if few pairs are similar.
        gather: see `BatchLoss`.
    """

    def __init__(
        self,
        n_bits: int,
        *,
        quantization_weight: float = 0.1,
        pair_average: Literal["per_kind", "all_pairs"] = "all_pairs",
        gather: bool = False,
    ) -> None:
        super().__init__(n_bits, gather=gather)
        if pair_average not in ("per_kind", "all_pairs"):
            raise InputError(f"pair_average is {pair_average!r}; expected 'per_kind' or 'all_pairs'")
        self.pair_average = pair_average
        if quantization_weight < 0:
            raise InputError(f"quantization_weight is {quantization_weight}; expected 0 or more")
        self.quantization_weight = float(quantization_weight)

    def _terms(self, logits: Tensor, similar: Tensor) -> LossTerms:
        product = logits @ logits.T / 2
        other = ~torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        cost = (F.softplus(product) - product * similar) * other
        n_pairs = len(logits) * (len(logits) - 1)
        quantization = log_cosh(logits.abs() - 1).sum(1).mean()
        near, far = mean_where(cost, similar & other), mean_where(cost, ~similar & other)
        pairs = near + far if self.pair_average == "per_kind" else cost.sum() / n_pairs
        total = pairs + self.quantization_weight * quantization
        return self._report(total, logits, similar, similar=near, dissimilar=far, quantization=quantization)

    def extra_repr(self) -> str:
        """Return all settings that the value depends on."""
        return (
            f"n_bits={self.n_bits}, quantization_weight={self.quantization_weight}, pair_average={self.pair_average!r}"
        )


def log_cosh(values: Tensor) -> Tensor:
    """Return log cosh, computed so that cosh does not overflow."""
    size = values.abs()
    return size + F.softplus(-2 * size) - math.log(2)


def mean_where(values: Tensor, where: Tensor) -> Tensor:
    """Return the mean of the values where `where` is true; 0 if it is true nowhere."""
    return (values * where).sum() / where.sum().clamp(min=1)
