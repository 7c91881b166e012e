"""Several processes that serve one store, and the parent that starts, watches and ends them.

uvicorn's own parent (`uvicorn.supervisors.Multiprocess`) does not serve here: its processes are all alike, while one of
ours writes; it restarts a process at once however often it dies; at the end it waits without a bound, and does not hear
a second signal.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path

from hamtarget.errors import HamtargetError, InputError
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.serve.transport.shares import Shares, create_shares
from hamtarget.serve.transport.sockets import address_of, listening, listening_inside
from hamtarget.store.postgres.address import is_address

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 30.0
# A process that lived so long has not died of how it was started.
_STABLE_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_METERS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_FEWEST = 8

_log = logging.getLogger("hamtarget.serve")
# What a process sends to its parent when it takes requests.
_READY = "ready"


def run_workers(
    place: str, settings: ServiceSettings, *, workers: int, announce: Callable[[str], None] | None = None
) -> None:
    """Serve a store with several processes until SIGTERM or Ctrl-C; they share one address.

    One of them opens a store in a folder for writing, if the settings allow changes, and the others pass changes on to
    it. Each process of a store in PostgreSQL writes for itself.

    Args:
        place: folder of the store, or its address.
        settings: settings of the service; connections, waiting requests and memory are divided among the processes.
        workers: number of processes.
        announce: called with the service's address when all processes take requests.

    Raises:
        InputError: the system cannot share sockets between processes.
        OSError: the address cannot be listened on, or a process cannot start.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise InputError("several processes need sockets of Unix; serve with one process")
    with ExitStack() as stack:
        listener = stack.enter_context(listening(settings))
        # Only this user may enter it.
        folder = Path(tempfile.mkdtemp(prefix="hamtarget-serve-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        (folder / "meters").mkdir()
        create_shares(folder / "shares", workers)
        passes_on = settings.writable and not is_address(place)
        inside = stack.enter_context(listening_inside(folder / "writer")) if passes_on else None
        share = replace(
            settings,
            max_connections=max(_FEWEST, settings.max_connections // workers),
            max_held_bytes=max(1, settings.max_held_bytes // workers),
            max_waiting=max(1, settings.max_waiting // workers),
        )
        crew = [
            _Worker(
                Post(
                    place,
                    share,
                    writes=settings.writable and (number == 0 or not passes_on),
                    number=number,
                    shares=folder / "shares",
                    writer=folder / "writer" if passes_on and number else None,
                ),
                listener,
                inside if number == 0 else None,
                folder / "meters",
            )
            for number in range(workers)
        ]
        with _signals() as told:
            ending = _Ending(settings.drain_seconds, at_hangup=settings.tokens_file is None)
            try:
                _serve(crew, told, ending, lambda: announce and announce(address_of(listener, settings)))
            finally:
                for worker in crew:
                    worker.kill()
        if ending.exit_code:
            raise SystemExit(ending.exit_code)


def _serve(crew: list[_Worker], told: _Told, ending: _Ending, announce: Callable[[], object]) -> None:
    """Start all processes, and watch them until they have ended."""
    announced = False
    # The one that writes opens the store first, so that the others find its index saved.
    crew[0].start()
    while True:
        wait([*(each for worker in crew for each in worker.waits_for), told.socket], timeout=_next_start(crew))
        for number in told.take():
            is_hangup = number == getattr(signal, "SIGHUP", None)
            if is_hangup and not ending.at_hangup and not ending.has_begun:
                # One that is starting reads the tokens anyway, and does not listen yet.
                _send([worker for worker in crew if worker.is_ready], number)
            elif not ending.has_begun:
                ending.begin()
                _send(crew, signal.SIGTERM)
            elif not is_hangup:
                ending.exit_code = 128 + number
                return
        for worker in crew:
            worker.look(is_ending=ending.has_begun, may_fail=announced)
        if ending.has_begun:
            if not any(worker.is_alive for worker in crew) or ending.is_late:
                return
            continue
        if crew[0].is_ready or announced:
            for worker in crew:
                worker.start_if_due()
        if not announced and all(worker.is_ready for worker in crew):
            announced = True
            announce()


def _send(crew: list[_Worker], number: int) -> None:
    for worker in crew:
        worker.send_signal(number)


def _next_start(crew: list[_Worker]) -> float:
    """Return how long to wait, at most."""
    now = time.monotonic()
    pauses = [worker.due - now for worker in crew if worker.due is not None and worker.process is not None]
    return max(0.0, min([*pauses, _LOOK_SECONDS]))


class _Worker:
    """A process as its parent sees it; it is started again when it dies, after a pause that grows."""

    def __init__(self, post: Post, listener: socket.socket, inside: socket.socket | None, meters: Path) -> None:
        self.post = post
        self.process: SpawnProcess | None = None
        self.is_ready = False
        # When the process is to be started; None while it lives.
        self.due: float | None = 0.0
        self._sockets = (listener, inside)
        self._meters = meters
        self._pipe: Connection | None = None
        self._began = 0.0
        self._pause = _FIRST_PAUSE

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    @property
    def waits_for(self) -> list[int | Connection]:
        """Handles that become readable when something has happened."""
        told: list[int | Connection] = []
        if self.process is not None and self.due is None:
            told.append(self.process.sentinel)
        if self._pipe is not None and not self.is_ready:
            told.append(self._pipe)
        return told

    def start(self) -> None:
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(
            target=work, args=(self.post, *self._sockets, theirs), name="hamtarget-serve"
        )
        # Read by prometheus_client when it is imported: the process counts in files that all of them read.
        os.environ[_METERS_VARIABLE] = str(self._meters)
        try:
            process.start()
        finally:
            del os.environ[_METERS_VARIABLE]
        theirs.close()
        self.process, self._pipe = process, ours
        self._began = time.monotonic()
        self.is_ready, self.due = False, None

    def start_if_due(self) -> None:
        if self.due is not None and time.monotonic() >= self.due:
            self.start()

    def look(self, *, is_ending: bool, may_fail: bool) -> None:
        """Note that the process has become ready, or has died; then it is started again in a while.

        Raises:
            OSError: it died before it was ready, and may not.
        """
        said = self._said()
        if said == _READY:
            self.is_ready = True
        if self.process is None or self.due is not None or self.process.is_alive():
            return
        pid, code = self.process.pid, self.process.exitcode
        self.is_ready = False
        self._close_pipe()
        self._forget_meters(pid or 0)
        self.due = float("inf")
        if is_ending:
            return
        if not may_fail:
            raise OSError(f"a process of the service could not start: {said or f'it ended with code {code}'}")
        if time.monotonic() - self._began > _STABLE_SECONDS:
            self._pause = _FIRST_PAUSE
        self.due = time.monotonic() + self._pause
        why = f" ({said})" if said and said != _READY else ""
        _log.error("process %s ended with code %s%s; another starts in %g s", pid, code, why, self._pause)
        self._pause = min(_LONGEST_PAUSE, 2 * self._pause)

    def send_signal(self, number: int) -> None:
        if self.process is not None and self.process.pid is not None and self.process.is_alive():
            os.kill(self.process.pid, number)

    def kill(self) -> None:
        """End the process by force, if it still lives."""
        if self.process is not None:
            if self.process.is_alive():
                self.process.kill()
            self.process.join()
        self._close_pipe()

    def _said(self) -> str:
        try:
            return str(self._pipe.recv()) if self._pipe is not None and self._pipe.poll() else ""
        except (EOFError, OSError):
            return ""

    def _close_pipe(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None

    def _forget_meters(self, pid: int) -> None:
        """Remove what a process that has died counted of the present; what it counted in all stays."""
        for path in self._meters.glob(f"gauge_live*_{pid}.db"):
            path.unlink(missing_ok=True)


class _Ending:
    """The end of all processes, and when it must have come.

    Args:
        seconds: time within which a process ends.
        at_hangup: True if SIGHUP ends the service; else it makes the processes read their tokens again.
    """

    def __init__(self, seconds: float, *, at_hangup: bool) -> None:
        self.at_hangup = at_hangup
        # A process ends itself within the time; what does not is killed.
        self._seconds = seconds + 1.0
        self._until: float | None = None
        self.exit_code = 0

    @property
    def has_begun(self) -> bool:
        return self._until is not None

    @property
    def is_late(self) -> bool:
        return self._until is not None and time.monotonic() > self._until

    def begin(self) -> None:
        self._until = time.monotonic() + self._seconds


class _Told:
    """Signals that have come."""

    def __init__(self, woken: socket.socket) -> None:
        self.socket = woken
        self.numbers: list[int] = []

    def take(self) -> list[int]:
        """Return the signals that have come since the last call."""
        try:
            self.socket.recv(4096)
        except BlockingIOError:
            pass
        numbers, self.numbers = self.numbers, []
        return numbers


@contextmanager
def _signals() -> Iterator[_Told]:
    """Collect signals during the block instead of dying of them."""
    woken, wakes = socket.socketpair()
    woken.setblocking(False)
    wakes.setblocking(False)
    told = _Told(woken)
    numbers = [signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])]
    before = {number: signal.signal(number, lambda came, _: told.numbers.append(came)) for number in numbers}
    waker = signal.set_wakeup_fd(wakes.fileno())
    try:
        yield told
    finally:
        signal.set_wakeup_fd(waker)
        for number, handler in before.items():
            signal.signal(number, handler)
        woken.close()
        wakes.close()


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
    from hamtarget.store import Store

    def ready() -> None:
        # The parent sends nothing: what comes is its end.
        asyncio.get_running_loop().add_reader(parent.fileno(), os.kill, os.getpid(), signal.SIGTERM)
        parent.send(_READY)

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
