"""One connection: uvicorn's protocol for httptools, with the bounds that it leaves out.

What overrides uvicorn here, and why:

- `data_received`, `on_body`, `on_message_complete`: httptools takes a head, a trailer or an extension of a chunk of any
  length. The bytes that are no body are counted, and a connection that sends too many is refused with 431.
- `connection_lost`, `on_message_begin`, `on_headers_complete`, `on_response_complete`: tell the crowd what the
  connection does, so that a head has a time limit and the connections that can best be missed are closed first.
- `pause_writing`, `resume_writing`: a client that does not read its answers would keep its connection for ever.
- `_start_asgi_task`, `connection_lost`: uvicorn tells only the last of several requests that its client has gone.
- `shutdown` and `give_up`: a connection that has sent nothing of an answer when the service ends says 503.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import struct
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from hamtarget.serve.problems import RETRY_SECONDS
from hamtarget.serve.transport.crowd import CONNECTION, Crowd

# Chunks of one byte are sent as six; whoever sends more beside the body sends it for its own sake.
_FRAMING_BYTES = 16
_AT_ONCE = struct.pack("ii", 1, 0)
_ENDING = b'{"error":{"kind":"busy","message":"the service is ending"}}'
_TOO_LONG = b'{"error":{"kind":"headers","message":"the head of the request is too long"}}'

_SILENT = logging.getLogger("hamtarget.serve.given_up")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


class Connection(HttpToolsProtocol):
    """A connection of a client.

    Args:
        config: uvicorn's settings.
        server_state: what uvicorn's connections share.
        app_state: state of the application.
        loop: the event loop.
        crowd: all connections of this process.
        accepted: socket of the connection.
        peer: address of the client; empty for a process of this service.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        loop: asyncio.AbstractEventLoop,
        *,
        crowd: Crowd,
        accepted: socket.socket,
        peer: str,
    ) -> None:
        super().__init__(config, server_state, app_state, loop)
        self.peer = peer
        self._accepted = accepted
        self._crowd = crowd
        self._max_head_bytes = config.h11_max_incomplete_event_size or 2**16
        self._beside_body = 0
        self._in_head = False
        self._running: RequestResponseCycle | None = None
        self.app_state = {**app_state, CONNECTION: self}

    @property
    def is_inside(self) -> bool:
        """True if a process of this service is connected."""
        return not self.peer

    def let_in(self) -> None:
        """Note that a request of this connection was let in."""
        self._crowd.let_in(self)

    def drop(self) -> None:
        """End the connection at once."""
        with contextlib.suppress(OSError):
            if self in self.connections:
                # The system, too, forgets what it has to send.
                self._accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                self.transport.abort()
            else:
                # The handshake of TLS, if there is one, fails.
                self._accepted.shutdown(socket.SHUT_RDWR)

    @property
    def unsent_bytes(self) -> int:
        """Bytes of answers that the client has not taken yet."""
        return self.transport.get_write_buffer_size() if self in self.connections else 0

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that the connection has ended."""
        self._crowd.leave(self)
        # It holds this connection.
        self.app_state = {}
        for cycle in (self._running, *(waiting for waiting, _ in self.pipeline)):
            if cycle is not None:
                cycle.disconnected = True
                cycle.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless there is too much of it that is no body."""
        if self.transport.is_closing():
            return
        self._beside_body += len(data)
        super().data_received(data)
        if self._beside_body > self._max_head_bytes:
            self._refuse(431, _TOO_LONG)
        elif self._in_head:
            self._crowd.begin_head(self)
        elif self.transport.is_closing():
            self._crowd.end(self)

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Begin to answer a request, whose head is whole."""
        self._in_head = False
        self._crowd.end_head(self)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of a body."""
        self._beside_body = max(0, self._beside_body - _FRAMING_BYTES * len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request, as far as it is received."""
        self._beside_body = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Wait for the next request, or end."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._crowd.end(self)
        elif not self._in_head and self.cycle.response_complete:
            self._crowd.rest(self)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def pause_writing(self) -> None:
        """Note that the client reads more slowly than it is answered."""
        super().pause_writing()
        self._crowd.stall(self)

    def resume_writing(self) -> None:
        """Note that the client has read most of its answer."""
        super().resume_writing()
        self._crowd.flow(self)

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, which has been idle for long."""
        super().timeout_keep_alive_handler()
        self._crowd.end(self)

    def shutdown(self) -> None:
        """Close the connection, or let it finish its request."""
        super().shutdown()
        if self.transport.is_closing():
            self._crowd.end(self)

    def give_up(self) -> None:
        """End the connection; if nothing of an answer was sent, say that the service is ending."""
        if self.cycle is not None and not self.cycle.response_started:
            # Whatever the request still says comes too late: its answer is this one, its failure is known.
            self.cycle.disconnected = True
            self.cycle.logger = _SILENT
            self._refuse(503, _ENDING)
        else:
            self.drop()

    def _refuse(self, status: int, body: bytes) -> None:
        if not self.transport.is_closing():
            head = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n" % len(body)
            if status == 503:
                head += b"retry-after: %d\r\n" % RETRY_SECONDS
            if self.cycle is None or not self.cycle.response_started or self.cycle.response_complete:
                self.transport.write(STATUS_LINE[status] + head + b"\r\n" + body)
            self.transport.close()
        self._crowd.end(self)


def peer_of(address: Any) -> str:
    """Return the text by which clients are told apart: their address, of IPv6 the network that one customer gets."""
    if not isinstance(address, tuple):
        return ""
    host = str(address[0]).partition("%")[0]
    if ":" not in host:
        return host
    mapped = ipaddress.IPv6Address(host).ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.IPv6Network((host, 64), strict=False))
