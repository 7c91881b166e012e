"""Different numbers of an array, by sorting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def distinct(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the different numbers, ascending; the array itself where it has them so.

    `np.unique` gives the same, but hashes the numbers first: for a million of them that takes seconds (numpy 2.4).
    """
    if bool((numbers[1:] > numbers[:-1]).all()):
        return numbers
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]
