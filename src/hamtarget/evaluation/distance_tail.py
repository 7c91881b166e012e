"""The share of pairs of different things within each Hamming radius, also where it is too small to be counted.

All pairs of a sample of codes are compared. The distances of different pictures make up the body of that histogram,
and copies lie at its lower end, where they may outnumber everything else. So the histogram is followed downwards from
its middle, as long as the next bins hold no more than the slope there explains. Where they hold more, copies begin;
where they hold fewer than ten pairs, counting ends. From there on the share goes on falling at the last slope.

The slope is that of a Conway-Maxwell-binomial distribution, fitted to the lowest few thousand pairs that are trusted:
a binomial distribution of fewer effective bits. Going on with the slope, and not with the whole distribution, assumes
that the logarithm of the share does not bend upwards; if it bends downwards, as for evenly spread codes, the share is
overestimated.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import comb, erfc, exp, lgamma, sqrt

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, distances
from hamtarget.progress import Progress

Shares = NDArray[np.float64]
Counts = NDArray[np.int64]

# Pairs that the slope is fitted to, and bins of the histogram that they fill at least.
_FITTED_PAIRS = 5000
_FITTED_BINS = 6
# Whether copies begin is seen from so many bins below. With fewer pairs in them, there is nothing left to fit.
_BINS_BELOW = 3
_COUNTABLE = 10
# Where the histogram is trusted before anything is tested.
_MIDDLE = 0.25
# What lies below is taken for copies where it is so much more than expected, beyond chance.
_EXCESS = 1.3
_CHANCE = 0.01
# A row with more copies than this in the sample is no copy: that many rows resemble each other.
_COPIES_PER_ROW = 30
# Fewer different codes than this say nothing about pairs that are rare.
FEWEST_CODES = 64
# Cells of the distance matrix at a time, so that they stay in the cache.
_CELLS_AT_A_TIME = 1 << 18


@dataclass(frozen=True, eq=False)
class DistanceTail:
    """Shares of pairs within each radius, entry r for radius r."""

    shares: Shares
    """Share of pairs of different things within each radius."""
    counted_from: int
    """Smallest radius at which the share was counted; below, it is extrapolated."""
    fitted_to: int
    """Largest distance of the pairs that the slope was fitted to."""


def pair_distances(codes: Codes, *, progress: Progress | None = None) -> Counts:
    """Return how many pairs of codes have each distance, (n_bits + 1,)."""
    n_bits = 8 * codes.shape[1]
    counts = np.zeros(n_bits + 1, dtype=np.int64)
    block = max(1, _CELLS_AT_A_TIME // max(1, len(codes)))
    for start in range(0, len(codes), block):
        stop = min(start + block, len(codes))
        found = distances(codes[start:stop], codes[start:], n_bits)
        counts += np.bincount(found.ravel(), minlength=n_bits + 1)
        # Within the block each pair was met twice, and each code met itself.
        within = np.bincount(found[:, : stop - start].ravel(), minlength=n_bits + 1)
        within[0] += stop - start
        counts -= within // 2
        if progress:
            progress(stop * (2 * len(codes) - stop) // 2, len(codes) ** 2 // 2)
    return counts


def fit_tail(counts: Counts, n_codes: int) -> DistanceTail:
    """Return the shares of different things within each radius, by the histogram of all pairs of different codes.

    Args:
        counts: number of pairs at each distance, (n_bits + 1,), with at least one pair above distance 0.
        n_codes: number of codes that the pairs were made of.
    """
    within = np.cumsum(counts)
    different = np.cumsum(counts[1:])
    start = 1 + int(np.searchsorted(different, max(1, _MIDDLE * different[-1])))
    trusted = slope = _Slope.fit(counts, start)
    while start > 0:
        near = max(0, start - _BINS_BELOW * slope.step)
        below = int(counts[near:start].sum())
        # As many as this are no copies, whatever they are.
        may_be_copies = within[start - 1] <= _COPIES_PER_ROW * n_codes / 2
        if may_be_copies and _chance_of(below, _EXCESS * slope.below()[near:].sum()) < _CHANCE:
            break
        trusted = slope
        if below < _COUNTABLE:
            break
        start -= 1
        while start > 0 and counts[start] == 0:
            start -= 1
        slope = _Slope.fit(counts, start)
    else:
        trusted = slope
    expected = counts.astype(np.float64)
    expected[: trusted.start] = trusted.below()
    shares = np.minimum(np.cumsum(expected) / expected.sum(), 1.0)
    return DistanceTail(shares, trusted.start, trusted.stop)


def assumed_tail(n_bits: int) -> Shares:
    """Return shares within each radius for codes of which nothing is known: as if only half the bits were free."""
    free = max(1, n_bits // 2)
    within = list(accumulate(comb(free, flipped) for flipped in range(n_bits // 2 + 1)))
    # Python divides whole numbers of any size and rounds once.
    shares = np.array([min(1.0, each / (1 << free)) for each in within])
    return shares[np.arange(n_bits + 1) // 2]


@dataclass(frozen=True, eq=False)
class _Slope:
    """The logarithm of a histogram from `start` to `stop`, continued downwards as a straight line."""

    start: int
    stop: int
    height: float
    """Logarithm of the expected count at `start`."""
    slope: float
    """Change of it with each bit."""
    odd: float
    """Difference of odd to even distances."""
    step: int
    """2 where only odd or only even distances occur, as with codes that all have as many ones as zeros."""

    def below(self) -> Shares:
        """Return the expected count at each distance below `start`."""
        distance = np.arange(self.start)
        logarithm = self.height + self.slope * (distance - self.start)
        logarithm += self.odd * (distance % 2 - self.start % 2)
        counts = np.exp(np.clip(logarithm, -700, 50))
        counts[(self.start - distance) % self.step != 0] = 0
        return np.asarray(counts)

    @classmethod
    def fit(cls, counts: Counts, start: int) -> _Slope:
        """Fit the pairs at `start` and above, as many as needed."""
        stop = start
        while stop < len(counts) - 1 and (
            counts[start : stop + 1].sum() < _FITTED_PAIRS or np.count_nonzero(counts[start : stop + 1]) < _FITTED_BINS
        ):
            stop += 1
        at = np.arange(start, stop + 1)
        pairs = counts[at].astype(np.float64)
        odd_share = pairs[at % 2 == 1].sum() / max(1.0, pairs.sum())
        step = 1
        if min(odd_share, 1 - odd_share) < 0.01:
            step = 2
            kept = at % 2 == (odd_share > 0.5)
            at, pairs = at[kept], pairs[kept]
        curve = _log_binomial(len(counts) - 1)
        columns = [np.ones(len(at)), (at - start).astype(np.float64)]
        if step == 1:
            columns.append((at % 2 - start % 2).astype(np.float64))
        bent = np.stack([*columns, curve[at] - curve[start]], axis=1)
        found = _poisson_fit(bent, pairs)
        rise = curve[min(start + 1, len(curve) - 1)] - curve[start]
        slope = found[1] + found[-1] * rise
        if found[-1] < 0 or len(at) <= len(columns):
            # Bent upwards: copies begin, or different kinds of pictures are mixed. A straight line it is.
            found = _poisson_fit(np.stack(columns, axis=1), pairs)
            slope = found[1]
        # Small radii never hold more pairs than larger ones.
        return cls(start, stop, found[0], max(slope, 0.0), found[2] if len(columns) == 3 else 0.0, step)


def _poisson_fit(columns: Shares, counts: Shares) -> list[float]:
    """Fit the logarithm of counts by a weighted sum of columns, by maximum likelihood; return the weights."""
    weight = np.sqrt(counts + 0.5)
    found = np.linalg.lstsq(columns * weight[:, None], np.log(counts + 0.5) * weight, rcond=None)[0]
    for _ in range(30):
        expected = np.exp(np.clip(columns @ found, -50, 50))
        curvature = columns.T @ (columns * expected[:, None])
        step = np.clip(np.linalg.lstsq(curvature, columns.T @ (counts - expected), rcond=None)[0], -2, 2)
        found = found + step
        if np.abs(step).max() < 1e-8:
            break
    return [float(each) for each in found]


def _log_binomial(n: int) -> Shares:
    """Return the logarithm of n over k for every k."""
    factorial = np.array([lgamma(k + 1) for k in range(n + 1)])
    return np.asarray(factorial[n] - factorial - factorial[::-1])


def _chance_of(count: int, mean: float) -> float:
    """Return the probability that a Poisson variable of this mean is at least `count`."""
    if mean > 50:
        return 0.5 * erfc((count - 0.5 - mean) / sqrt(2 * mean))
    term, below = exp(-mean), 0.0
    for each in range(min(count, 500)):
        below += term
        term *= mean / (each + 1)
    return max(0.0, 1 - below)
