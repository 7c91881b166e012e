"""The gate that every request passes: it checks host, origin, token, size and time, and adds headers to answers."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import Counter, Histogram
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hamtarget.serve.access.access_log import AccessLog, request_id
from hamtarget.serve.access.request_facts import RequestFacts, put_facts
from hamtarget.serve.access.roles import ITEMS_PATH, allows, is_open, needed_role
from hamtarget.serve.access.token_ring import TokenRing
from hamtarget.serve.access.tokens import Role
from hamtarget.serve.instruments.meters import Meters
from hamtarget.serve.instruments.readiness import Readiness
from hamtarget.serve.lanes.memory import HOLDING, Holding, MemoryAccount
from hamtarget.serve.passing import CLIENT_HEADER
from hamtarget.serve.problems import Problem
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.serve.transport.crowd import CONNECTION

# Status of a request whose client went before it was answered; nginx logs the same.
_GONE = 499
# Kinds of requests that had begun and were ended from outside.
_CANCELLED = frozenset({"cancelled", "deadline", "gone"})

_ANSWER_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)

_log = logging.getLogger("hamtarget.serve")


class Guard:
    """Middleware that lets in what the settings allow, and refuses the rest before anything is read or decoded."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: ServiceSettings,
        meters: Meters,
        memory: MemoryAccount,
        tokens: TokenRing,
        access_log: AccessLog,
        readiness: Readiness,
    ) -> None:
        self._app = app
        self._settings = settings
        self._meters = meters
        self._tokens = tokens
        self._access_log = access_log
        self._readiness = readiness
        self._hosts = settings.allowed_hosts
        self._memory = memory
        self._counted: dict[tuple[str, int], tuple[Counter, Histogram]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        connection = scope.get("state", {}).get(CONNECTION)
        if connection is not None and connection.is_inside:
            await self._pass(scope, receive, send)
            return
        began = time.perf_counter()
        headers: dict[bytes, bytes] = dict(scope["headers"])
        facts = RequestFacts(id=request_id(headers.get(b"x-request-id")), client=_peer(scope))
        holding = self._memory.open()
        # Who works on the request takes the memory of the answer from it.
        scope.setdefault("state", {})[HOLDING] = holding
        body = _Body(scope, receive, self._settings, holding)
        answer = _Answer(send, body, facts.id)
        if scope["path"].startswith(ITEMS_PATH):
            # An id may hold a slash, as %2F: the path is split into its parts before they are decoded.
            scope["path"] = scope["raw_path"].decode("latin-1")
        try:
            self._check(scope, headers, facts)
            put_facts(scope, facts)
            async with asyncio.timeout(self._settings.deadline):
                await self._app(scope, body.receive, answer.send)
        except Problem as problem:
            await self._refuse(problem, facts, scope, receive, answer)
        except ClientDisconnect:
            # Nobody is left to read an answer.
            facts.error = "gone"
        except TimeoutError:
            seconds = self._settings.deadline
            late = Problem(504, "deadline", f"the request took more than {seconds:g} s; ask for less, or try again")
            await self._refuse(late, facts, scope, receive, answer)
        except Exception:
            _log.exception("%s %s failed, request %s", scope["method"], _endpoint(scope), facts.id)
            failed = Problem(500, "internal", "the service failed; its log says why")
            await self._refuse(failed, facts, scope, receive, answer)
        finally:
            holding.close()
            self._record(scope, facts, body, answer, time.perf_counter() - began)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that another process of this service has checked, and counts."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        client = headers.get(CLIENT_HEADER, b"").decode("utf-8")
        put_facts(scope, RequestFacts(id=request_id(headers.get(b"x-request-id")), client=client))
        holding = scope["state"][HOLDING] = self._memory.open()
        if scope["path"].startswith(ITEMS_PATH):
            scope["path"] = scope["raw_path"].decode("latin-1")
        try:
            await self._app(scope, _Body(scope, receive, self._settings, holding).receive, send)
        except Problem as problem:
            await problem.response()(scope, receive, send)
        finally:
            holding.close()

    async def _refuse(
        self, problem: Problem, facts: RequestFacts, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        facts.error = problem.kind
        if answer.status:
            # Half an answer was sent: nothing can be done but to end the connection.
            return
        await problem.response()(scope, receive, answer.send)

    def _record(self, scope: Scope, facts: RequestFacts, body: _Body, answer: _Answer, seconds: float) -> None:
        endpoint, status = _endpoint(scope), answer.status or _GONE
        of_endpoint = self._counted.get((endpoint, status))
        if of_endpoint is None:
            # Endpoints and statuses are few; finding their counters by labels takes longer than counting.
            of_endpoint = self._meters.requests.labels(endpoint, status), self._meters.latency.labels(endpoint)
            self._counted[endpoint, status] = of_endpoint
        of_endpoint[0].inc()
        of_endpoint[1].observe(seconds)
        if facts.error is not None:
            self._meters.errors.labels(facts.error).inc()
        self._readiness.note(status)
        if facts.error in _CANCELLED:
            self._meters.cancelled.labels(facts.error).inc()
        self._access_log.write(
            facts,
            method=scope["method"],
            endpoint=endpoint,
            status=status,
            seconds=seconds,
            bytes_in=body.n_bytes,
            bytes_out=answer.n_bytes,
        )

    def _check(self, scope: Scope, named: dict[bytes, bytes], facts: RequestFacts) -> None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if sum(len(name) + len(value) + 4 for name, value in headers) > self._settings.max_header_bytes:
            raise Problem(431, "headers", f"the headers have more than {self._settings.max_header_bytes:,} bytes")
        host = named.get(b"host", b"").decode("latin-1").lower()
        self._check_host(host)
        if not is_open(scope["path"]):
            _check_origin(named, host)
            needed = needed_role(scope["method"], scope["path"])
            self._check_token(needed, named.get(b"authorization", b""), facts)
            if connection := scope.get("state", {}).get(CONNECTION):
                connection.let_in()
            if needed == "write" and not self._settings.writable:
                # Whatever the store would allow.
                raise Problem(403, "read_only", "this service takes no changes; it was not started with --writable")
        if named.get(b"content-encoding", b"identity").lower() != b"identity":
            raise Problem(415, "encoding", "the body is compressed; send it uncompressed")
        length = named.get(b"content-length")
        if length is not None and b"transfer-encoding" in named:
            raise Problem(400, "length", "the request has both Content-Length and Transfer-Encoding; send one of them")
        if length is not None and (not length.isdigit() or int(length[:20]) > self._settings.max_body_bytes):
            raise _too_large(self._settings)

    def _check_host(self, host: str) -> None:
        if self._hosts is not None and _without_port(host) not in self._hosts:
            raise Problem(421, "host", f"the host name is {host[:100]!r}; use the service's address, or --host-name")

    def _check_token(self, needed: Role | None, authorization: bytes, facts: RequestFacts) -> None:
        if not self._tokens.is_needed:
            return
        entry = self._tokens.find(authorization)
        if entry is None:
            headers = {"WWW-Authenticate": "Bearer"}
            raise Problem(401, "token", "a valid token is needed: Authorization: Bearer ...", headers=headers)
        facts.client = entry.name
        facts.role = entry.role
        if needed is not None and not allows(entry.role, needed):
            message = f"the token's role is {entry.role}; this request needs the role {needed}"
            raise Problem(403, "role", message, details={"role": needed})


class _Answer:
    """Sender of an answer: adds the headers that every answer has, and remembers its status and size."""

    def __init__(self, send: Send, body: _Body, request_id: str) -> None:
        self._send = send
        self._body = body
        self._request_id = request_id.encode("ascii")
        self.status = 0
        self.n_bytes = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), *_ANSWER_HEADERS, (b"x-request-id", self._request_id)]
            if not self._body.is_whole:
                # The rest of the body is not read; a next request could not be told from it.
                headers.append((b"connection", b"close"))
            message["headers"] = headers
        else:
            self.n_bytes += len(message.get("body", b""))
        await self._send(message)


class _Body:
    """Receiver of a body: passes on its parts as long as it is neither too large nor too slow."""

    def __init__(self, scope: Scope, receive: Receive, settings: ServiceSettings, holding: Holding) -> None:
        self._receive = receive
        self._settings = settings
        self._holding = holding
        self.n_bytes = 0
        self._late: float | None = None
        lengths = [value for name, value in scope["headers"] if name in (b"content-length", b"transfer-encoding")]
        self.is_whole = lengths in ([], [b"0"])

    async def receive(self) -> Message:
        if self.is_whole:
            # Nothing can come but the end of the connection.
            return await self._receive()
        now = time.monotonic()
        if self._late is None:
            self._late = now + self._settings.read_seconds
        try:
            async with asyncio.timeout(max(0.0, self._late - now)):
                message: Message = await self._receive()
        except TimeoutError:
            seconds = self._settings.read_seconds
            raise Problem(408, "slow", f"the body did not arrive within {seconds:g} s") from None
        if message["type"] == "http.request":
            self.n_bytes += len(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
            if self.n_bytes > self._settings.max_body_bytes:
                raise _too_large(self._settings)
            self._holding.take(len(message.get("body", b"")))
        return message


def _too_large(settings: ServiceSettings) -> Problem:
    return Problem(413, "too_large", f"the body has more than {settings.max_body_bytes:,} bytes; send less at a time")


def _endpoint(scope: Scope) -> str:
    """Return the route of a request as a template: a path may hold an id."""
    return str(getattr(scope.get("route"), "path", "other"))


def _peer(scope: Scope) -> str:
    """Return the address of whoever is connected, without the port."""
    client = scope.get("client")
    return "unknown" if client is None else str(client[0])[:64]


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]


def _check_origin(headers: dict[bytes, bytes], host: str) -> None:
    """Refuse a request that a page of another site made in somebody's browser."""
    origin: Any = headers.get(b"origin")
    if origin is not None:
        try:
            origin = urlsplit(origin.decode("latin-1")).netloc.lower()
        except ValueError:
            origin = ""
    if (origin is not None and origin != host) or headers.get(b"sec-fetch-site") == b"cross-site":
        raise Problem(403, "origin", "pages of other sites may not call this service")
