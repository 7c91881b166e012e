"""Askers: who waits for an answer, and what the work for it may take."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, cast

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope

from hamtarget._core import _native
from hamtarget.query import Bounds, RunningBounds
from hamtarget.serve.access.request_facts import RequestFacts, facts_of
from hamtarget.serve.lanes.coalescing import Coalescer
from hamtarget.serve.lanes.memory import HOLDING, Holding, MemoryAccount
from hamtarget.serve.service_settings import ServiceSettings

T = TypeVar("T")

SlowLane = Coalescer[Callable[[], Any], Any]
"""The queue of work that takes long: one job of one client at a time, clients in turn."""

# A payload is in memory as text, as objects, and as a part of the answer.
_COPIES = 3


def request_bounds(holding: Holding, settings: ServiceSettings, seconds: float) -> RunningBounds:
    """Return running bounds of one request; payloads and embeddings that it reads count as memory that it holds.

    Args:
        holding: memory of the request.
        settings: settings of the service.
        seconds: time that the request has left.
    """

    class Limits(_native.Limits):
        """Counts bytes twice: in the bounds, and as memory."""

        def take(self, *, rows: int = 0, hits: int = 0, bytes: int = 0) -> None:
            """Count work of the request; bytes are counted before they are read."""
            super().take(rows=rows, hits=hits, bytes=bytes)
            if bytes:
                holding.take(_COPIES * bytes)

    bounds = Bounds(seconds, settings.max_rows, settings.max_found, settings.max_answer_bytes)
    return RunningBounds(bounds, Limits)


class Asker:
    """A request whose answer is waited for.

    Attributes:
        client: name of whoever asks; clients share the service in turn.
        holding: memory that the request holds.
        facts: facts of the request, for the access log.
        is_admitted: True if the request has waited in a queue, and is not refused by another.
    """

    __slots__ = (
        "_bounded",
        "_deadline",
        "_has_begun",
        "_running",
        "_receive",
        "_settings",
        "_slow",
        "client",
        "facts",
        "holding",
        "is_admitted",
    )

    def __init__(
        self,
        client: str,
        holding: Holding,
        *,
        settings: ServiceSettings,
        slow: SlowLane,
        bounded: Callable[[RunningBounds], None],
        receive: Receive | None = None,
        facts: RequestFacts | None = None,
    ) -> None:
        self.client = client
        self.holding = holding
        self._settings = settings
        self._deadline = time.monotonic() + settings.deadline
        self._running: RunningBounds | None = None
        self._bounded = bounded
        self.facts = RequestFacts() if facts is None else facts
        self._slow = slow
        self._receive = receive
        self._has_begun = False
        self.is_admitted = False

    @property
    def bounds(self) -> RunningBounds:
        """Bounds on the work for the request; its time counts from when the asker was made."""
        if self._running is None:
            # A request with one code needs none: the quick lane has its own.
            seconds = max(0.0, self._deadline - time.monotonic())
            self._running = request_bounds(self.holding, self._settings, seconds)
            self._bounded(self._running)
        return self._running

    async def slowly(self, do: Callable[[], T]) -> T:
        """Return what `do` returns, which is done in the slow lane when it is this client's turn.

        It is given up, and what runs within the request's bounds is cancelled, when the client goes or the task ends.

        Raises:
            ClientDisconnect: nobody waits any more.
        """
        working = self._slow.submit(do, client=self.client, admitted=self.is_admitted, continues=self._has_begun)
        self._has_begun = True
        return cast(T, await self.patiently(working))

    async def patiently(self, work: Awaitable[T]) -> T:
        """Wait for work that may take long, as long as the client does."""
        working = asyncio.ensure_future(work)
        if self._receive is None:
            watching: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        else:
            watching = asyncio.ensure_future(_until_gone(self._receive))
        try:
            await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise ClientDisconnect
            return working.result()
        finally:
            watching.cancel()
            if not working.done():
                working.cancel()
                if self._running is not None:
                    self._running.cancel()


def asker_of(
    request: Request,
    settings: ServiceSettings,
    memory: MemoryAccount,
    slow: SlowLane,
    bounded: Callable[[RunningBounds], None],
) -> Asker:
    """Return the asker of a request; `bounded` is called with its bounds when work begins that they bound."""
    holding = request.scope["state"].get(HOLDING) or memory.open()
    return Asker(
        client_of(request.scope),
        holding,
        settings=settings,
        slow=slow,
        bounded=bounded,
        receive=request.receive,
        facts=facts_of(request.scope),
    )


def client_of(scope: Scope) -> str:
    """Return the name of whoever sent a request: the token's name, or the address of the peer."""
    name: str | None = scope["state"].get("hamtarget_client")
    if name:
        return name
    peer = scope.get("client")
    return "unknown" if peer is None else str(peer[0])


async def _until_gone(receive: Receive) -> None:
    """Return when the connection ends; the whole body must have been received before."""
    while (await receive())["type"] != "http.disconnect":
        pass
