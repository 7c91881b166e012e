"""Pages of kept groups: the largest first, and of each its members, nearest to the representative first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from hamtarget._core import _native
from hamtarget.errors import InputError
from hamtarget.items import Id
from hamtarget.store.groups.results import Group, Groups, Member
from hamtarget.store.groups.tables import GroupRow, GroupTables, Kept, Kind

IdsOf = Callable[[Sequence[int]], Sequence[Id]]
"""Gives the ids of rows, all of which are there."""

# More than any store has.
_ALL = 2**62
# Groups whose members are read at a time.
_GROUPS_AT_ONCE = 4096


class PageRequest(NamedTuple):
    """A page of groups that is asked for."""

    limit: int | None
    after: int | None
    members: int | None


class MembersRequest(NamedTuple):
    """A page of the members of one group that is asked for."""

    group: int
    start: int
    limit: int


class _Placed(NamedTuple):
    """A row of a group; in this order rows are given."""

    distance: int
    first: int
    """First row of those with the same code."""
    row: int


def read_page(
    tables: GroupTables, kind: Kind, kept: Kept, asked: PageRequest, ids_of: IdsOf, limits: _native.Limits | None
) -> Groups:
    """Return a page of groups.

    Raises:
        InputError: there is no group `after`.
        LimitError: the work reached one of its limits.
    """
    after = None if asked.after is None else _group(tables, kind, asked.after)
    limit = _ALL if asked.limit is None else asked.limit
    # One more than asked for tells whether there is a next page.
    found = tables.largest_groups(limit + 1, after)
    page = found[:limit]
    groups: list[Group] = []
    for start in range(0, len(page), _GROUPS_AT_ONCE):
        groups += _with_members(tables, page[start : start + _GROUPS_AT_ONCE], asked.members, ids_of, limits)
    next_page = page[-1].id if len(found) > limit else None
    return Groups(kind.radius, kind.linkage, kept.n_groups, kept.n_items, tuple(groups), next_page)


def read_members(
    tables: GroupTables, kind: Kind, asked: MembersRequest, ids_of: IdsOf, limits: _native.Limits | None
) -> tuple[Member, ...]:
    """Return members of one group.

    Raises:
        InputError: there is no such group.
        LimitError: the work reached one of its limits.
    """
    group = _group(tables, kind, asked.group)
    placed = _nearest_first(tables, group, asked.start, asked.limit, limits)
    ids = ids_of([each.row for each in placed])
    return tuple(Member(id, each.distance) for id, each in zip(ids, placed, strict=True))


def _group(tables: GroupTables, kind: Kind, id: int) -> GroupRow:
    found = tables.groups([id]).get(id)
    if found is None:
        raise InputError(
            f"there is no group {id} within {kind.radius} bits by {kind.linkage} linkage; it may have been merged or "
            "split since: begin with the first page"
        )
    return found


def _with_members(
    tables: GroupTables, groups: list[GroupRow], most: int | None, ids_of: IdsOf, limits: _native.Limits | None
) -> list[Group]:
    """Return groups with their first members; small groups are read together."""
    small = [group for group in groups if most is None or group.size <= most]
    if limits is not None:
        limits.take(rows=sum(group.size for group in small))
    placed = _all_nearest_first(tables, small)
    for group in groups:
        if group.id not in placed:
            # The representative is named, also if no members are asked for.
            placed[group.id] = _nearest_first(tables, group, 0, max(1, most or 0), limits)
    rows = [each.row for group in groups for each in placed[group.id]]
    if limits is not None:
        limits.take(hits=len(rows))
    ids = iter(ids_of(rows))
    made = []
    for group in groups:
        here = placed[group.id]
        members = [Member(id, each.distance) for id, each in zip(islice(ids, len(here)), here, strict=True)]
        made.append(Group(group.id, group.size, members[0].id, tuple(members[:most])))
    return made


def _all_nearest_first(tables: GroupTables, groups: list[GroupRow]) -> dict[int, list[_Placed]]:
    """Return all rows of the groups in their order."""
    found: dict[int, dict[bytes, list[int]]] = {group.id: {} for group in groups}
    for id, code, row in tables.members_of_groups(list(found)):
        found[id].setdefault(code, []).append(row)
    placed = {}
    for group in groups:
        by_code = found[group.id]
        firsts = {code: min(rows) for code, rows in by_code.items()}
        centre = _centre(group, ((first, code) for code, first in firsts.items()))
        placed[group.id] = sorted(
            _Placed(_distance(code, centre), firsts[code], row) for code, rows in by_code.items() for row in rows
        )
    return placed


def _nearest_first(
    tables: GroupTables, group: GroupRow, start: int, limit: int, limits: _native.Limits | None
) -> list[_Placed]:
    """Return rows of a large group from `start` on: of its rows only these are read, but all of its places."""
    if limits is not None:
        limits.take(rows=tables.n_places(group.id) + min(limit, group.size))
    # Counting rows takes a while, and is needed only to skip some.
    counted = tables.places_of_groups([group.id])[group.id] if start else []
    sizes = {place.number: n_rows for place, n_rows in counted}
    places = [place for place, _ in counted] or tables.places_of_group(group.id)
    centre = _centre(group, ((place.first, place.code) for place in places))
    numbers = {place.first: place.number for place in places}
    found: list[_Placed] = []
    for distance, first in sorted((_distance(place.code, centre), place.first) for place in places):
        if len(found) == limit:
            break
        size = sizes.get(numbers[first], 0)
        if start and size <= start:
            start -= size
            continue
        rows = tables.rows_of_place(numbers[first], start, limit - len(found))
        found += (_Placed(distance, first, row) for row in rows)
        start = 0
    return found


def _centre(group: GroupRow, places: Iterable[tuple[int, bytes]]) -> int:
    """Return the code of the representative, as a number."""
    return next(int.from_bytes(code) for first, code in places if first == group.representative)


def _distance(code: bytes, centre: int) -> int:
    return (int.from_bytes(code) ^ centre).bit_count()
