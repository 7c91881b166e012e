"""Filters on payloads in PostgreSQL: by a copy of the top-level fields in which equal things are written alike."""

from __future__ import annotations

import json
import math
from typing import Any

from hamtarget.errors import InputError
from hamtarget.filters import Equal, Filter, Range
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW, ITEM_ROW_SQL

# jsonb holds no NUL. It becomes two characters, so that texts keep their order and none becomes another.
_ESCAPES = str.maketrans({"\0": "\1\1", "\1": "\1\2"})

_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False).encode


def fields_of(payload: bytes) -> bytes:
    """Return the top-level strings, numbers, booleans and nulls of a payload as JSON, for the column `fields`."""
    found = json.loads(payload)
    return _to_json(
        {_escaped(name): _comparable(value) for name, value in found.items() if not isinstance(value, dict | list)}
    ).encode()


# Of an item with several codes, the first row has the fields.
_FIELDS_OF_ITEM = f"""
(CASE WHEN i.row >= {FIRST_SEVERAL_ROW} THEN (SELECT o.fields FROM items o WHERE o.row = {ITEM_ROW_SQL.format("i.row")})
ELSE i.fields END)
"""


def where_item(filter: Filter, first: int) -> tuple[str, list[str]]:
    """Return `where` for any row of the table `items i`, by the fields of the item that it belongs to."""
    return where(filter, first, fields=_FIELDS_OF_ITEM)


def where(filter: Filter, first: int, *, fields: str = "fields") -> tuple[str, list[str]]:
    """Return a condition of SQL on the column `fields`, with parameters from number `first` on, and the parameters.

    Raises:
        InputError: the server cannot evaluate a kind of condition.
    """
    equal: dict[str, Any] = {}
    conditions: list[str] = []
    parameters: list[str] = []
    for field, wanted in filter.conditions:
        if isinstance(wanted, Range):
            name = f"${first + len(parameters)}"
            parameters.append(_escaped(field))
            # CASE, because what is no number must not be read as one.
            is_text = wanted.is_of_texts
            value = f'({fields} ->> {name}) COLLATE "C"' if is_text else f"({fields} -> {name})::numeric"
            bounds = []
            for bound, operator in ((wanted.min, ">="), (wanted.max, "<=")):
                if bound is not None:
                    bounds.append(f"{value} {operator} ${first + len(parameters)}::{'text' if is_text else 'numeric'}")
                    parameters.append(_bound(bound))
            kind = "string" if is_text else "number"
            conditions.append(
                f"CASE WHEN jsonb_typeof({fields} -> {name}) = '{kind}' THEN {' AND '.join(bounds)} ELSE false END"
            )
        elif isinstance(wanted, Equal):
            equal[_escaped(field)] = _comparable(wanted.value)
        else:
            raise InputError(f"filter of the field {field} is {wanted}, which PostgreSQL cannot evaluate; use a folder")
    if equal:
        conditions.append(f"{fields} @> ${first + len(parameters)}::jsonb")
        parameters.append(_to_json(equal))
    return " AND ".join(conditions) or "TRUE", parameters


def _escaped(text: str) -> str:
    return text.translate(_ESCAPES)


def _comparable(value: Any) -> Any:
    """Return `value` so that numeric and jsonb compare it as Python does.

    The shortest decimals of two floats are in the order of the floats, and between the same integers; but those of a
    large float are not the digits of the integer that it is.
    """
    if isinstance(value, str):
        return _escaped(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _bound(bound: str | int | float) -> str:
    if isinstance(bound, str):
        return _escaped(bound)
    return "Infinity" if bound == math.inf else "-Infinity" if bound == -math.inf else _to_json(_comparable(bound))
