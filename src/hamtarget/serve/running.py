"""Run a service in this process: its sockets, its event loop, and what it asks of the system.

That is memory which the C library gives back, and descriptors for as many connections as are wanted.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import platform
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import uvicorn

from hamtarget.serve.app import Application, create_app
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.serve.transport.crowd import Crowd
from hamtarget.serve.transport.server import Server
from hamtarget.serve.transport.shares import Shares
from hamtarget.serve.transport.sockets import address_of, listening
from hamtarget.store import Store

if sys.platform != "win32":
    import resource

_IDLE_SECONDS = 30
_SWITCH_SECONDS = 0.0001
# Names and numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_LARGE_BYTES = 1 << 20
_ARENAS = 2
# Descriptors that are kept free for the store: its files, a reader of SQLite or PostgreSQL in each thread, pictures,
# uploads, logs.
_RESERVED = 128
# A service that cannot have so many is of no use; below, it takes from the reserve.
_FEWEST = 8

_log = logging.getLogger("hamtarget.serve")


def run(store: Store, settings: ServiceSettings, *, announce: Callable[[str], None] | None = None) -> None:
    """Serve a store until SIGTERM or Ctrl-C; then finish running requests and close the store.

    The process ends within `settings.drain_seconds` of the signal, whatever is stuck, and at once at a second signal.

    Args:
        store: store to serve; opened for reading only, unless items may be put.
        settings: settings of the service.
        announce: called with the service's address when it takes requests.

    Raises:
        OSError: the address cannot be listened on.
    """
    with store, listening(settings) as listener:
        address = address_of(listener, settings)
        run_process(store, settings, listener, ready=lambda: announce(address) if announce is not None else None)


def run_process(
    store: Store,
    settings: ServiceSettings,
    listener: socket.socket,
    *,
    ready: Callable[[], None],
    inside: socket.socket | None = None,
    writer: Path | None = None,
    shares: Shares | None = None,
) -> None:
    """Serve a store on an open socket until a signal; this process does nothing else.

    Args:
        store: store to serve.
        settings: settings of the service.
        listener: socket to listen on.
        ready: called when requests are taken.
        inside: socket to listen on for changes that other processes of this service pass on.
        writer: socket of the process to pass changes on to; None: this one makes them, if the store allows it.
        shares: connections of all processes of the service, if there are others.
    """
    give_memory_back()
    # A thread that comes back from the index waits at most so long for the thread of the event loop.
    sys.setswitchinterval(_SWITCH_SECONDS)
    # All objects of now stay: the garbage collector need not look through them again and again.
    gc.freeze()
    try:
        server, app = _make_server(store, settings, ready=ready, raise_limit=True, writer=writer, shares=shares)
        server.may_kill = True
        _run_loop(server, [listener] if inside is None else [listener, inside])
    finally:
        gc.unfreeze()
    if app.is_stuck:
        _log.error("some work does not end; the process ends without it")
        store.close()
        sys.stdout.flush()
        sys.stderr.flush()
        # An ordinary end would wait for the threads.
        os._exit(0)


@contextmanager
def serving(store: Store, settings: ServiceSettings) -> Iterator[str]:
    """Serve a store in a thread of this process during a `with` block, and yield the service's address.

    At the end of the block, running requests are finished and the store is closed.
    """
    started = threading.Event()
    with store, listening(settings) as listener:
        server, _ = _make_server(store, settings, ready=started.set, raise_limit=False)
        thread = threading.Thread(target=_run_loop, args=(server, [listener]), name="hamtarget-serve")
        thread.start()
        try:
            while not started.wait(0.05):
                if not thread.is_alive():
                    raise OSError("the service ended while it was starting; see its log")
            yield address_of(listener, settings)
        finally:
            server.should_exit = True
            thread.join()


def _make_server(
    store: Store,
    settings: ServiceSettings,
    *,
    ready: Callable[[], None],
    raise_limit: bool,
    writer: Path | None = None,
    shares: Shares | None = None,
) -> tuple[Server, Application]:
    most = fit_connections(settings.max_connections, raise_limit=raise_limit)
    settings = replace(settings, max_connections=most)
    app = create_app(store, settings, writer=writer)
    config = uvicorn.Config(
        app.entry,
        http="httptools",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        # The client is who is connected, whatever a header says.
        proxy_headers=False,
        h11_max_incomplete_event_size=settings.max_header_bytes,
        timeout_keep_alive=_IDLE_SECONDS,
        ssl_certfile=settings.tls_cert,
        ssl_keyfile=settings.tls_key,
    )
    server = Server(
        config,
        crowd=Crowd(most, head_seconds=settings.read_seconds, meter=app.service.meters.connections),
        drain_seconds=settings.drain_seconds,
        cancel=app.service.cancel,
        ready=ready,
        shares=shares,
    )
    return server, app


def _run_loop(server: Server, listeners: list[socket.socket]) -> None:
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(server.serve(listeners))


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return an event loop of uvloop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def give_memory_back() -> None:
    """Let glibc return large blocks to the system as soon as they are freed; do nothing with another C library.

    By default it raises its idea of a large block to whatever was freed, up to 32 MB, and keeps a pool for each of many
    threads. The tables of a merged index then stay behind in the pool of the thread that merged.
    """
    if platform.libc_ver()[0] != "glibc":
        return
    mallopt = ctypes.CDLL(None).mallopt
    for option, value in (
        (_M_MMAP_THRESHOLD, _LARGE_BYTES),
        (_M_TRIM_THRESHOLD, _LARGE_BYTES),
        (_M_ARENA_MAX, _ARENAS),
    ):
        if not mallopt(option, value):
            _log.warning("the allocator refuses option %d = %d", option, value)


def fit_connections(asked: int, *, raise_limit: bool) -> int:
    """Return how many connections this process can hold, `asked` at most; warn if they are fewer.

    Args:
        asked: connections wanted.
        raise_limit: True to raise the soft limit of file descriptors as far as it takes, up to the hard one.
    """
    if sys.platform == "win32":
        return asked
    used = _open_descriptors() + _RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return asked
    wanted = used + asked
    if raise_limit and soft < wanted:
        highest = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            soft = highest
        except (OSError, ValueError):
            _log.warning("the limit of open files cannot be raised from %d to %d", soft, highest)
    fitting = max(_FEWEST, min(asked, soft - used))
    if fitting < asked:
        _log.warning(
            "%d connections are asked for, and the limit of %d open files allows %d; raise it (ulimit -n)",
            asked,
            soft,
            fitting,
        )
    return fitting


def _open_descriptors() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return _RESERVED
