"""A connection whose statements end with the limits of a request: on the server, too."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import suppress
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from hamtarget._core import _native
from hamtarget.errors import LimitError

if TYPE_CHECKING:
    import psycopg

    class LimitedConnection(psycopg.Connection[tuple[Any, ...]]):
        """See `connection_class`."""

        limits: _native.Limits | None


T = TypeVar("T")

# Seconds between two looks at the limits while the server works.
LOOK_SECONDS = 0.02
# Seconds for the server to end a statement; then the connection is closed, and the server left to itself.
_PATIENCE_SECONDS = 2.0


@cache
def connection_class() -> type[LimitedConnection]:
    """Return a class of connections that ask the server to end a statement once their `limits` are reached.

    psycopg waits for the server in a method of the connection, and comes by every few milliseconds. There the limits
    are looked at: no thread is needed, and a statement that is done before takes no longer. A connection on which a
    statement was ended is closed, because the request to end it may reach the server late, and meet the next one.
    """
    import psycopg

    class Limited(psycopg.Connection[tuple[Any, ...]]):
        limits: _native.Limits | None = None

        def wait(self, gen: Generator[Any, Any, T], *how: Any, **named: Any) -> T:
            if self.limits is None:
                return super().wait(gen, *how, **named)
            watch = Watch(self, self.limits)
            watch.begin()
            try:
                result: T = super().wait(_looking(gen, watch.look), LOOK_SECONDS)
            except psycopg.Error:
                watch.end()
                raise
            watch.end()
            return result

    return Limited  # type: ignore[return-value]


class Watch:
    """Looks at the limits while the server works on a statement, and has it ended."""

    def __init__(self, connection: psycopg.Connection[tuple[Any, ...]], limits: _native.Limits) -> None:
        """Prepare to look at the limits of what a connection does."""
        self._connection = connection
        self._limits = limits
        self._ended = 0.0

    def begin(self) -> None:
        """Check that there is time for a statement.

        Raises:
            LimitError: there is none.
        """
        self._limits.check()

    def look(self) -> None:
        """Ask the server to end its statement if the limits are reached.

        Raises:
            LimitError: it was asked to, and has not done so for long.
        """
        if self._ended:
            if monotonic() > self._ended + _PATIENCE_SECONDS:
                self.end()
            return
        try:
            self._limits.check()
        except LimitError:
            self._ended = monotonic()
            with suppress(Exception):
                self._connection.cancel_safe(timeout=_PATIENCE_SECONDS)

    def end(self) -> None:
        """Close the connection if a statement of it was ended.

        Raises:
            LimitError: it was.
        """
        if self._ended:
            self._connection.close()
            self._limits.check()


def _looking(gen: Generator[Any, Any, T], look: Callable[[], None]) -> Generator[Any, Any, T]:
    """Do as `gen` does, and look whenever nothing has come from the server for a while."""
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if not ready:
                look()
            wanted = gen.send(ready)
    except StopIteration as end:
        result: T = end.value
        return result
