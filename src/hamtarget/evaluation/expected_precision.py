"""Average precision with ties: its exact expectation over a random order of rows at equal distance."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class SumTables(NamedTuple):
    """Tables of sums; the expected AP takes differences of their entries."""

    harmonic: NDArray[np.float64]  # [i] = 1/1 + ... + 1/i, up to k
    log_factorial: NDArray[np.float64]  # [i] = log i!, up to the size of the database

    @classmethod
    def upto(cls, k: int, n_rows: int) -> SumTables:
        """Return the sums that AP@k over `n_rows` rows needs."""
        # In float64 the rounding of a million additions near 1e7 would show in the seventh digit of a probability.
        logs = np.cumsum(np.log(np.arange(1, n_rows + 1)), dtype=np.longdouble)
        return cls(
            np.concatenate([[0.0], np.cumsum(1 / np.arange(1, k + 1))]),
            np.concatenate([[0.0], logs.astype(np.float64)]),
        )

    def log_choose(self, n: NDArray[np.intp], k: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the logarithm of the binomial coefficient, element by element."""
        return np.asarray(self.log_factorial[n] - self.log_factorial[k] - self.log_factorial[n - k])


def _shuffled_precision(
    size: NDArray[np.intp],
    good: NDArray[np.intp],
    before: NDArray[np.intp],
    good_before: NDArray[np.intp],
    harmonic: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the expected sum of precision@i over the relevant ranks i of `size` rows in random order.

    `good` of the rows are relevant. They follow `before` rows, `good_before` of them relevant. Position i is relevant
    with probability good / size, and then (i - 1) (good - 1) / (size - 1) relevant ones are expected before it:

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
    """Return the expected AP@k over a random order within groups of equal distance, given their sizes.

    Args:
        items: rows of each group, (queries, groups).
        good: relevant rows of each group, (queries, groups).
        k: how many ranks count.
        tables: as `SumTables.upto` makes them.
    """
    items_within = items.cumsum(axis=1)
    before = items_within - items
    good_before = good.cumsum(axis=1) - good
    # The group that holds rank k. If it ends there, the sum below has one case, of probability 1.
    last = (items_within >= k).argmax(axis=1)
    whole = np.arange(items.shape[1]) < last[:, None]
    inside = np.where(whole, items, 0)
    numerator = _shuffled_precision(
        inside, np.where(whole, good, 0), np.where(whole, before, 0), good_before, tables.harmonic
    ).sum(axis=1)

    # The number h of the last group's relevant rows before the cut is random, and so is the denominator: sum over
    # every h, which is hypergeometric. Given h, the places before the cut are again in random order.
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
    # Without a relevant row within k the numerator is 0 too, and 0 / 1 is the wanted 0.
    return np.asarray((chance * (numerator[:, None] + cut) / np.maximum(good_ahead + h, 1)).sum(axis=1))
