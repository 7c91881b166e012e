"""The connections of a process: whose request was let in, who waits, and who has to go first."""

from __future__ import annotations

import logging
import time
from typing import NamedTuple, Protocol

from prometheus_client import Gauge

CONNECTION = "hamtarget.connection"
"""Key of a request's connection in its state; the guard calls its `let_in`."""

# Of all connections, at most this share may be strangers; of those, at most this share from one address.
_STRANGERS_SHARE = 0.5
_PEER_SHARE = 0.25
_FEWEST = 4

_log = logging.getLogger("hamtarget.serve")
# What a client must read of its answers within the time of a head.
_READ_BYTES = 64 * 2**10


class Member(Protocol):
    """A connection, as the crowd sees it."""

    @property
    def peer(self) -> str:
        """Address of the client; empty for a process of this service."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""

    def drop(self) -> None:
        """End the connection at once."""


class Crowd:
    """All connections of a process.

    A connection begins as a *stranger*, and stays one until a request of it was let in: its whole head has come, and
    its token, if one is needed, is right. When there are too many strangers, the oldest one is dropped: a client that
    has something to ask sends it at once, and is no stranger any more. A connection that waits for its next request is
    *idle*. When there is no room left, strangers are dropped first and then idle ones, the oldest first.

    A connection whose client does not read its answers is dropped, too: it must take 64 kB in the time of a head.

    Args:
        most: connections, at most.
        head_seconds: seconds within which the head of a request must be whole.
        meter: number of connections, for Prometheus.
    """

    def __init__(self, most: int, *, head_seconds: float, meter: Gauge) -> None:
        self.most = most
        self.most_strangers = max(_FEWEST, int(most * _STRANGERS_SHARE))
        self.most_of_peer = max(_FEWEST, int(self.most_strangers * _PEER_SHARE))
        self.head_seconds = head_seconds
        self._meter = meter
        self._members: set[Member] = set()
        # Dictionaries keep their order: the first is the oldest.
        self._strangers: dict[Member, None] = {}
        self._of_peer: dict[str, dict[Member, None]] = {}
        self._idle: dict[Member, None] = {}
        # Those whose head is not whole, and when it must be.
        self._heads: dict[Member, float] = {}
        # Those that are ending, and those whose client reads slowly: until when they must have sent how much.
        self._ending: dict[Member, _Sending] = {}
        self._stalled: dict[Member, _Sending] = {}
        self._warnings = ThrottledLog(_log)

    def __len__(self) -> int:
        return len(self._members)

    @property
    def is_full(self) -> bool:
        """True if there is no room, and no connection that can be dropped."""
        return len(self._members) >= self.most and not self._strangers and not self._idle

    def enter(self, member: Member) -> None:
        """Take in a new connection, and drop another one if there is no room."""
        if len(self._members) - len(self._ending) >= self.most:
            self.make_room()
        self._members.add(member)
        self._meter.inc()
        self._heads[member] = time.monotonic() + self.head_seconds
        if not member.peer:
            # A process of this service: it has been let in elsewhere.
            return
        self._strangers[member] = None
        same = self._of_peer.setdefault(member.peer, {})
        same[member] = None
        if len(same) > self.most_of_peer:
            self._drop(next(iter(same)), f"{self.most_of_peer} connections of one address have asked nothing")
        elif len(self._strangers) > self.most_strangers:
            self._drop(next(iter(self._strangers)), f"{self.most_strangers} connections have asked nothing")

    def make_room(self) -> bool:
        """Drop the connection that can best be missed; return False if there is none."""
        for those in (self._strangers, self._idle):
            if those:
                self._drop(next(iter(those)), f"there are {len(self._members):,} connections")
                return True
        return False

    def leave(self, member: Member) -> None:
        """Forget a connection that has ended."""
        self._forget(member)
        self._ending.pop(member, None)
        self._stalled.pop(member, None)
        if member in self._members:
            self._members.remove(member)
            self._meter.dec()

    def end(self, member: Member) -> None:
        """Remember that a connection is ending: it may still send what it has, for a while."""
        self._forget(member)
        if member in self._members:
            self._stalled.pop(member, None)
            self._ending.setdefault(member, self._sending(member))

    def begin_head(self, member: Member) -> None:
        """Remember that a part of a head has come."""
        self._idle.pop(member, None)
        if member not in self._heads:
            self._heads[member] = time.monotonic() + self.head_seconds

    def end_head(self, member: Member) -> None:
        """Remember that a whole head has come: the connection is busy."""
        self._idle.pop(member, None)
        self._heads.pop(member, None)

    def let_in(self, member: Member) -> None:
        """Remember that a request was let in: the connection is no stranger any more."""
        if member in self._strangers:
            self._forget_stranger(member)

    def rest(self, member: Member) -> None:
        """Remember that a connection waits for its next request."""
        if member not in self._strangers and member not in self._ending:
            self._idle[member] = None

    def stall(self, member: Member) -> None:
        """Remember that a client reads more slowly than it is answered."""
        if member in self._members and member not in self._ending:
            self._stalled[member] = self._sending(member)

    def flow(self, member: Member) -> None:
        """Remember that a client has read most of its answers."""
        self._stalled.pop(member, None)

    def drop_late(self) -> None:
        """Drop connections whose head is overdue, and those whose client does not read."""
        now = time.monotonic()
        while self._heads:
            member, until = next(iter(self._heads.items()))
            if until > now:
                break
            del self._heads[member]
            member.drop()
        for those in (self._ending, self._stalled):
            while those:
                member, sending = next(iter(those.items()))
                if sending.until > now:
                    break
                del those[member]
                if member.unsent_bytes > sending.most_unsent:
                    member.drop()
                else:
                    those[member] = self._sending(member)

    def _sending(self, member: Member) -> _Sending:
        return _Sending(time.monotonic() + self.head_seconds, member.unsent_bytes - _READ_BYTES)

    def _drop(self, member: Member, reason: str) -> None:
        self.end(member)
        member.drop()
        self._warnings.warn(f"{reason}; the oldest is closed, from {member.peer}")

    def _forget(self, member: Member) -> None:
        self._idle.pop(member, None)
        self._heads.pop(member, None)
        if member in self._strangers:
            self._forget_stranger(member)

    def _forget_stranger(self, member: Member) -> None:
        del self._strangers[member]
        same = self._of_peer[member.peer]
        del same[member]
        if not same:
            del self._of_peer[member.peer]


class _Sending(NamedTuple):
    """Until when a connection must have sent how much: what is left to send by then, at most."""

    until: float
    most_unsent: int


class ThrottledLog:
    """Writes at most one warning every few seconds, and says how many it left out.

    Args:
        log: where warnings go.
        seconds: seconds between two of them.
    """

    def __init__(self, log: logging.Logger, *, seconds: float = 5.0) -> None:
        self._log = log
        self._seconds = seconds
        self._next = 0.0
        self._left_out = 0

    def warn(self, message: str) -> None:
        """Write a warning, or count it as left out."""
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        more = f" ({self._left_out:,} warnings before this one were left out)" if self._left_out else ""
        self._next = now + self._seconds
        self._left_out = 0
        self._log.warning("%s%s", message, more)
