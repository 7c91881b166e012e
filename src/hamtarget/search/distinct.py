"""Different numbers, or different codes, of an array, by sorting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes


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


def distinct_codes(codes: Codes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a row of each different code, and for each row the number of its code among them."""
    # As words of 64 bits: numpy sorts these many times faster than rows of bytes.
    words = np.zeros((len(codes), -(-codes.shape[1] // 8) * 8), dtype=np.uint8)
    words[:, : codes.shape[1]] = codes
    keys = words.view(np.uint64)
    order = np.lexsort(keys.T)
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (keys[order[1:]] != keys[order[:-1]]).any(axis=1)
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.cumsum(is_first) - 1
    return order[is_first], place
