"""Filters on payloads: conditions that the values of top-level fields must meet.

A kind of condition is one class: what passes, and how JSON writes it. A folder evaluates every kind by `passes`, and
those that SQLite knows by SQL, which is faster (`store.sqlite.tables.filters`). PostgreSQL knows values and ranges.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from hamtarget.errors import DtypeError, InputError, NotFiniteError

__all__ = ["Condition", "Filter", "Range"]

Scalar = str | int | float | bool | None
"""A value that a field of a payload can equal."""


def _name(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


@dataclass(frozen=True, slots=True)
class Condition(ABC):
    """A condition on the value of a field. A new kind is a frozen dataclass; its fields are how JSON writes it."""

    kinds: ClassVar[list[type[Condition]]] = []

    def __init_subclass__(cls) -> None:
        """Remember the kind, so that JSON can name it."""
        # A dataclass with slots is made twice; the second class is the one that counts.
        Condition.kinds[:] = [kind for kind in Condition.kinds if _name(kind) != _name(cls)] + [cls]

    @abstractmethod
    def passes(self, value: Any) -> bool:
        """Return True if a value of a payload, as `json.loads` reads it, meets the condition."""

    def as_json(self) -> Any:
        """Return the condition as JSON writes it: its fields, without those that are None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Equal(Condition):
    """One value: 1 equals 1.0, and neither equals True."""

    value: Scalar

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.passes(other.value)

    def __hash__(self) -> int:
        return hash((isinstance(self.value, bool), self.value))

    def __post_init__(self) -> None:
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise NotFiniteError(f"a value is {self.value}, which JSON cannot say; for bounds there is Range")
        if not isinstance(self.value, str | int | float | bool | None):
            raise DtypeError(f"a value is {self.value!r}; expected a string, number, bool, None or Range")

    def passes(self, value: Any) -> bool:
        """Return True if a value is this one."""
        return bool(value == self.value) and isinstance(value, bool) == isinstance(self.value, bool)

    def as_json(self) -> Any:
        """Return the value itself."""
        return self.value


@dataclass(frozen=True, slots=True)
class Range(Condition):
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

    @property
    def is_of_texts(self) -> bool:
        """True if the bounds are strings."""
        return isinstance(self.max if self.min is None else self.min, str)

    def passes(self, value: Any) -> bool:
        """Return True if a value is of the bounds' kind, and lies between them."""
        if isinstance(value, bool) or not isinstance(value, str if self.is_of_texts else int | float):
            return False
        low: Any = self.min
        high: Any = self.max
        return (low is None or value >= low) and (high is None or value <= high)


FilterLike = Mapping[str, Scalar | Condition]
"""A filter as callers give it: the value, or the condition, of each named top-level field of a payload."""


@dataclass(frozen=True, slots=True)
class Filter:
    """The conditions of named fields, all of which a payload must meet: frozen, checked and hashable.

    Example:
        >>> wanted = Filter.of({"kind": "photo", "year": Range(min=2020)})
        >>> wanted.passes({"kind": "photo", "year": 2024}), wanted.passes({"kind": "photo"})
        (True, False)

    Attributes:
        conditions: of the fields, by name.
    """

    conditions: tuple[tuple[str, Condition], ...]

    @classmethod
    def of(cls, filter: Filter | FilterLike | None) -> Filter | None:
        """Return the filter that a caller gives; None where everything passes.

        Raises:
            DtypeError: it is not a mapping of strings, or a value is not a scalar or a condition.
            InputError: a field's name cannot be looked up.
            NotFiniteError: a value is NaN or infinite, which JSON cannot say.
        """
        if filter is None or isinstance(filter, Filter):
            return filter or None
        if not isinstance(filter, Mapping):
            raise DtypeError(
                f"filter is {filter!r}; expected a dict with the value, or the Range of values, of each field"
            )
        found = []
        for field, wanted in filter.items():
            _check_field(field)
            try:
                found.append((field, wanted if isinstance(wanted, Condition) else Equal(wanted)))
            except InputError as error:
                raise type(error)(f"filter of the field {field}: {error}") from error
        return cls(tuple(found)) or None

    @classmethod
    def from_json(cls, written: Any) -> Filter | None:
        """Return the filter that `as_json` wrote, or one whose conditions are partly written so.

        Raises:
            InputError: it is not a filter.
        """
        if not isinstance(written, Mapping):
            return cls.of(written)
        return cls.of({field: _condition_of(field, value) for field, value in written.items()})

    def as_json(self) -> dict[str, Any]:
        """Return the filter as JSON writes it: a value, or an object of the condition's fields, for each field."""
        return {field: condition.as_json() for field, condition in self.conditions}

    def passes(self, payload: Mapping[str, Any] | None) -> bool:
        """Return True if a payload has all of the fields, and each meets its condition."""
        held = payload or {}
        return all(field in held and condition.passes(held[field]) for field, condition in self.conditions)

    def __bool__(self) -> bool:
        """Return True if there is a condition."""
        return bool(self.conditions)


def _condition_of(field: str, value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    for kind in Condition.kinds:
        if kind is not Equal and value and set(value) <= {each.name for each in fields(kind)}:
            return kind(**value)
    known = " or ".join("{" + ", ".join(each.name for each in fields(kind)) + "}" for kind in Condition.kinds[1:])
    raise InputError(f"filter of the field {field} is {dict(value)!r}; expected a value, or an object of {known}")


def _check_field(field: object) -> None:
    if not isinstance(field, str):
        raise DtypeError(f"filter has the field {field!r}, {type(field).__name__}; expected a string")
    if json.dumps(field, ensure_ascii=False) != f'"{field}"':
        raise InputError(
            f"filter has the field {field!r}; fields with quotes, backslashes or control characters in their name "
            "cannot be looked up: rename the field"
        )


def __dir__() -> list[str]:
    return __all__
