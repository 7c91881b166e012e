"""Requests and answers about groups, as JSON."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from hamtarget.serve.messages.fields import Message
from hamtarget.store.groups.results import Linkage

_MOST_BITS = 4096
_MOST_GROUPS = 1000
# Far more than there can be.
_HUGE = 2**62


class _Kind(Message):
    """Radius and linkage of groups."""

    radius: int | None = Field(
        None, ge=0, le=_MOST_BITS, description="The store's radius by default, and at most that."
    )
    linkage: Linkage = Field(
        "single",
        description="single: items that a chain of steps within the radius connects. representative: items within the "
        "radius of one of them.",
    )
    payload: bool = Field(True, description="True if members come with their payloads.")


class GroupsRequest(_Kind):
    """Return a page of groups, largest first, then by id."""

    limit: int = Field(50, ge=1, le=_MOST_GROUPS, description="Groups of the page, at most.")
    after: int | None = Field(None, ge=0, lt=_HUGE, description="`next` of the page before.")
    members: int = Field(100, ge=1, description="Members of each group, at most.")


class GroupMembersRequest(_Kind):
    """Return members of a group: the representative, then those nearest to it."""

    group: int = Field(ge=0, lt=_HUGE, description="Id of the group.")
    start: int = Field(0, ge=0, lt=_HUGE, description="Members to skip.")
    limit: int = Field(100, ge=1, description="Members to return, at most.")


AnyGroups = GroupsRequest | GroupMembersRequest


class MemberOut(BaseModel):
    """An item of a group."""

    id: int | str
    distance: int = Field(description="Hamming distance to the representative.")
    payload: dict[str, Any] | None = None


class GroupOut(BaseModel):
    """A group of two or more items."""

    id: int = Field(description="Stays as long as the group does.")
    size: int = Field(description="Number of its items.")
    representative: int | str
    is_capped: bool = Field(description="True if it has more members than are given here.")
    members: list[MemberOut]


class GroupsAnswer(BaseModel):
    """A page of groups."""

    radius: int
    linkage: Linkage
    n_groups: int = Field(description="Groups of the store.")
    n_items: int = Field(description="Items that are in a group.")
    groups: list[GroupOut]
    next: int | None = Field(description="For the next page, `after` is this; null on the last page.")


class GroupMembersAnswer(BaseModel):
    """Members of a group; none behind the last one."""

    members: list[MemberOut]
