"""Filters on payloads as conditions of SQLite."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from hamtarget.filters import Filter, Range, check_field, check_scalar


def where(filter: Filter) -> tuple[str, list[str | None]]:
    """Return a condition of SQL on the column `payload`, and its parameters.

    Raises:
        InputError: a field's name cannot be looked up.
        DtypeError: a value is neither a scalar nor a `Range`.
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
