"""Connections that threads take in turns: the one that was given back last is taken first.

So who searches one code at a time always meets the same process of the server, whose caches are warm.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from hamtarget.errors import ClosedError

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

_MOST_CONNECTIONS = 8
_PATIENCE_SECONDS = 1.0
# libpq's PQTRANS_IDLE; a connection that is broken is not idle either.
_IDLE = 0


class Pool:
    """A few open connections, and places for so many."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        """Make one connection by `connect`, as all others will be."""
        self._connect = connect
        self._is_closed = False
        self._idle: list[Connection] = [connect()]
        # What a semaphore would do, in a tenth of the time.
        self._places: SimpleQueue[None] = SimpleQueue()
        for _ in range(_MOST_CONNECTIONS):
            self._places.put(None)

    def lend(self, *, anew: bool = False) -> Loan:
        """Lend a connection that nobody else uses meanwhile; outside of any transaction.

        Args:
            anew: if True, a new one is made: one has turned out to be broken, and the others are as old.
        """
        return Loan(self, anew)

    def close(self) -> None:
        """Close the connections; those in use are closed when they come back."""
        self._is_closed = True
        self._close_idle()

    def take_place(self) -> bool:
        """Take a place, and return True if there was one; if not, all connections are at long work."""
        try:
            self._places.get(timeout=_PATIENCE_SECONDS)
        except Empty:
            return False
        return True

    def give_place_back(self) -> None:
        """Give a place back."""
        self._places.put(None)

    def take(self, *, anew: bool) -> Connection:
        """Take a connection; the caller has a place.

        Raises:
            ClosedError: the pool is closed.
        """
        if self._is_closed:
            raise ClosedError("the connections to the store were closed; open the store again")
        if anew:
            self._close_idle()
            return self._connect()
        try:
            return self._idle.pop()
        except IndexError:
            return self._connect()

    def give_back(self, connection: Connection) -> None:
        """Give a connection back; it is closed if it is not in order."""
        if connection.pgconn.transaction_status != _IDLE or len(self._idle) >= _MOST_CONNECTIONS:
            connection.close()
            return
        self._idle.append(connection)
        if self._is_closed:
            self._close_idle()

    def _close_idle(self) -> None:
        with suppress(IndexError):
            while True:
                self._idle.pop().close()


class Loan:
    """A connection of a pool, in a `with` block; a generator would take as long as all the rest of it."""

    __slots__ = ("_anew", "_connection", "_has_place", "_pool")

    def __init__(self, pool: Pool, anew: bool) -> None:
        """Use `Pool.lend`."""
        self._pool = pool
        self._anew = anew

    def __enter__(self) -> Connection:
        self._has_place = self._pool.take_place()
        try:
            self._connection = self._pool.take(anew=self._anew)
        except BaseException:
            self._end()
            raise
        return self._connection

    def __exit__(self, *_: object) -> None:
        try:
            self._pool.give_back(self._connection)
        finally:
            self._end()

    def _end(self) -> None:
        if self._has_place:
            self._pool.give_place_back()
