"""Ids of rows that are not their own numbers, which hits show in place of the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget.search.core import _native

Rows = NDArray[np.int64]


class _Table(NamedTuple):
    """Ids of consecutive rows."""

    first: int
    """The first row."""
    ids: NDArray[np.object_]
    """None where none is known."""
    is_known: NDArray[np.bool_]
    """True where a row's id is in `ids`; set after the id."""

    def covering(self, low: int, high: int, first_named: int) -> _Table:
        """Return a table that also reaches from `low` to `high`, with room to spare, so that it rarely grows again."""
        past = self.first + len(self.ids)
        if self.first <= low and high < past:
            return self
        spare = (max(high, past) - min(low, self.first)) // 2
        first = self.first if self.first <= low else max(first_named, low - spare)
        past = past if high < past else high + 1 + spare
        grown = _Table(first, np.empty(past - first, dtype=object), np.zeros(past - first, dtype=bool))
        here = slice(self.first - first, self.first - first + len(self.ids))
        grown.ids[here], grown.is_known[here] = self.ids, self.is_known
        return grown


class RowNames:
    """Ids, strings or integers, of rows from `first_named` up, as far as they are known; other rows are their own ids.

    Once known, an id stays. Any number of threads may ask while one adds.

    Attributes:
        core: the same for the native core, which puts the ids into hits.
    """

    def __init__(self, first_named: int) -> None:
        """Begin without any id."""
        self._first_named = first_named
        self._table = _Table(first_named, np.empty(0, dtype=object), np.empty(0, dtype=bool))
        self.core = _native.RowNames(first_named)

    def know(self, rows: Rows) -> bool:
        """Return True if the ids of all of the rows are known."""
        return self.core.know(rows)

    def are_known(self, rows: Rows) -> NDArray[np.bool_]:
        """Return, for each row, if its id is known."""
        table = self._table
        places = rows - table.first
        known = rows < self._first_named
        inside = ~known & (places >= 0) & (places < len(table.ids))
        known[inside] = table.is_known[places[inside]]
        return known

    def add(self, ids: Mapping[int, Any]) -> None:
        """Remember these ids, by row."""
        if ids:
            table = self._table.covering(min(ids), max(ids), self._first_named)
            for row, id in ids.items():
                table.ids[row - table.first] = id
                table.is_known[row - table.first] = True
            self._table = table
        # Also where there is nothing new: an interrupt may have come before this line.
        self.core.hold(*self._table)

    def of(self, rows: Rows) -> NDArray[Any]:
        """Return ids of rows, all of which are known: the rows themselves, or an array of objects if any has a name."""
        if not len(rows) or rows.max() < self._first_named:
            return rows
        table = self._table
        if rows.min() >= self._first_named:
            return table.ids[rows - table.first]
        ids = rows.astype(object)
        has_name = rows >= self._first_named
        ids[has_name] = table.ids[rows[has_name] - table.first]
        return ids
