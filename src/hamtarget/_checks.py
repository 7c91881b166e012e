"""Checks that every room makes of its arguments."""

from __future__ import annotations

import reprlib

import numpy as np

from hamtarget.errors import DtypeError, InputError


def check_integer(value: int, *, name: str, least: int = 1, most: int | None = None, note: str = "") -> int:
    """Return `value` if it is a whole number from `least` to `most`; those of numpy count, booleans do not.

    An error about the range ends with the note.

    Raises:
        DtypeError: it is not an integer.
        InputError: it is out of range.
    """
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise DtypeError(f"{name} is {reprlib.repr(value)}; expected an integer")
    if value < least or (most is not None and value > most):
        expected = f"at least {least}" if most is None else f"{least} to {most}"
        raise InputError(f"{name} is {value}; expected {expected}{': ' if note else ''}{note}")
    return int(value)
