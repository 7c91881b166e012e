"""One of several processes that serve a store."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from hamtarget.errors import HamtargetError
from hamtarget.serve.service_settings import ServiceSettings

READY = "ready"


@dataclass(frozen=True, slots=True)
class Post:
    """The duties of one process.

    Attributes:
        place: folder of the store, or its address.
        settings: settings of this process: its share of what all may hold.
        writes: True if the process opens the store for writing.
        number: which of the processes it is.
        shares: file with the numbers of connections of all processes.
        writer: socket of the process that writes, to which changes are passed on; None: they are not passed on.
    """

    place: str = field(repr=False)
    settings: ServiceSettings
    writes: bool
    number: int
    shares: Path
    writer: Path | None


def work(post: Post, listener: socket.socket, inside: socket.socket | None, parent: Connection) -> None:
    """Serve a store in this process until SIGTERM, or until the parent has gone.

    Args:
        post: what to do.
        listener: socket that all processes listen on.
        inside: socket on which the other processes pass changes on, for the one that writes.
        parent: pipe to the parent: tells it that the process is ready, or why it is not.
    """
    # Ctrl-C and the end of a terminal reach every process of it; the parent passes them on as SIGTERM.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    from hamtarget.serve.running import run_process
    from hamtarget.serve.transport.shares import Shares
    from hamtarget.store import Store

    def ready() -> None:
        # The parent sends nothing: what comes is its end.
        asyncio.get_running_loop().add_reader(parent.fileno(), os.kill, os.getpid(), signal.SIGTERM)
        parent.send(READY)

    try:
        with Store.open(post.place, read_only=not post.writes) as store:
            run_process(
                store,
                post.settings,
                listener,
                ready=ready,
                inside=inside,
                writer=post.writer,
                shares=Shares(post.shares, post.number),
            )
    except (HamtargetError, OSError) as error:
        parent.send(f"{type(error).__name__}: {error}")
        sys.exit(1)
