"""Requests for groups: checked once, for every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from hamtarget._checks import check_integer
from hamtarget.codes import check_radius
from hamtarget.errors import DtypeError, InputError
from hamtarget.query import Work
from hamtarget.store.groups.pages import IdsOf, MembersRequest, PageRequest, read_members, read_page
from hamtarget.store.groups.results import LINKAGES, Groups, Linkage, Member
from hamtarget.store.groups.tables import GroupTables, Kept, Kind

if TYPE_CHECKING:
    from hamtarget.store.backend import Backend

# Far more than there can be, and far from what SQLite cannot hold.
_HUGE = 2**62


def ask_for_groups(
    engine: Backend,
    kind: Kind,
    *,
    limit: int | None,
    after: int | None,
    members: int | None,
    work: Work,
) -> Groups:
    """Return a page of groups; see `Store.groups`."""
    asked = PageRequest(
        None if limit is None else min(check_integer(limit, name="limit"), _HUGE),
        None if after is None else _whole(after, name="after"),
        None if members is None else min(check_integer(members, name="members"), _HUGE),
    )

    def answer(tables: GroupTables, kept: Kept, ids_of: IdsOf) -> Groups:
        return read_page(tables, kind, kept, asked, ids_of, work.limits)

    return engine.ask_groups(kind, answer, work)


def ask_for_members(
    engine: Backend, kind: Kind, group: int, *, start: int, limit: int, work: Work
) -> tuple[Member, ...]:
    """Return members of one group; see `Store.group_members`."""
    asked = MembersRequest(_whole(group, name="group"), _whole(start, name="start"), check_integer(limit, name="limit"))

    def answer(tables: GroupTables, _kept: Kept, ids_of: IdsOf) -> tuple[Member, ...]:
        return read_members(tables, kind, asked, ids_of, work.limits)

    return engine.ask_groups(kind, answer, work)


def kind_of_groups(engine: Backend, radius: int | None, linkage: Linkage) -> Kind:
    """Return the kind of groups that is asked for.

    Raises:
        InputError: there is none of this radius or linkage, or an item has several codes.
    """
    if engine.has_several:
        raise InputError(
            f"{engine.path} has items with several codes, and groups are of items with one code each; near_duplicates "
            "gives the pairs of such items"
        )
    if linkage not in LINKAGES:
        raise InputError(f"linkage is {linkage!r}; expected {' or '.join(map(repr, LINKAGES))}")
    kept = engine.settings
    return Kind(kept.radius if radius is None else check_radius(radius, kept.n_bits), linkage)


def _whole(number: int, *, name: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int | np.integer):
        raise DtypeError(f"{name} is {number!r}; expected an integer")
    if not 0 <= number < _HUGE:
        raise InputError(f"{name} is {number}; expected 0 or more")
    return int(number)
