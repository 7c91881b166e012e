"""Row numbers of items with several codes: a number tells the item, how many codes it has, and which of them it is.

An item with one code has one row. One with several has a row for each code, and their numbers follow each other: the
first is the item's own, has its name and its payload, and holds the number of its codes. So nobody has to ask a table
which item a row belongs to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import CorruptFileError
from hamtarget.items import MAX_CODES, Id
from hamtarget.store.items.ids import FIRST_NAMED_ROW, is_direct

Rows = NDArray[np.int64]

# From here up, a row number is, from its highest bits: which item, its number of codes less one (6 bits), and which of
# these codes it is (6 bits).
FIRST_SEVERAL_ROW = FIRST_NAMED_ROW + 2**61
_POSITION = MAX_CODES - 1
_COUNT_SHIFT = 6
_ITEM_SHIFT = 12
_MOST_ITEMS = 2**49

ITEM_ROW_SQL = f"(CASE WHEN {{0}} >= {FIRST_SEVERAL_ROW} THEN {{0}} & {~_POSITION} ELSE {{0}} END)"
"""SQL for the number of an item's first row, from that of any of its rows, which stands in place of {0}."""

IS_FIRST_SQL = f"({{0}} < {FIRST_SEVERAL_ROW} OR {{0}} & {_POSITION} = 0)"
"""SQL that is true for the first row of an item, whose number stands in place of {0}."""

NUMBER_SQL = f"""
(CASE WHEN {{0}} >= {FIRST_SEVERAL_ROW} THEN {FIRST_NAMED_ROW} + ({{0}} - {FIRST_SEVERAL_ROW} >> {_ITEM_SHIFT})
ELSE {{0}} END)
"""
"""SQL for the number that an item was given, from that of its first row, which stands in place of {0}."""

N_CODES_SQL = f"(CASE WHEN {{0}} >= {FIRST_SEVERAL_ROW} THEN ({{0}} >> {_COUNT_SHIFT} & {_POSITION}) + 1 ELSE 1 END)"
"""SQL for the number of codes of an item, whose first row stands in place of {0}."""

INCOMPLETE_SQL = f"""
SELECT first, n_codes FROM (
    SELECT row & {~_POSITION} AS first, count(*) AS n_codes, max(row & {_POSITION}) AS last
    FROM items WHERE row >= {FIRST_SEVERAL_ROW} GROUP BY row & {~_POSITION}
) AS found
WHERE n_codes <> (first >> {_COUNT_SHIFT} & {_POSITION}) + 1 OR last <> n_codes - 1
"""
"""SQL for the first rows of items of which codes are missing, and how many of these are there."""


def item_rows(rows: Rows) -> Rows:
    """Return, for each row, the number of the first row of its item; the array itself where all items have one code."""
    if not len(rows) or rows.max() < FIRST_SEVERAL_ROW:
        return rows
    return np.where(rows >= FIRST_SEVERAL_ROW, rows & ~_POSITION, rows)


def item_row(row: int) -> int:
    """Return the number of the first row of a row's item."""
    return row if row < FIRST_SEVERAL_ROW else row & ~_POSITION


def are_further(rows: Rows) -> NDArray[np.bool_]:
    """Return, for each row, True if it is not the first of its item."""
    further: NDArray[np.bool_] = (rows >= FIRST_SEVERAL_ROW) & (rows & _POSITION != 0)
    return further


def n_codes_of(item_row: int) -> int:
    """Return how many codes an item has, by the number of its first row."""
    return 1 if item_row < FIRST_SEVERAL_ROW else (item_row >> _COUNT_SHIFT & _POSITION) + 1


def n_codes_of_items(item_rows: Rows) -> Rows:
    """Return how many codes each item has, by the numbers of their first rows."""
    return np.where(item_rows < FIRST_SEVERAL_ROW, 1, (item_rows >> _COUNT_SHIFT & _POSITION) + 1)


def expand(item_rows: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of all rows of items, by those of their first rows."""
    for row in item_rows:
        yield from range(row, row + n_codes_of(row))


def numbers_given(last_row: int | None, last_several_row: int | None) -> int:
    """Return the next number to give, by the last rows below and from `FIRST_SEVERAL_ROW` on, where there are any."""
    after = FIRST_NAMED_ROW if last_row is None else max(FIRST_NAMED_ROW, last_row + 1)
    if last_several_row is None:
        return after
    return max(after, FIRST_NAMED_ROW + (last_several_row - FIRST_SEVERAL_ROW >> _ITEM_SHIFT) + 1)


class Placement(NamedTuple):
    """Rows for items that are put.

    Attributes:
        rows: number of the first row of each item.
        names: of those that were given a number.
        left: first rows that some of the items had before, if they were there, and have no longer.
        next_row: the next number to give.
    """

    rows: list[int]
    names: dict[Id, int]
    left: list[int]
    next_row: int


def place_items(ids: Sequence[Id], counts: Iterable[int], known: dict[Id, int], next_row: int) -> Placement:
    """Return rows for items with so many codes each; an item whose number of codes changes gets others.

    Args:
        ids: each once.
        counts: how many codes each has.
        known: first rows of those ids that have one.
        next_row: the next number to give.

    Raises:
        CorruptFileError: there are no numbers left, which only a forged store can say.
    """
    rows: list[int] = []
    names: dict[Id, int] = {}
    left: list[int] = []
    for id, n_codes in zip(ids, counts, strict=False):
        before = known.get(id)
        if before is not None:
            if n_codes_of(before) == n_codes:
                rows.append(before)
                continue
            left.append(before)
        if n_codes == 1 and is_direct(id):
            rows.append(id)
            continue
        row = next_row if n_codes == 1 else _several_row(next_row - FIRST_NAMED_ROW, n_codes)
        names[id] = row
        next_row += 1
        rows.append(row)
    return Placement(rows, names, left, next_row)


def _several_row(number: int, n_codes: int) -> int:
    if number >= _MOST_ITEMS:
        raise CorruptFileError(f"the store has given {number:,} numbers to items, which no store can have done")
    return FIRST_SEVERAL_ROW + (number << _ITEM_SHIFT) + (n_codes - 1 << _COUNT_SHIFT)
