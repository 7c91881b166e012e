"""Filters on payloads as conditions of SQLite."""

from __future__ import annotations

import json
import math
import sys
from functools import lru_cache, singledispatch
from typing import Any

from hamtarget.filters import Condition, Equal, Filter, Range

# SQLite reads the last digits of a float differently from Python, by far less than this share of it.
_NEAR = 1e-9
_TINY = 1e-290


Sql = tuple[str, list[str | float | None]]
"""A condition of SQL, and its parameters."""


def where(filter: Filter) -> Sql:
    """Return a condition of SQL on the column `payload`, and its parameters."""
    conditions: list[str] = []
    parameters: list[str | float | None] = []
    for field, condition in filter.conditions:
        sql, values = _condition(condition, f'$."{field}"')
        conditions.append(sql)
        parameters += values
    return " AND ".join(conditions) or "TRUE", parameters


@singledispatch
def _condition(condition: Condition, path: str) -> Sql:
    """Return a condition on the field at a path. Python is called for each row, unless SQLite can evaluate the kind."""
    return "hamtarget_passes(payload -> ?, ?)", [path, _written(condition)]


@_condition.register
def _equal(condition: Equal, path: str) -> Sql:
    texts = _texts(condition.value)
    return f"payload -> ? IN ({', '.join('?' * len(texts))})", [path, *texts]


@_condition.register
def _within(condition: Range, path: str) -> Sql:
    # SQLite leaves out what is not even near the range: to call Python for a row takes eight times as long.
    near = [(sign, bound) for sign, bound in ((">=", _below(condition.min)), ("<=", _above(condition.max)))]
    conditions = [f"payload ->> ? {sign} ?" for sign, bound in near if bound is not None]
    parameters = [value for _, bound in near if bound is not None for value in (path, bound)]
    return " AND ".join([*conditions, "hamtarget_passes(payload -> ?, ?)"]), [*parameters, path, _written(condition)]


def passes(found: str | None, written: str) -> bool:
    """Return True if a value meets a condition; both are JSON. SQLite calls this."""
    return found is not None and _read(written).passes(json.loads(found))


def _written(condition: Condition) -> str:
    # json.loads knows Infinity, which its writer writes.
    return json.dumps(condition.as_json())


@lru_cache(256)
def _read(written: str) -> Condition:
    filter = Filter.from_json({"field": json.loads(written)})
    if filter is None:
        raise TypeError("a condition was read as none")
    return filter.conditions[0][1]


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


def _texts(value: Any) -> list[str]:
    """Return every JSON text that means `value`, as payloads are written: 1 and 1.0 are one number.

    Texts are compared, because SQLite does not read every float to the last bit, nor text after a NUL.
    """
    equal: list[Any] = [value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        equal += [int(value)] if value == int(value) else []
        # A float that is a larger integer has other digits.
        equal += [float(value)] if abs(value) < 2**1023 and float(value) == value else []
        equal += [-0.0] if value == 0 else []
    return list(dict.fromkeys(json.dumps(element, ensure_ascii=False) for element in equal))
