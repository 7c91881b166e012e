"""Passing on changes, and requests for groups: a process that only reads hands them to the one that writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from hamtarget.serve.access.request_facts import facts_of
from hamtarget.serve.access.roles import GROUP_PATHS, ITEMS_PATH
from hamtarget.serve.problems import busy

CLIENT_HEADER = b"x-hamtarget-client"
"""Header by which one process tells another who asked."""

_KEPT_HEADERS = ("content-type", "retry-after")
_MAX_HEAD_BYTES = 2**16


class PassOn:
    """Middleware that hands changes of items, and requests for groups, to the process that writes.

    It stands behind the guard: host, token, role, size and time of a request are checked before it is passed on.

    Args:
        app: the application, for all other requests.
        to: socket of the process that writes.
        routes: routes of items and groups; their paths name the endpoints among the meters.
    """

    def __init__(self, app: ASGIApp, *, to: Path, routes: Iterable[APIRoute]) -> None:
        self._app = app
        self._to = to
        self._routes = {(method, _base(route.path)): route for route in routes for method in route.methods or ()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http" or not _is_passed_on(scope["method"], scope["path"]):
            await self._app(scope, receive, send)
            return
        scope["route"] = self._routes[scope["method"], _base(scope["path"])]
        body = await Request(scope, receive).body()
        try:
            response = await self._ask(scope, body)
        except (FileNotFoundError, ConnectionRefusedError):
            raise busy("the process that writes is not there at the moment; try again") from None
        except (OSError, EOFError):
            raise busy("the process that writes has ended; send the change again, it may have been kept") from None
        await response(scope, receive, send)

    async def _ask(self, scope: Scope, body: bytes) -> Response:
        facts = facts_of(scope)
        target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"application/json")
        head = b"%s %s HTTP/1.1\r\nHost: writer\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n" % (
            scope["method"].encode("ascii"),
            target,
            kind,
            len(body),
        )
        who = CLIENT_HEADER + b": " + facts.client.encode("utf-8") + b"\r\nx-request-id: " + facts.id.encode() + b"\r\n"
        reader, writer = await asyncio.open_unix_connection(str(self._to), limit=_MAX_HEAD_BYTES)
        try:
            writer.write(head + who + b"\r\n" + body)
            await writer.drain()
            status, headers = _parsed(await reader.readuntil(b"\r\n\r\n"))
            content = await reader.readexactly(int(headers["content-length"]))
        finally:
            writer.close()
        if status == 500:
            raise RuntimeError("the process that writes failed; its log says why")
        if status >= 400:
            facts.error = json.loads(content)["error"]["kind"]
        kept = {name: value for name, value in headers.items() if name in _KEPT_HEADERS}
        return Response(content, status_code=status, headers=kept)


def _is_passed_on(method: str, path: str) -> bool:
    # Groups get their ids where they are kept.
    return (
        (method == "PUT" and path == ITEMS_PATH.rstrip("/"))
        or (method == "DELETE" and path.startswith(ITEMS_PATH))
        or (method == "POST" and path in GROUP_PATHS)
    )


def _base(path: str) -> str:
    """Return the path of an endpoint, without the id of an item."""
    return ITEMS_PATH if path.startswith(ITEMS_PATH) else path


def _parsed(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in pairs}
