"""Filters on payloads as conditions of SQLite."""

from __future__ import annotations

import json
import math
import sys
from functools import lru_cache
from typing import Any

from hamtarget.filters import Filter, Range, check_field, check_scalar

# SQLite reads the last digits of a float differently from Python, by far less than this share of it.
_NEAR = 1e-9
_TINY = 1e-290


def where(filter: Filter) -> tuple[str, list[str | float | None]]:
    """Return a condition of SQL on the column `payload`, and its parameters.

    Raises:
        InputError: a field's name cannot be looked up.
        DtypeError: a value is neither a scalar nor a `Range`.
    """
    conditions: list[str] = []
    parameters: list[str | float | None] = []
    for field, wanted in filter.items():
        check_field(field)
        path = f'$."{field}"'
        parameters.append(path)
        if isinstance(wanted, Range):
            # SQLite leaves out what is not even near the range: to call Python for a row takes eight times as long.
            for sign, near in ((">=", _below(wanted.min)), ("<=", _above(wanted.max))):
                if near is not None:
                    conditions.append(f"payload ->> ? {sign} ?")
                    parameters += [near, path]
            conditions.append("hamtarget_within(payload -> ?, ?, ?)")
            parameters += [_bound(wanted.min), _bound(wanted.max)]
        else:
            texts = _texts(field, wanted)
            conditions.append(f"payload -> ? IN ({', '.join('?' * len(texts))})")
            parameters += texts
    return " AND ".join(conditions) or "TRUE", parameters


def within(found: str | None, low: str | None, high: str | None) -> bool:
    """Return True if a value lies in a range; all of them are JSON. SQLite calls this."""
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


def _below(bound: Any) -> str | float | None:
    """Return a value that is surely not above a bound, and near it; None if there is no bound."""
    if isinstance(bound, str):
        # SQLite may end a text before its first NUL.
        return _sent(bound.partition("\0")[0])
    return None if bound is None else -_not_below(-bound)


def _above(bound: Any) -> str | float | None:
    """Return a value that is surely not below a bound, and near it; None if there is no bound."""
    if isinstance(bound, str):
        return _sent(bound)
    return None if bound is None else _not_below(bound)


def _sent(text: str) -> str | None:
    """Return the text; None if it holds half a pair of surrogates, which SQLite cannot be sent."""
    return text if text.encode("utf-8", "ignore").decode("utf-8") == text else None


def _not_below(number: int | float) -> float:
    try:
        wide = float(number)
    except OverflowError:
        # An integer larger than every float.
        return math.inf if number > 0 else -sys.float_info.max
    return wide + abs(wide) * _NEAR + _TINY if math.isfinite(wide) else wide


def _texts(field: str, value: Any) -> list[str]:
    """Return every JSON text that means `value`, as payloads are written: 1 and 1.0 are one number.

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
