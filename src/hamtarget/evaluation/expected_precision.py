"""Average precision where rows tie: its exact expectation over random order within each group of equal distance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class SumTables(NamedTuple):
    """Sums that the expected AP takes differences of."""

    harmonic: NDArray[np.float64]  # [i] = 1/1 + ... + 1/i, up to k
    log_factorial: NDArray[np.float64]  # [i] = log i!, up to the size of the database

    @classmethod
    def upto(cls, k: int, n_rows: int) -> SumTables:
        """The sums that AP@k over `n_rows` rows needs."""
        # In float64 the rounding of a million additions near 1e7 would show in the seventh digit of a probability.
        logs = np.cumsum(np.log(np.arange(1, n_rows + 1)), dtype=np.longdouble)
        return cls(
            np.concatenate([[0.0], np.cumsum(1 / np.arange(1, k + 1))]),
            np.concatenate([[0.0], logs.astype(np.float64)]),
        )

    def log_choose(self, n: NDArray[np.intp], k: NDArray[np.intp]) -> NDArray[np.float64]:
        """Log of the binomial coefficient, element by element."""
        return np.asarray(self.log_factorial[n] - self.log_factorial[k] - self.log_factorial[n - k])


def _shuffled_precision(
    size: NDArray[np.intp],
    good: NDArray[np.intp],
    before: NDArray[np.intp],
    good_before: NDArray[np.intp],
    harmonic: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Expected sum of precision@i over the relevant ranks i of `size` rows in random order, `good` of them relevant.

    They follow `before` rows, `good_before` of them relevant. Position i of them is relevant with probability
    good / size and then has (i - 1) (good - 1) / (size - 1) relevant ones before it within them, in expectation:

        good / size * sum_i (good_before + 1 + (i - 1) (good - 1) / (size - 1)) / (before + i)

    with sum_i (i - 1) / (before + i) = size - (before + 1) sum_i 1 / (before + i).
    """
    inverse_ranks = harmonic[before + size] - harmonic[before]
    slope = np.maximum(good - 1, 0) / np.maximum(size - 1, 1)
    total = (good_before + 1) * inverse_ranks + slope * (size - (before + 1) * inverse_ranks)
    return np.asarray(good / np.maximum(size, 1) * total)


def expected_precision(
    items: NDArray[np.intp], good: NDArray[np.intp], k: int, tables: SumTables
) -> NDArray[np.float64]:
    """Expected AP@k over random order within groups of equal distance, from their sizes, (queries, groups)."""
    items_within = items.cumsum(axis=1)
    before = items_within - items
    good_before = good.cumsum(axis=1) - good
    # The group that holds rank k. It may end there: then what follows has one case, of probability 1.
    last = (items_within >= k).argmax(axis=1)
    whole = np.arange(items.shape[1]) < last[:, None]
    inside = np.where(whole, items, 0)
    numerator = _shuffled_precision(
        inside, np.where(whole, good, 0), np.where(whole, before, 0), good_before, tables.harmonic
    ).sum(axis=1)

    # How many of the last group's relevant rows come before the cut is random, and the denominator is too:
    # sum over every such number h, hypergeometric. Given h, the places before the cut are again in random order.
    def of_last(counts: NDArray[np.intp]) -> NDArray[np.intp]:
        return np.take_along_axis(counts, last[:, None], axis=1)

    size, relevant, ahead, good_ahead = of_last(items), of_last(good), of_last(before), of_last(good_before)
    places = k - ahead
    fewest = np.maximum(0, places - (size - relevant))
    most = np.minimum(relevant, places)
    h = fewest + np.arange((most - fewest).max() + 1)
    possible = h <= most
    h = np.minimum(h, most)
    log_chance = tables.log_choose(relevant, h) + tables.log_choose(size - relevant, places - h)
    # Scaled to sum 1, so that the constant term and most of the rounding drop out.
    chance = np.where(possible, np.exp(log_chance - log_chance.max(axis=1, keepdims=True)), 0.0)
    chance /= chance.sum(axis=1, keepdims=True)
    cut = _shuffled_precision(places, h, ahead, good_ahead, tables.harmonic)
    # Without a relevant row within k the numerator is 0 too: 0 / 1 is the 0 that is wanted.
    return np.asarray((chance * (numerator[:, None] + cut) / np.maximum(good_ahead + h, 1)).sum(axis=1))
