"""Groups of a service's store: requests follow small changes, a thread of its own makes what takes longer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hamtarget.errors import HamtargetError, InputError, LimitError
from hamtarget.query import Bounds, RunningBounds, Work
from hamtarget.serve.lanes.work import ServiceWork
from hamtarget.serve.messages.group_messages import AnyGroups, GroupMembersRequest, GroupsRequest
from hamtarget.serve.problems import Problem, busy
from hamtarget.store.groups.results import Groups, Linkage, Member

# A request that finds more to do leaves it to the thread, and is answered at another try.
_REQUEST_SECONDS = 1.0
# Each kind takes memory or disk of its own.
_MOST_KINDS = 8


class ShownGroups(NamedTuple):
    """A page of groups, and the payloads of all members in their order, as JSON; None: they were not asked for."""

    groups: Groups
    payloads: list[str] | None


class ShownMembers(NamedTuple):
    """Members of a group, and their payloads as JSON; None: they were not asked for."""

    members: tuple[Member, ...]
    payloads: list[str] | None


class _Kind(NamedTuple):
    radius: int
    linkage: Linkage


class Grouping:
    """Answers requests for groups. At most one thread makes groups, of radii up to the store's own."""

    def __init__(self, service: ServiceWork, threads: int) -> None:
        self._service = service
        self._store = service.store
        self._making = threading.Lock()
        self._bounds = Bounds().start()
        self._threads = threads
        self._asked: set[_Kind] = set()
        # The change up to which the thread has brought each kind.
        self._made: dict[_Kind, int] = {}

    def end(self) -> None:
        """End the thread that makes groups; what is kept stays as it was."""
        self._bounds.cancel()

    def page(self, asked: GroupsRequest, bounds: RunningBounds) -> ShownGroups:
        """Return a page of groups.

        Raises:
            Problem: groups are being made.
            LimitError: the answer is larger than allowed.
        """
        kind = self._kind(asked)
        with self._bounded(kind, bounds) as work:
            found = self._store.groups(
                kind.radius,
                linkage=kind.linkage,
                limit=asked.limit,
                after=asked.after,
                members=asked.members,
                work=work,
            )
        members = [member for group in found.groups for member in group.members]
        return ShownGroups(found, self._payloads(members, bounds) if asked.payload else None)

    def members(self, asked: GroupMembersRequest, bounds: RunningBounds) -> ShownMembers:
        """Return members of a group; see `page`."""
        kind = self._kind(asked)
        with self._bounded(kind, bounds) as work:
            found = self._store.group_members(
                asked.group,
                kind.radius,
                linkage=kind.linkage,
                start=asked.start,
                limit=asked.limit,
                work=work,
            )
        return ShownMembers(found, self._payloads(found, bounds) if asked.payload else None)

    def _kind(self, asked: AnyGroups) -> _Kind:
        """Return radius and linkage that are asked for.

        Raises:
            InputError: the radius is larger than the store's, or there are too many kinds.
        """
        most = self._store.radius
        radius = most if asked.radius is None else asked.radius
        if radius > most:
            raise InputError(
                f"radius is {radius}; this service groups within 0 to {most} bits, the store's radius: ask for less, "
                "or use `hamtarget groups` on the store itself"
            )
        kind = _Kind(radius, asked.linkage)
        if kind not in self._asked and len(self._asked) >= _MOST_KINDS:
            known = ", ".join(f"{each.radius} {each.linkage}" for each in sorted(self._asked))
            raise InputError(
                f"radius {radius} and {asked.linkage} linkage are one kind of groups too many; this service has "
                f"{_MOST_KINDS}: ask for one of {known}"
            )
        self._asked.add(kind)
        return kind

    @contextlib.contextmanager
    def _bounded(self, kind: _Kind, bounds: RunningBounds) -> Iterator[Work]:
        """Give a request bounds of its own; the thread goes on with what takes longer."""
        if self._making.locked():
            raise _not_yet()
        try:
            yield Work(Bounds(seconds=min(_REQUEST_SECONDS, max(0.0, bounds.seconds_left))))
        except LimitError:
            # What is at the last change and still takes too long would do so again.
            if bounds.seconds_left <= 0 or self._made.get(kind, -1) >= self._store.sequence:
                raise
            threading.Thread(target=self._make, args=(kind,), name="grouping", daemon=True).start()
            raise _not_yet() from None

    def _make(self, kind: _Kind) -> None:
        if self._making.acquire(blocking=False):
            try:
                with contextlib.suppress(HamtargetError):
                    sequence = self._store.sequence
                    self._store.groups(
                        kind.radius,
                        linkage=kind.linkage,
                        limit=1,
                        members=1,
                        work=Work(self._bounds, self._threads),
                    )
                    self._made[kind] = sequence
            finally:
                self._making.release()

    def _payloads(self, members: Sequence[Member], bounds: RunningBounds) -> list[str]:
        return self._service.payloads([member.id for member in members], bounds)


def _not_yet() -> Problem:
    return busy("groups are being made, which takes long the first time and after many changes; try again")
