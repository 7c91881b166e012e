"""Fetching pretrained weights: from a server, or without it from where the library keeps what it fetched before."""

from __future__ import annotations

import os
import socket
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar
from urllib.parse import urlsplit

from hamtarget.errors import FileError

_SERVERS = {"timm": "https://huggingface.co", "torchvision": "https://download.pytorch.org"}
# Seconds in which a server that can be reached answers.
_PATIENCE = 1.5

Built = TypeVar("Built")


def fetched(build: Callable[[], Built], *, library: str, name: str, instead: str) -> Built:
    """Return what `build` builds with weights that its library fetches.

    Args:
        build: builds a network; it may fetch its weights.
        library: "timm" or "torchvision".
        name: name of the network in errors.
        instead: name of a network that needs no server, for errors.

    Raises:
        FileError: there are no such weights; if the server cannot be reached, within about two seconds.
    """
    server = _server(library)
    answers = _uses_proxy() or _answers(server)
    try:
        if answers:
            return build()
        with _offline():
            return build()
    # The libraries raise many kinds, of their own and of those that they fetch with.
    except Exception as error:
        found = f"{server} {'gave none' if answers else 'cannot be reached'}"
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise FileError(
            f"no pretrained weights of {name}: {found} ({reason}); use {instead!r}, which comes with the package, or "
            "pass weights=FILE.safetensors, fetched where there is a network"
        ) from error


def _server(library: str) -> str:
    return (os.environ.get("HF_ENDPOINT") if library == "timm" else None) or _SERVERS[library]


def _uses_proxy() -> bool:
    return bool(urllib.request.getproxies().get("https"))


def _answers(server: str) -> bool:
    """Return True if a connection to the server can be opened soon."""
    parts = urlsplit(server)
    opened: list[bool] = []

    def connect() -> None:
        with suppress(OSError):
            _connect(parts.hostname or server, parts.port or (80 if parts.scheme == "http" else 443))
            opened.append(True)

    # In a thread of its own: looking up a name takes no timeout, and may hang.
    thread = threading.Thread(target=connect, daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    return bool(opened)


def _connect(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=_PATIENCE).close()


@contextmanager
def _offline() -> Iterator[None]:
    """Keep libraries from waiting for a server: they look only where they keep what they fetched before."""
    before, patience = os.environ.get("HF_HUB_OFFLINE"), socket.getdefaulttimeout()
    os.environ["HF_HUB_OFFLINE"] = "1"
    # Once imported, the library reads its variable no more.
    constants = sys.modules.get("huggingface_hub.constants")
    known = getattr(constants, "HF_HUB_OFFLINE", None)
    if constants is not None:
        constants.HF_HUB_OFFLINE = True  # type: ignore[attr-defined]
    socket.setdefaulttimeout(0.5)
    try:
        yield
    finally:
        socket.setdefaulttimeout(patience)
        if constants is not None:
            constants.HF_HUB_OFFLINE = known  # type: ignore[attr-defined]
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before
