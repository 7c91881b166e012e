"""Codes brought to the code of a class that they are near to, as errors of a transmission are corrected.

A search within a small radius misses rows of a class whose bits differ in a few places more. Where classes were learned
from, the code that most rows of a class share is known: rows near one of these take it, so that all of them meet.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hamtarget.codes import Codes, check_codes, distances, pack, unpack
from hamtarget.errors import InputError, ShapeError

# Codes are compared so many at a time, so that the working memory stays small.
_ROWS_AT_A_TIME = 1 << 14


def majority_codes(codes: ArrayLike, labels: ArrayLike, n_bits: int) -> Codes:
    """For each class in the order of its label, the code of each bit's majority over the class's rows; ties are 0.

    Args:
        codes: packed codes of rows that were learned from.
        labels: of those rows, (rows,).
        n_bits: length of a code.

    Raises:
        ShapeError: not one label a code.
    """
    rows = check_codes(codes, n_bits)
    names = np.asarray(labels)
    if names.shape != (len(rows),):
        raise ShapeError(f"labels have shape {names.shape}; {len(rows)} codes need ({len(rows)},)")
    classes, numbers = np.unique(names, return_inverse=True)
    ones = np.zeros((len(classes), n_bits), dtype=np.int64)
    np.add.at(ones, numbers, unpack(rows, n_bits))
    return pack(2 * ones > np.bincount(numbers)[:, None])


def decode(codes: ArrayLike, class_codes: ArrayLike, n_bits: int, *, within: int) -> Codes:
    """Codes of which each that is at most `within` bits from a class's code is that code; others are as they were.

    Of several class codes as near as each other, it is the first.

    Args:
        codes: packed codes.
        class_codes: packed codes of the classes, see `majority_codes`.
        n_bits: length of a code.
        within: bits that are corrected. More of them find more and err more: choose it on rows that were kept aside.

    Raises:
        InputError: within is below 0.
    """
    rows, wanted = check_codes(codes, n_bits), check_codes(class_codes, n_bits, name="class_codes")
    if within < 0:
        raise InputError(f"within is {within}; expected 0 or more")
    decoded: NDArray[np.uint8] = rows.copy()
    if not len(wanted):
        return decoded
    for start in range(0, len(rows), _ROWS_AT_A_TIME):
        some = slice(start, start + _ROWS_AT_A_TIME)
        distance = distances(rows[some], wanted, n_bits)
        nearest = distance.argmin(1)
        near = distance[np.arange(len(nearest)), nearest] <= within
        decoded[some][near] = wanted[nearest[near]]
    return decoded
