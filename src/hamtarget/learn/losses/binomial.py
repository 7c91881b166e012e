"""Log probabilities that a binomial count is within a radius, or outside it, with their slopes (paper 2.1.2).

For n bits that differ independently with probability P, F(r; n, P) is the chance of a Hamming distance of at most r,
and SF = 1 - F that of a larger one. Both are wanted as logarithms, over the whole range of P, in float32.

Each tail is its largest term times a sum of ratios, and every ratio is positive and at most 1:

    SF = pmf(r+1) (1 + x_1 + x_1 x_2 + ...),   x_j = (n-r-j) / (r+1+j) * P / (1-P)      for P below the crossover
    F  = pmf(r)   (1 + x_1 + x_1 x_2 + ...),   x_j = (r-j+1) / (n-r+j) * (1-P) / P      for P above it

The crossover is where F and SF are both near 1/2, so that the tail which is not summed is `log1p(-other)` without
cancellation. Nothing overflows or underflows (C(512, 31) is 10^50: the coefficients of F itself do not fit float32),
and below the crossover the sum is cut where its terms no longer matter: 14 terms, not 62, for n=64, r=2.

The slope of log SF is (r+1) / (P * sum), that of log F is -(n-r) / ((1-P) * sum); the other tail's follows by
d log(1-m) = -m d log(m) / (1-m).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from hamtarget.errors import InputError

# Outside [floor, 1 - floor] the logarithms go on as straight lines: log SF falls without bound as P -> 0, where two
# dissimilar inputs have one code, and log F as P -> 1.
FLOOR = 1e-6


@dataclass(frozen=True)
class Tail:
    """One tail as `pmf(count)` times a polynomial of `odds / crossover odds`; all in plain Python floats."""

    count: int  # the k of the tail's largest term
    share: float  # count / n: where pmf(count) peaks
    log_peak: float  # log pmf(count) at P = share
    inverse_share: float  # 1 / share, or 0 where the factor P^count is 1
    inverse_rest: float  # 1 / (1 - share), or 0 where the factor (1-P)^(n-count) is 1
    coefficients: tuple[float, ...]  # of the polynomial, lowest power first; the first is 1, none is above 1


@dataclass(frozen=True)
class Binomial:
    """Constants of log F and log SF for one code length and radius."""

    n_bits: int
    radius: int
    crossover: float
    outside: Tail  # SF, summed below the crossover
    within: Tail  # F, summed above it


@functools.cache
def constants(n_bits: int, radius: int) -> Binomial:
    """Return the constants for one code length and radius, computed once in double precision.

    Raises:
        InputError: `radius` is not 0 to n_bits - 1.
    """
    if n_bits < 1 or not 0 <= radius < n_bits:
        raise InputError(f"radius is {radius} and n_bits {n_bits}; expected 0 <= radius < n_bits")
    # Close to the median of P given (n, r): there F and SF are both between .4 and .6.
    crossover = (radius + 2 / 3) / (n_bits + 1 / 3)
    odds = crossover / (1 - crossover)
    outside = ((n_bits - radius - j) / (radius + 1 + j) * odds for j in range(1, n_bits - radius))
    within = ((radius - j + 1) / (n_bits - radius + j) / odds for j in range(1, radius + 1))
    return Binomial(
        n_bits,
        radius,
        crossover,
        outside=_tail(n_bits, radius + 1, outside),
        within=_tail(n_bits, radius, within),
    )


def _tail(n_bits: int, count: int, ratios: Any) -> Tail:
    share = count / n_bits
    log_peak = math.lgamma(n_bits + 1) - math.lgamma(count + 1) - math.lgamma(n_bits - count + 1)
    if 0 < count < n_bits:
        log_peak += count * math.log(share) + (n_bits - count) * math.log1p(-share)
    coefficients = [1.0]
    for ratio in ratios:
        term = coefficients[-1] * ratio
        # Ratios fall as j grows, so what is cut off is below term / (1 - ratio): nothing, in double precision.
        if term < 1e-18:
            break
        coefficients.append(term)
    return Tail(
        count=count,
        share=share,
        log_peak=log_peak,
        inverse_share=1 / share if count > 0 else 0.0,
        inverse_rest=1 / (1 - share) if count < n_bits else 0.0,
        coefficients=tuple(coefficients),
    )


def log_tails(probability: Tensor, n_bits: int, radius: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return (log F, log SF, slope of log F, slope of log SF) at each P strictly between 0 and 1; no gradient."""
    c = constants(n_bits, radius)
    odds = c.crossover / (1 - c.crossover)
    flat = probability.reshape(-1)
    results = [torch.empty_like(flat) for _ in range(4)]
    log_within, log_outside, slope_within, slope_outside = results
    low = flat < c.crossover

    # Each side is gathered and computed alone: in a batch nearly all pairs are on one.
    (places,) = low.nonzero(as_tuple=True)
    p = flat[places]
    log, series = _log_tail(p, c.outside, n_bits, p / (1 - p) / odds)
    slope = (radius + 1) / (p * series)
    log_other, slope_other = _other_tail(log, slope)
    for result, values in zip(results, (log_other, log, slope_other, slope), strict=True):
        result[places] = values

    (places,) = (~low).nonzero(as_tuple=True)
    p = flat[places]
    log, series = _log_tail(p, c.within, n_bits, (1 - p) / p * odds)
    slope = (radius - n_bits) / ((1 - p) * series)
    log_other, slope_other = _other_tail(log, slope)
    for result, values in zip(results, (log, log_other, slope, slope_other), strict=True):
        result[places] = values

    shape = probability.shape
    return log_within.view(shape), log_outside.view(shape), slope_within.view(shape), slope_outside.view(shape)


def _log_tail(probability: Tensor, tail: Tail, n_bits: int, argument: Tensor) -> tuple[Tensor, Tensor]:
    """Return (log of the tail, its series)."""
    series = _polynomial(tail.coefficients, argument)
    return _log_pmf(probability, tail, n_bits) + torch.log(series), series


def _other_tail(log_tail: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
    """Return (log(1 - tail), its slope); no digits are lost, since the tail is not near 1."""
    tail = torch.exp(log_tail)
    return torch.log1p(-tail), -tail * slope / (1 - tail)


def _log_pmf(probability: Tensor, tail: Tail, n_bits: int) -> Tensor:
    """Return log pmf(count), computed from its peak and the distance to it.

    `count log P` and `log C(n, count)` alone are large and nearly cancel; the logs of P / share and of
    (1-P) / (1-share) are small where the result is, so float32 keeps its digits.
    """
    log_pmf = torch.full_like(probability, tail.log_peak)
    offset = probability - tail.share
    if tail.count > 0:
        log_pmf += tail.count * _log_ratio(probability * tail.inverse_share, offset * tail.inverse_share)
    if tail.count < n_bits:
        log_pmf += (n_bits - tail.count) * _log_ratio(
            (1 - probability) * tail.inverse_rest, offset * -tail.inverse_rest
        )
    return log_pmf


def _log_ratio(ratio: Tensor, ratio_minus_one: Tensor) -> Tensor:
    """Return the log of a ratio given in two ways: near 1 the difference is exact, near 0 the ratio is."""
    return torch.where(ratio_minus_one < -0.5, torch.log(ratio), torch.log1p(ratio_minus_one))


def _polynomial(coefficients: tuple[float, ...], argument: Tensor) -> Tensor:
    # float32 needs no term below its own rounding; double keeps them all.
    smallest = torch.finfo(argument.dtype).eps / 8
    kept = [c for c in coefficients if c >= smallest]
    total = torch.full_like(argument, kept[-1])
    for coefficient in reversed(kept[:-1]):
        total.mul_(argument).add_(coefficient)
    return total


def log_tails_continued(
    probability: Tensor, n_bits: int, radius: int, *, floor: float = FLOOR
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the same as `log_tails`, for any real P; beyond [floor, 1 - floor] logarithms go on as tangents."""
    inside = probability.clamp(floor, 1 - floor)
    log_within, log_outside, slope_within, slope_outside = log_tails(inside, n_bits, radius)
    beyond = probability - inside
    return log_within + slope_within * beyond, log_outside + slope_outside * beyond, slope_within, slope_outside


class _LogTail(torch.autograd.Function):
    """One of the two logarithms; it keeps only its slope for the backward pass."""

    @staticmethod
    def forward(ctx: Any, probability: Tensor, n_bits: int, radius: int, floor: float, which: int) -> Tensor:
        tails = log_tails_continued(probability, n_bits, radius, floor=floor)
        ctx.save_for_backward(tails[which + 2])
        return tails[which]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        (slope,) = ctx.saved_tensors
        return grad * slope, None, None, None, None


def log_cdf(probability: Tensor, n_bits: int, radius: int, *, floor: float = FLOOR) -> Tensor:
    """Return the log of F(radius; n_bits, P): the chance that at most `radius` of `n_bits` bits differ, for each P.

    Differentiable once, finite for every finite P.
    """
    result: Tensor = _LogTail.apply(probability, n_bits, radius, floor, 0)
    return result


def log_sf(probability: Tensor, n_bits: int, radius: int, *, floor: float = FLOOR) -> Tensor:
    """Return the log of 1 - F(radius; n_bits, P): the chance that more than `radius` bits differ, for each P.

    Differentiable once, finite for every finite P.
    """
    result: Tensor = _LogTail.apply(probability, n_bits, radius, floor, 1)
    return result
