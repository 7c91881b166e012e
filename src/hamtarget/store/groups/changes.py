"""The changes of a store as groups see them: rows that left a place, rows that came with a code."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hamtarget.query import Work
from hamtarget.store.groups.source import Source, codes_of, keys_of
from hamtarget.store.groups.tables import GroupTables, Place


class Changes(NamedTuple):
    """Changes since groups were right."""

    left: dict[Place, list[int]]
    """Rows that are no longer at a place: deleted, or with another code now."""
    came: dict[bytes, list[int]]
    """New rows, and rows with another code than before, by their codes."""
    shared: list[bytes]
    """Those of the codes that came which other rows may have."""

    @property
    def rows_that_left(self) -> list[int]:
        """All rows that are no longer at their places."""
        return [row for rows in self.left.values() for row in rows]


def read_changes(tables: GroupTables, source: Source, after: int, work: Work) -> Changes:
    """Return what has changed after a change of the store; a row with the same code as before has not."""
    rows, codes = source.changed(after)
    gone = source.deleted(after)
    if gone is None:
        # Traces of the deleted are gone as well: what is grouped is compared with what is there.
        gone = source.missing(np.array(tables.all_rows(), dtype=np.int64))
    # Most rows that came are later than all that are in groups.
    last = tables.last_row()
    numbers = tables.places_of_rows([*rows[rows <= last].tolist(), *gone])
    places = tables.places(sorted(set(numbers.values())))
    left: dict[Place, list[int]] = {}
    came: dict[bytes, list[int]] = {}
    for row, key in zip(rows.tolist(), keys_of(codes), strict=True):
        before = places[numbers[row]] if row in numbers else None
        if before is not None and before.code == key:
            continue
        if before is not None:
            left.setdefault(before, []).append(row)
        came.setdefault(key, []).append(row)
    for row in gone:
        if row in numbers:
            left.setdefault(places[numbers[row]], []).append(row)
    codes_that_came = list(came)
    shared = source.are_shared(codes_of(codes_that_came), work) if came else []
    return Changes(left, came, [code for code, is_shared in zip(codes_that_came, shared, strict=True) if is_shared])
