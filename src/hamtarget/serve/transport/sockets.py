"""Sockets that a service listens on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hamtarget.serve.service_settings import ServiceSettings

_BACKLOG = 1024


@contextmanager
def listening(settings: ServiceSettings) -> Iterator[socket.socket]:
    """Listen on the address of the settings during the block.

    Raises:
        OSError: the address cannot be listened on.
    """
    family, _, _, _, address = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
    with socket.create_server(address[:2], family=family, backlog=_BACKLOG) as listener:
        yield listener


@contextmanager
def listening_inside(path: Path) -> Iterator[socket.socket]:
    """Listen on a socket in the file system during the block; whoever may enter its folder may connect."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        yield listener


def address_of(listener: socket.socket, settings: ServiceSettings) -> str:
    """Return the address of a service that listens on this socket."""
    host, port = listener.getsockname()[:2]
    scheme = "http" if settings.tls_cert is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/"
