"""The cost of all pairs of a batch and its gradient, in one pass over blocks of rows.

The cost of a pair depends on its inputs only through one dot product, and its slope there is known in closed form. So
the gradient is finished in the forward pass, a block of rows at a time: apart from the `similar` matrix the memory is
that of a block, and of b x b floats at the most.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hamtarget.learn.losses.binomial import FLOOR, log_tails_continued

Probability = Literal["soft_bits", "angle"]
DissimilarCost = Literal["log_likelihood", "expected_rows"]

# arccos has infinite slope at +-1, where two equal inputs would give NaN gradients: so near, it goes on as its tangent.
COSINE_MARGIN = 1e-6

# Cells of the pair matrix in one block. On a CPU the block and its dozen temporaries should stay in the cache.
_CPU_CELLS = 1 << 16
_GPU_CELLS = 1 << 26


@dataclass(frozen=True)
class PairCost:
    """The cost of a pair of inputs, by the dot product of their `units` (soft bits, or normalised logits).

    Attributes:
        n_bits: length of the code, or of the substring.
        radii: a similar pair should be within, another pair outside, each of these; the costs are averaged.
        probability: how a dot product becomes the chance that one bit differs.
        dissimilar: "log_likelihood" is -log(1 - F); "expected_rows" is F itself, the chance to be read needlessly.
        floor: below it, and above 1 minus it, the logarithms go on as straight lines.
    """

    n_bits: int
    radii: tuple[int, ...]
    probability: Probability
    dissimilar: DissimilarCost = "log_likelihood"
    floor: float = FLOOR

    def differing(self, dot: Tensor) -> tuple[Tensor, Tensor]:
        """Return (P, dP / d dot), P being the chance that one bit of the pair differs (P_ij in the paper)."""
        if self.probability == "soft_bits":
            return (1 - dot / self.n_bits) / 2, dot.new_full((), -0.5 / self.n_bits)
        cosine = dot.clamp(-1 + COSINE_MARGIN, 1 - COSINE_MARGIN)
        chain = torch.rsqrt((1 - cosine) * (1 + cosine)) / -math.pi
        return torch.arccos(cosine) / math.pi + (dot - cosine) * chain, chain

    def of_pairs(self, dot: Tensor, similar: Tensor) -> tuple[Tensor, Tensor]:
        """Return (cost, d cost / d dot) of each pair."""
        differing, chain = self.differing(dot)
        cost = torch.zeros_like(dot)
        slope = torch.zeros_like(dot)
        for radius in self.radii:
            log_within, log_outside, within_slope, outside_slope = log_tails_continued(
                differing, self.n_bits, radius, floor=self.floor
            )
            if self.dissimilar == "expected_rows":
                # Less is better here, so the sign is turned round once more below.
                log_outside = -torch.exp(log_within)
                outside_slope = log_outside * within_slope
            cost -= torch.where(similar, log_within, log_outside)
            slope -= torch.where(similar, within_slope, outside_slope)
        return cost / len(self.radii), slope * chain / len(self.radii)


def total_cost(units: Tensor, similar: Tensor, weights: Tensor, cost: PairCost) -> tuple[Tensor, Tensor]:
    """Return (weights[0] x similar sum + weights[1] x other sum, the two sums) over all ordered pairs of rows.

    Args:
        units: (b, n) soft bits or normalised logits, float32 or float64.
        similar: (b, b) boolean, of any pattern; its diagonal is not looked at.
        weights: (2,) what a similar pair's, and another pair's, cost counts; on the device of `units`.
        cost: what one pair costs.

    The first result carries the gradient for `units`; the second, (2,), none.
    """
    total, sums = _TotalCost.apply(units, similar, weights, cost)
    return total, sums


class _TotalCost(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, units: Tensor, similar: Tensor, weights: Tensor, cost: PairCost) -> tuple[Tensor, Tensor]:
        add_block = _block_function(units)
        n_rows = len(units)
        cells = _GPU_CELLS if units.is_cuda else _CPU_CELLS
        block = max(1, min(n_rows, cells // n_rows))
        gradient = torch.zeros_like(units)
        sums = units.new_zeros(2)
        for start in range(0, n_rows, block):
            rows = units[start : start + block]
            dot = rows @ units.T
            block_sums, slope = add_block(dot, similar[start : start + block], start, weights, cost)
            sums += block_sums
            gradient[start : start + block] += slope @ units
            gradient.addmm_(slope.T, rows)
        ctx.save_for_backward(gradient)
        ctx.mark_non_differentiable(sums)
        return (weights * sums).sum(), sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return grad * gradient, None, None, None


@functools.cache
def has_kernel() -> bool:
    """Return True if one kernel computes pairs on a GPU: if Triton is there, as with torch on most CUDA machines."""
    return importlib.util.find_spec("triton") is not None


def _block_function(units: Tensor) -> Any:
    if units.is_cuda and units.dtype == torch.float32 and has_kernel():
        from hamtarget.learn.losses import pair_kernel

        return pair_kernel.add_block
    return add_block


def add_block(dot: Tensor, similar: Tensor, first_row: int, weights: Tensor, cost: PairCost) -> tuple[Tensor, Tensor]:
    """Return (cost of similar and of other pairs, weighted slope of each pair) of one block; overwrites `dot`."""
    values, slope = cost.of_pairs(dot, similar)
    # A row is not paired with itself: neither a cost nor a slope on the diagonal.
    values.diagonal(first_row).zero_()
    slope.diagonal(first_row).zero_()
    of_similar = torch.where(similar, values, 0).sum()
    sums = torch.stack([of_similar, values.sum() - of_similar])
    return sums, slope * torch.where(similar, weights[0], weights[1])
