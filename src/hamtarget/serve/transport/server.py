"""A server of one process: uvicorn's, with an own way to accept connections and an end that keeps its time.

What overrides uvicorn here, and why:

- `startup`: connections are accepted by `Listening`, which waits when file descriptors run short.
- `on_tick`: ten times a second, connections that are overdue are dropped.
- `shutdown`: uvicorn waits for running requests, then cancels their tasks and waits for the application without a
  bound. A search in a thread does not hear of it. Here searches are cancelled, clients are told, and the end comes
  within `drain_seconds`, whatever is stuck.
- `capture_signals`: uvicorn raises a signal again when it is done, and the process would die of it. Here a first
  signal lets the process end with code 0, and a second one ends it at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from hamtarget.serve.transport.connection import Connection
from hamtarget.serve.transport.crowd import Crowd
from hamtarget.serve.transport.listening import Listening
from hamtarget.serve.transport.shares import Shares

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Of the time to drain: what running requests get, and what they get after they were cancelled. The rest is the store's.
_FINISHING_SHARE = 0.75
_CANCELLED_SHARE = 0.1
_LOOK_SECONDS = 0.02

_log = logging.getLogger("hamtarget.serve")


class Server(uvicorn.Server):
    """A server of one process.

    Args:
        config: uvicorn's settings.
        crowd: all connections of this process.
        drain_seconds: seconds within which the server ends.
        cancel: ends what still runs for requests.
        ready: called when requests are taken.
        shares: connections of all processes of the service, if there are others.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        crowd: Crowd,
        drain_seconds: float,
        cancel: Callable[[], None],
        ready: Callable[[], None],
        shares: Shares | None = None,
    ) -> None:
        super().__init__(config)
        self._crowd = crowd
        self._drain_seconds = drain_seconds
        self._cancel = cancel
        self._ready = ready
        self._shares = shares
        self._doors: list[Listening] = []
        # A process of its own is ended by force when even that does not help.
        self.may_kill = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the application, and begin to take requests."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self._doors = [self._listen(listener) for listener in sockets or ()]
        self.started = True
        if not self.should_exit:
            self._ready()

    def _listen(self, listener: socket.socket) -> Listening:
        loop = asyncio.get_running_loop()

        def connect(accepted: socket.socket, peer: str) -> Connection:
            return Connection(
                self.config,
                self.server_state,
                self.lifespan.state,
                loop,
                crowd=self._crowd,
                accepted=accepted,
                peer=peer,
            )

        return Listening(
            listener,
            connect,
            self._crowd,
            # Between processes of this service there is none.
            tls=None if listener.family == socket.AF_UNIX else self.config.ssl,
            handshake_seconds=self._crowd.head_seconds,
            shares=None if listener.family == socket.AF_UNIX else self._shares,
        )

    async def on_tick(self, counter: int) -> bool:
        """Drop connections that are overdue; return True if the server is to end."""
        self._crowd.drop_late()
        if self._shares is not None:
            self._shares.tell(len(self._crowd))
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Let running requests finish, cancel what takes too long, and end the application; all within its time."""
        if self.may_kill:
            _end_after(self._drain_seconds)
        began = asyncio.get_running_loop().time()
        for door in self._doors:
            door.close()
        for listener in sockets or ():
            listener.close()
        for connection in self._connections():
            connection.shutdown()
        await self._wait_until(began + _FINISHING_SHARE * self._drain_seconds)
        if self.server_state.tasks:
            _log.warning("%d requests still run; they are cancelled", len(self.server_state.tasks))
            self._cancel()
            await self._wait_until(began + (_FINISHING_SHARE + _CANCELLED_SHARE) * self._drain_seconds)
        for connection in self._connections():
            connection.give_up()
        for task in list(self.server_state.tasks):
            task.cancel()
        await self.lifespan.shutdown()

    async def _wait_until(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        while (self.server_state.connections or self.server_state.tasks) and loop.time() < until:
            self._crowd.drop_late()
            await asyncio.sleep(_LOOK_SECONDS)

    def _connections(self) -> list[Connection]:
        return [each for each in self.server_state.connections if isinstance(each, Connection)]

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let a first signal end the server during the block, and a second one the process."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to end; end at once if it is the second time."""
        if self.should_exit:
            # The stores survive a kill; see docs/reliability.md.
            os._exit(128 + sig)
        self.should_exit = True


def _end_after(seconds: float) -> None:
    """End this process after some seconds, unless it has ended by then: a thread may never return."""

    def end() -> None:
        _log.error("a thread does not return; the process ends without it")
        os._exit(0)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
