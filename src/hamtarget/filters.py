"""Filters on payloads: top-level fields that equal a value, or lie in a range."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

from hamtarget.errors import DtypeError, InputError, NotFiniteError

__all__ = ["Filter", "Range"]

Scalar = str | int | float | bool | None
"""A value that a field of a payload can equal."""


@dataclass(frozen=True, slots=True)
class Range:
    """Values from `min` to `max`, both included: numbers, or strings in the order of their code points.

    Example:
        >>> recent = {"kind": "photo", "year": Range(min=2020)}
        >>> recent["year"]
        Range(min=2020, max=None)

    Attributes:
        min: the smallest value; None for no lower bound.
        max: the largest value; None for no upper bound.
    """

    min: str | int | float | None = None
    max: str | int | float | None = None

    def __post_init__(self) -> None:
        for bound in (self.min, self.max):
            if isinstance(bound, bool) or not isinstance(bound, str | int | float | None):
                raise DtypeError(f"a bound of a Range is {bound!r}; expected a number or a string")
            if isinstance(bound, float) and math.isnan(bound):
                raise NotFiniteError("a bound of a Range is NaN; expected a number or a string")
        if self.min is None and self.max is None:
            raise InputError("a Range has neither min nor max; give one of them")
        if None not in (self.min, self.max) and isinstance(self.min, str) != isinstance(self.max, str):
            raise DtypeError(f"a Range goes from {self.min!r} to {self.max!r}; expected two numbers or two strings")


Filter = Mapping[str, Scalar | Range]
"""The value, or the range of values, that each named top-level field of a payload must have."""


def check_field(field: object) -> None:
    """Check that a payload's field of this name can be looked up.

    Raises:
        InputError: it cannot.
        DtypeError: it is not a string.
    """
    if not isinstance(field, str):
        raise DtypeError(f"filter has the field {field!r}, {type(field).__name__}; expected a string")
    if json.dumps(field, ensure_ascii=False) != f'"{field}"':
        raise InputError(
            f"filter has the field {field!r}; fields with quotes, backslashes or control characters in their name "
            "cannot be looked up: rename the field"
        )


def check_scalar(field: str, value: object) -> None:
    """Check that a field can equal this value.

    Raises:
        NotFiniteError: it is NaN or infinite, which JSON cannot say.
        DtypeError: it is not a scalar.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise NotFiniteError(f"filter wants {field} to be {value}, which JSON cannot say; for bounds there is Range")
    if not isinstance(value, str | int | float | bool | None):
        raise DtypeError(f"filter wants {field} to be {value!r}; expected a string, number, bool, None or Range")


def __dir__() -> list[str]:
    return __all__
