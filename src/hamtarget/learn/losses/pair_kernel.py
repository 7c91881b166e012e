"""`pair_cost.add_block` as one CUDA kernel: a pair's dot product is read once and replaced by its slope.

The arithmetic is that of `binomial.log_tails_continued`, element by element; `research/benchmarks/loss_speed.py`
compares the two on every GPU it runs on. Triton comes with torch where there is CUDA: only `pair_cost` imports this
module.
"""

from __future__ import annotations

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra import libdevice

from hamtarget.learn.losses import binomial
from hamtarget.learn.losses.binomial import Tail
from hamtarget.learn.losses.pair_cost import COSINE_MARGIN, PairCost

_COLUMNS = 1024
# Numbers of one tail ahead of its coefficients: count, n - count, share, 1/share, 1/(1-share), log peak.
_TAIL_HEAD = 6


def add_block(dot: Tensor, similar: Tensor, first_row: int, weights: Tensor, cost: PairCost) -> tuple[Tensor, Tensor]:
    """Return (cost of similar and of other pairs, weighted slope of each pair); the slope replaces `dot`."""
    n_rows, n_columns = dot.shape
    tables, terms = _tables(cost.n_bits, cost.radii, dot.device)
    grid = (n_rows, triton.cdiv(n_columns, _COLUMNS))
    sums = dot.new_empty(grid[0] * grid[1], 2)
    _pair_kernel[grid](
        dot,
        similar.contiguous().view(torch.uint8),
        sums,
        tables,
        weights,
        n_columns,
        first_row,
        cost.n_bits,
        cost.floor,
        1 - COSINE_MARGIN,
        N_RADII=len(cost.radii),
        TERMS=terms,
        TAIL_HEAD=_TAIL_HEAD,
        ANGLE=cost.probability == "angle",
        EXPECTED_ROWS=cost.dissimilar == "expected_rows",
        COLUMNS=_COLUMNS,
    )
    return sums.sum(0), dot


@functools.cache
def _tables(n_bits: int, radii: tuple[int, ...], device: torch.device) -> tuple[Tensor, int]:
    """Return a row of constants for each radius (crossover, odds, radius, both tails) and the length of a series."""
    smallest = torch.finfo(torch.float32).eps / 8
    all_constants = [binomial.constants(n_bits, radius) for radius in radii]
    terms = max(
        sum(c >= smallest for c in tail.coefficients)
        for constants in all_constants
        for tail in (constants.outside, constants.within)
    )
    rows = []
    for constants in all_constants:
        odds = constants.crossover / (1 - constants.crossover)
        row = [constants.crossover, odds, float(constants.radius)]
        for tail in (constants.outside, constants.within):
            row += _tail_row(tail, n_bits, terms)
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float32, device=device), terms


def _tail_row(tail: Tail, n_bits: int, terms: int) -> list[float]:
    coefficients = list(tail.coefficients[:terms])
    return [
        float(tail.count),
        float(n_bits - tail.count),
        tail.share,
        tail.inverse_share,
        tail.inverse_rest,
        tail.log_peak,
        *coefficients,
        *[0.0] * (terms - len(coefficients)),
    ]


@triton.jit
def _log_ratio(ratio, ratio_minus_one):
    near_zero = ratio_minus_one < -0.5
    return tl.where(
        near_zero,
        libdevice.log(tl.where(near_zero, ratio, 1.0)),
        libdevice.log1p(tl.where(near_zero, 0.0, ratio_minus_one)),
    )


@triton.jit
def _pair_kernel(
    dot_pointer,
    similar_pointer,
    sums_pointer,
    table_pointer,
    weights_pointer,
    n_columns,
    first_row,
    n_bits,
    floor,
    cosine_limit,
    N_RADII: tl.constexpr,
    TERMS: tl.constexpr,
    TAIL_HEAD: tl.constexpr,
    ANGLE: tl.constexpr,
    EXPECTED_ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < n_columns
    offset = row.to(tl.int64) * n_columns + column
    dot = tl.load(dot_pointer + offset, mask=inside, other=0.0)
    similar = tl.load(similar_pointer + offset, mask=inside, other=0) != 0

    if ANGLE:
        cosine = tl.minimum(tl.maximum(dot, -cosine_limit), cosine_limit)
        chain = -0.3183098861837907 / tl.sqrt((1 - cosine) * (1 + cosine))
        differing = libdevice.acos(cosine) * 0.3183098861837907 + (dot - cosine) * chain
    else:
        differing = (1 - dot / n_bits) * 0.5
        chain = -0.5 / n_bits
    p = tl.minimum(tl.maximum(differing, floor), 1 - floor)
    rest = 1 - p
    beyond = differing - p

    cost = tl.zeros_like(dot)
    slope = tl.zeros_like(dot)
    stride: tl.constexpr = 3 + 2 * (TAIL_HEAD + TERMS)
    for index in tl.static_range(N_RADII):
        table = table_pointer + index * stride
        odds = tl.load(table + 1)
        radius = tl.load(table + 2)
        low = p < tl.load(table)
        outside = table + 3
        within = outside + TAIL_HEAD + TERMS

        argument = tl.minimum(tl.where(low, p / rest / odds, rest / p * odds), 1.0)
        series = tl.zeros_like(dot)
        for step in tl.static_range(TERMS):
            place = TAIL_HEAD + TERMS - 1 - step
            series = series * argument + tl.where(low, tl.load(outside + place), tl.load(within + place))

        count = tl.where(low, tl.load(outside), tl.load(within))
        others = tl.where(low, tl.load(outside + 1), tl.load(within + 1))
        share = tl.where(low, tl.load(outside + 2), tl.load(within + 2))
        inverse_share = tl.where(low, tl.load(outside + 3), tl.load(within + 3))
        inverse_rest = tl.where(low, tl.load(outside + 4), tl.load(within + 4))
        log_peak = tl.where(low, tl.load(outside + 5), tl.load(within + 5))
        log_summed = (
            log_peak
            + count * _log_ratio(p * inverse_share, (p - share) * inverse_share)
            + others * _log_ratio(rest * inverse_rest, (share - p) * inverse_rest)
            + libdevice.log(series)
        )
        slope_summed = tl.where(low, (radius + 1) / (p * series), (radius - n_bits) / (rest * series))
        summed = libdevice.exp(log_summed)
        log_other = libdevice.log1p(-summed)
        slope_other = -summed * slope_summed / (1 - summed)

        # Below the crossover the tail outside is the summed one, above it the tail within.
        if EXPECTED_ROWS:
            log_within = tl.where(low, log_other, log_summed)
            slope_within = tl.where(low, slope_other, slope_summed)
            log_within += slope_within * beyond
            rows = -libdevice.exp(log_within)
            cost -= tl.where(similar, log_within, rows)
            slope -= tl.where(similar, slope_within, rows * slope_within)
        else:
            take_summed = low != similar
            this_slope = tl.where(take_summed, slope_summed, slope_other)
            cost -= tl.where(take_summed, log_summed, log_other) + this_slope * beyond
            slope -= this_slope

    counted = inside & (column != row + first_row)
    cost = tl.where(counted, cost / N_RADII, 0.0)
    weight = tl.where(similar, tl.load(weights_pointer), tl.load(weights_pointer + 1))
    slope = tl.where(counted, slope * chain * weight / N_RADII, 0.0)
    tl.store(dot_pointer + offset, slope, mask=inside)
    program = row * tl.num_programs(1) + tl.program_id(1)
    of_similar = tl.sum(tl.where(similar, cost, 0.0))
    tl.store(sums_pointer + program * 2, of_similar)
    tl.store(sums_pointer + program * 2 + 1, tl.sum(tl.where(similar, 0.0, cost)))
