"""Filters on payloads: top-level fields that equal a value, or lie in a range."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hamtarget.errors import DtypeError, InputError, NotFiniteError

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Range:
    """Values from `min` to `max`, both included: all numbers, or all strings by code points; None is no bound."""

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


def where(filter: Filter) -> tuple[str, list[str | None]]:
    """A condition of SQL on the column `payload`, and its parameters.

    Raises:
        InputError: a field's name cannot be looked up. DtypeError: a value is neither a scalar nor a `Range`.
    """
    conditions: list[str] = []
    parameters: list[str | None] = []
    for field, wanted in filter.items():
        check_field(field)
        parameters.append(f'$."{field}"')
        if isinstance(wanted, Range):
            conditions.append("hamtarget_within(payload -> ?, ?, ?)")
            parameters += [_bound(wanted.min), _bound(wanted.max)]
        else:
            texts = _texts(field, wanted)
            conditions.append(f"payload -> ? IN ({', '.join('?' * len(texts))})")
            parameters += texts
    return " AND ".join(conditions) or "TRUE", parameters


def within(found: str | None, low: str | None, high: str | None) -> bool:
    """Whether a value lies in a range; all of them are JSON. For use inside SQLite."""
    if found is None:
        return False
    value = json.loads(found)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    least, most = _parsed(low), _parsed(high)
    if isinstance(value, str) != isinstance(most if least is None else least, str):
        return False
    return (least is None or value >= least) and (most is None or value <= most)


_parsed = lru_cache(256)(lambda text: None if text is None else json.loads(text))


def _bound(bound: str | int | float | None) -> str | None:
    # json.loads knows Infinity, which its writer writes.
    return None if bound is None else json.dumps(bound)


def check_field(field: object) -> None:
    """Nothing, if a payload's field of this name can be looked up.

    Raises:
        InputError: it cannot. DtypeError: it is no string.
    """
    if not isinstance(field, str):
        raise DtypeError(f"filter has the field {field!r}, {type(field).__name__}; expected a string")
    if json.dumps(field, ensure_ascii=False) != f'"{field}"':
        raise InputError(
            f"filter has the field {field!r}; fields with quotes, backslashes or control characters in their name "
            "cannot be looked up: rename the field"
        )


def check_scalar(field: str, value: object) -> None:
    """Nothing, if a field can equal this value.

    Raises:
        NotFiniteError: JSON cannot say it. DtypeError: it is no scalar.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise NotFiniteError(f"filter wants {field} to be {value}, which JSON cannot say; for bounds there is Range")
    if not isinstance(value, str | int | float | bool | None):
        raise DtypeError(f"filter wants {field} to be {value!r}; expected a string, number, bool, None or Range")


def _texts(field: str, value: Any) -> list[str]:
    """All that JSON may say for `value`, as payloads are written: 1 and 1.0 are one number.

    Texts are compared, because SQLite does not read every float to the last bit, nor text after a NUL.
    """
    check_scalar(field, value)
    equal: list[Any] = [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        equal += [int(value)] if value == int(value) else []
        # A float that is a larger integer has other digits.
        equal += [float(value)] if abs(value) < 2**1023 and float(value) == value else []
        equal += [-0.0] if value == 0 else []
    return list(dict.fromkeys(json.dumps(element, ensure_ascii=False) for element in equal))
