"""Accepting connections, as many as there is room for."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from hamtarget.serve.transport.connection import Connection, peer_of
from hamtarget.serve.transport.crowd import Crowd, ThrottledLog
from hamtarget.serve.transport.shares import Shares

_AT_A_TIME = 16
_YIELD_SECONDS = 0.002
_PAUSE_SECONDS = 0.1
_SHORT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger("hamtarget.serve")


class Listening:
    """Accepts the connections of a listening socket.

    asyncio's own loop tries again at once when descriptors run short, and logs a traceback each time. This one makes
    room, and else waits.

    Args:
        listener: the socket.
        connect: makes the protocol of a connection from its socket and its client's address.
        crowd: all connections of this process.
        tls: context of TLS, if the socket speaks it.
        handshake_seconds: seconds that the handshake of TLS may take.
        shares: connections of all processes that accept from this socket, if there are others.
    """

    def __init__(
        self,
        listener: socket.socket,
        connect: Callable[[socket.socket, str], Connection],
        crowd: Crowd,
        *,
        tls: ssl.SSLContext | None,
        handshake_seconds: float,
        shares: Shares | None = None,
    ) -> None:
        self._listener = listener
        self._connect = connect
        self._crowd = crowd
        self._tls = tls
        self._handshake_seconds = handshake_seconds
        self._shares = shares
        self._has_yielded = False
        self._loop = asyncio.get_running_loop()
        self._resuming: asyncio.TimerHandle | None = None
        self._warnings = ThrottledLog(_log)
        self._opening: dict[asyncio.Task[Any], Connection] = {}
        listener.setblocking(False)
        self._loop.add_reader(listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more."""
        if self._resuming is not None:
            self._resuming.cancel()
            self._resuming = None
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
        for connection in list(self._opening.values()):
            connection.drop()

    def _accept(self) -> None:
        if self._shares is not None:
            self._shares.tell(len(self._crowd))
            if self._shares.is_ahead and not self._has_yielded:
                # Another process may have it; if none wants it, this one takes it.
                self._has_yielded = True
                self._pause(_YIELD_SECONDS)
                return
            self._has_yielded = False
        for _ in range(_AT_A_TIME if self._shares is None else 1):
            if self._crowd.is_full:
                self._warnings.warn(f"all {self._crowd.most:,} connections are busy; new ones wait")
                self._pause()
                return
            try:
                accepted, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _SHORT:
                    raise
                made_room = self._crowd.make_room()
                done = "closed one that asks nothing" if made_room else "new connections wait"
                self._warnings.warn(f"cannot accept a connection: {error.strerror}; {done}")
                self._pause()
                return
            accepted.setblocking(False)
            self._open(accepted, peer_of(address))

    def _open(self, accepted: socket.socket, peer: str) -> None:
        if peer:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self._connect(accepted, peer)
        timeout = None if self._tls is None else self._handshake_seconds
        opening = self._loop.create_task(
            self._loop.connect_accepted_socket(
                lambda: connection, sock=accepted, ssl=self._tls, ssl_handshake_timeout=timeout
            )
        )

        def opened(task: asyncio.Task[Any]) -> None:
            del self._opening[task]
            if task.cancelled() or task.exception() is not None:
                # The client has gone, speaks no TLS, or was dropped to make room.
                self._crowd.leave(connection)
                accepted.close()

        self._opening[opening] = connection
        opening.add_done_callback(opened)
        self._crowd.enter(connection)

    def _pause(self, seconds: float = _PAUSE_SECONDS) -> None:
        """Accept nothing for a moment."""
        self._loop.remove_reader(self._listener.fileno())
        self._resuming = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._resuming = None
        self._loop.add_reader(self._listener.fileno(), self._accept)
