"""Groups as a store gives them: a page of groups, and of each group its first members."""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from hamtarget.items import Id

Linkage = Literal["single", "representative"]
"""What connects the items of a group: a chain of near ones, or one item that all of them are near to."""

LINKAGES: tuple[Linkage, ...] = get_args(Linkage)


class Member(NamedTuple):
    """An item of a group."""

    id: Id
    distance: int
    """Hamming distance to the representative of the group."""


class Group(NamedTuple):
    """A group of two or more items."""

    id: int
    """Stays as long as the group does; no later group gets it."""
    size: int
    """How many items it has."""
    representative: Id
    """The first of its items in the order of `Store.scan`."""
    members: tuple[Member, ...]
    """The representative, then the others, nearest to it first; at most as many as were asked for."""

    @property
    def is_capped(self) -> bool:
        """True if the group has more items than are given here; `Store.group_members` gives the others."""
        return len(self.members) < self.size


class Groups(NamedTuple):
    """A page of the groups of a store, largest first, then by id."""

    radius: int
    linkage: Linkage
    n_groups: int
    """How many groups the store has."""
    n_items: int
    """How many items are in a group."""
    groups: tuple[Group, ...]
    """Those of this page."""
    next: int | None
    """The page after this one is that with `after=next`; None on the last page."""
