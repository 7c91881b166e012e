"""Running a service in this process."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from hamtarget.serve.app import create_app
from hamtarget.serve.meters import Meters
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.store import Store

_BACKLOG = 256
_IDLE_SECONDS = 30
_SWITCH_SECONDS = 0.0005
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def run(store: Store, settings: ServiceSettings, *, announce: Callable[[str], None] | None = None) -> None:
    """Serve a store until SIGTERM or Ctrl-C; then finish running requests and close the store.

    Args:
        store: store to serve; opened for reading only, unless items may be put.
        settings: settings of the service.
        announce: called with the service's address when it takes requests.

    Raises:
        OSError: the address cannot be listened on.
    """
    # A thread that comes back from the index waits at most so long for the thread of the event loop.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # All objects of now stay: the garbage collector need not look through them again and again.
    gc.freeze()
    try:
        with store, _listening(settings) as listener:
            asyncio.run(_server(store, settings, listener, announce).serve([listener]))
    finally:
        gc.unfreeze()


@contextmanager
def serving(store: Store, settings: ServiceSettings) -> Iterator[str]:
    """Serve a store in a thread of this process during a `with` block, and yield the service's address.

    At the end of the block, running requests are finished and the store is closed.
    """
    started = threading.Event()
    with store, _listening(settings) as listener:
        server = _server(store, settings, listener, lambda _: started.set())
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), name="hamtarget-serve")
        thread.start()
        try:
            while not started.wait(0.05):
                if not thread.is_alive():
                    raise OSError("the service ended while it was starting; see its log")
            yield _address(listener)
        finally:
            server.should_exit = True
            thread.join()


def _server(
    store: Store, settings: ServiceSettings, listener: socket.socket, announce: Callable[[str], None] | None
) -> _Server:
    app = create_app(store, settings)
    config = uvicorn.Config(
        app,
        http=_protocol(settings, app.state.service.meters),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # The client is who is connected, whatever a header says.
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        h11_max_incomplete_event_size=settings.max_header_bytes,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=int(max(1, settings.drain_seconds)),
    )
    return _Server(config, _address(listener), announce)


def _address(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class _Server(uvicorn.Server):
    """A server that announces its address, and returns after a signal instead of dying of it."""

    def __init__(self, config: uvicorn.Config, address: str, announce: Callable[[str], None] | None) -> None:
        super().__init__(config)
        self._address = address
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to take requests, and announce the address."""
        await super().startup(sockets)
        if self._announce is not None and not self.should_exit:
            self._announce(self._address)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let signals make the server drain and return during the block; uvicorn would raise them again afterwards."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@contextmanager
def _listening(settings: ServiceSettings) -> Iterator[socket.socket]:
    family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
    with socket.create_server(address[:2], family=family, backlog=_BACKLOG) as listener:
        yield listener


def _protocol(settings: ServiceSettings, meters: Meters) -> type[H11Protocol]:
    """Return uvicorn's protocol with a bound on the time that the head of a request may take."""

    class Protocol(H11Protocol):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            meters.connections.inc()
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unwatch()
            meters.connections.dec()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._unwatch()
            elif self.conn.trailing_data[0]:
                self._watch()

        def _watch(self) -> None:
            if self._timer is None:
                self._timer = self.loop.call_later(settings.read_seconds, self._give_up)

        def _unwatch(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            if self.conn.their_state is h11.IDLE:
                self.transport.close()

    return Protocol
