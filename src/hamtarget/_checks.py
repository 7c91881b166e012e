"""Checks that every room makes of its arguments: whole numbers, ids, and what becomes an array."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from hamtarget.errors import DtypeError, InputError, ShapeError


def shown(value: object) -> str:
    """Return a value as an error shows it: in a few characters."""
    try:
        return reprlib.repr(value)
    except ValueError:
        # Python does not write integers of thousands of digits.
        return f"a huge {type(value).__name__}"


def check_integer(value: int, *, name: str, least: int | None = 1, most: int | None = None, note: str = "") -> int:
    """Return `value` if it is a whole number from `least` to `most`; those of numpy count, booleans do not.

    An error about the range ends with the note.

    Raises:
        DtypeError: it is not an integer.
        InputError: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DtypeError(f"{name} is {shown(value)}; expected an integer")
    if (least is not None and value < least) or (most is not None and value > most):
        expected = f"at least {least}" if most is None else f"{least} to {most}"
        raise InputError(f"{name} is {shown(value)}; expected {expected}{', ' if note else ''}{note}")
    return int(value)


def check_ids(ids: ArrayLike, *, name: str = "ids") -> NDArray[np.int64]:
    """Return `ids` as a contiguous array of int64.

    Raises:
        DtypeError: they are not integers that int64 holds.
        ShapeError: they are not (rows,).
    """
    array = as_array(ids, name=name)
    # An empty list has no integers to tell its type by; numpy calls it float64.
    if array.size and (array.dtype.kind not in "iu" or not np.can_cast(array.dtype, np.int64)):
        hint = "" if array.dtype.kind not in "US" else ": number the rows, or use a Store, whose ids may be texts"
        raise DtypeError(f"{name} have dtype {array.dtype}; expected int64{hint}")
    if array.ndim != 1:
        raise ShapeError(f"{name} have {array.ndim} dimensions; expected 1: (rows,)")
    return contiguous(array, np.int64)


def as_list(values: Iterable[Any], *, name: str) -> list[Any] | tuple[Any, ...]:
    """Return what can be gone through as a list, or as the tuple that it is.

    Raises:
        DtypeError: it cannot.
    """
    if isinstance(values, list | tuple):
        return values
    try:
        return list(values)
    except TypeError as error:
        raise DtypeError(f"{name} are {shown(values)}; expected a list, or what can be gone through") from error


def as_array(value: ArrayLike, *, name: str) -> NDArray[Any]:
    """Return a value as an array, whatever its type and shape.

    Raises:
        DtypeError: it is not an array or a list, or is on a GPU.
        ShapeError: its rows have different lengths.
    """
    if type(value) is np.ndarray:
        return value
    try:
        array = np.asarray(value)
    except (RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, ValueError) and isinstance(value, list | tuple):
            raise ShapeError(f"{name} have rows of different lengths; expected one length ({error})") from error
        # A tensor on a GPU, or one with a gradient.
        raise DtypeError(f"{name} are no array: {error}; expected one of numpy, as .detach().cpu().numpy()") from error
    if array.ndim == 0 and array.dtype == object:
        raise DtypeError(f"{name} are {shown(value)}; expected an array or a list")
    return array


def contiguous(array: NDArray[Any], dtype: DTypeLike) -> NDArray[Any]:
    """Return the numbers as the native core reads them: row after row, aligned, of this dtype; too large ones as inf.

    It is the same array where it is so already.
    """
    if array.dtype == dtype and array.flags.c_contiguous and array.flags.aligned:
        return array
    with np.errstate(over="ignore"):
        return np.require(array, dtype, ("C", "A"))
