"""A store as groups read it: rows and their codes, all of them at one change, and what has changed since another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hamtarget.answer import Answer
from hamtarget.codes import Codes
from hamtarget.query import Work
from hamtarget.search.distinct import distinct_codes
from hamtarget.store.groups.tables import GroupTables, Place

Rows = NDArray[np.int64]
Near = dict[bytes, list[int]]
"""Codes near to another one, which is one of them, each with all of its rows, ascending."""

# So many hits are sorted into codes by Python, which is faster unless many have one code; more of them by arrays.
_FEW_HITS = 20_000


class Source(Protocol):
    """A store at one change, for as long as it is read."""

    sequence: int
    """Number of the last change."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def everything(self) -> tuple[Rows, Codes]:
        """Return all rows, ascending, and their codes."""
        ...

    def n_changed(self, after: int, most: int) -> int:
        """Return how many rows were written after a change; `most` at most."""
        ...

    def changed(self, after: int) -> tuple[Rows, Codes]:
        """Return rows that were written after a change, and their codes."""
        ...

    def deleted(self, after: int) -> list[int] | None:
        """Return rows that were deleted after a change; None if that is not known any more."""
        ...

    def missing(self, rows: Rows) -> list[int]:
        """Return those of the rows that are not there."""
        ...

    def are_shared(self, codes: Codes, work: Work) -> list[bool]:
        """Return for each of the codes if several rows may have it; False only if one row has."""
        ...

    def near(self, codes: Codes, radius: int, work: Work) -> Iterator[list[Near]]:
        """Yield for each of the codes what is within the radius of it, in blocks."""
        ...


def keys_of(codes: Codes) -> list[bytes]:
    """Return packed codes, (rows, bytes), as bytes."""
    width = codes.shape[1]
    whole = np.ascontiguousarray(codes).tobytes()
    return [whole[start : start + width] for start in range(0, len(whole), width)]


def codes_of(keys: list[bytes]) -> Codes:
    """Return packed codes of bytes, of which there is one at least."""
    return np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)


def near_of(hits: Answer, codes: Codes) -> list[Near]:
    """Return the hits of each search by their codes; hits at one distance are in the order of their rows.

    Args:
        hits: of one search or more.
        codes: of all hits.
    """
    bounds = hits.offsets.tolist()
    searches = zip(bounds, bounds[1:], strict=False)
    if len(hits.rows) > _FEW_HITS:
        return [_near_of_many(hits.rows[start:stop], codes[start:stop]) for start, stop in searches]
    rows, keys = hits.rows.tolist(), keys_of(codes)
    found: list[Near] = []
    for start, stop in searches:
        by_code: Near = {}
        for place in range(start, stop):
            by_code.setdefault(keys[place], []).append(rows[place])
        found.append(by_code)
    return found


def _near_of_many(rows: Rows, codes: Codes) -> Near:
    first, place = distinct_codes(codes)
    order = np.argsort(place, kind="stable")
    parts = np.split(rows[order], np.flatnonzero(np.diff(place[order])) + 1)
    return {key: part.tolist() for key, part in zip(keys_of(codes[first]), parts, strict=True)}


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
