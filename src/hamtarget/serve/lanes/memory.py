"""Memory of requests: one account of the bytes that all bodies and answers take, bounded for each and in all."""

from __future__ import annotations

from threading import Lock

from hamtarget.serve.problems import RETRY_SECONDS, Problem, too_much

HOLDING = "hamtarget_memory"
"""Name of a request's `Holding` in the state of its scope."""


class MemoryAccount:
    """Bytes that requests hold: their bodies, what these become when they are parsed, and the answers to them.

    Any thread may take and give back.

    Args:
        most: bytes of all requests together.
        most_each: bytes of one request.
    """

    def __init__(self, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._held = 0
        self._lock = Lock()

    @property
    def held(self) -> int:
        """Bytes that are held now."""
        return self._held

    def open(self) -> Holding:
        """Return the holding of a new request; close it when the answer is sent."""
        return Holding(self)

    def _change(self, holding: Holding, n_bytes: int) -> None:
        with self._lock:
            if n_bytes > 0:
                if holding.is_closed:
                    raise Problem(503, "ended", "the request has ended; nobody waits for its answer")
                if holding.held + n_bytes > self._most_each:
                    raise too_much("bytes", self._most_each, "send or ask for less at a time")
                if self._held + n_bytes > self._most:
                    raise Problem(
                        429,
                        "busy_bytes",
                        f"the requests under way take {self._held:,} of {self._most:,} bytes of memory; try again in a "
                        "moment",
                        headers={"Retry-After": str(RETRY_SECONDS)},
                    )
            holding.held += n_bytes
            self._held += n_bytes


class Holding:
    """Bytes that one request holds.

    Attributes:
        held: number of these bytes.
        is_closed: True at the end of the request: a thread that still works on it can take no more.
    """

    __slots__ = ("_account", "held", "is_closed")

    def __init__(self, account: MemoryAccount) -> None:
        self._account = account
        self.held = 0
        self.is_closed = False

    def take(self, n_bytes: int) -> None:
        """Take bytes from the account, before the memory is used.

        Raises:
            Problem: the request (413) or all requests together (429) would hold too much, or it has ended (503);
                nothing is taken then.
        """
        self._account._change(self, n_bytes)

    def give(self, n_bytes: int) -> None:
        """Give back bytes that are no longer held."""
        self._account._change(self, -min(n_bytes, self.held))

    def close(self) -> None:
        """Give back all bytes; closing twice is fine."""
        self.is_closed = True
        if self.held:
            self._account._change(self, -self.held)
