"""Connections of asyncio that are kept open between calls: HTTP/1.1 as far as the client needs it."""

from __future__ import annotations

import asyncio
import http.client
import io
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from hamtarget.client.idle import is_usable
from hamtarget.client.messages import Call
from hamtarget.client.service_address import ServiceAddress
from hamtarget.client.trying import Answer, Failure

_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Streams:
    """At most `most` connections to a service; a call takes one that is idle, or opens one, or waits."""

    def __init__(self, address: ServiceAddress, most: int) -> None:
        self._address = address
        self._room = asyncio.Semaphore(most)
        self._idle: deque[tuple[_Stream, float]] = deque()

    async def close(self) -> None:
        """Close those that are idle."""
        while self._idle:
            _, writer = self._idle.pop()[0]
            writer.close()
            try:
                await writer.wait_closed()
            except OSError:
                # It was closed by the other side.
                continue

    async def exchange(self, call: Call[Any], seconds_left: Callable[[], float]) -> Answer | Failure:
        """Send a request and return its answer, or why there is none; a cancelled call closes its connection.

        Args:
            call: the request.
            seconds_left: returns the seconds that are left to the call.
        """
        request = self._request(call)
        sent = False
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(seconds_left()), self._room:
                reader, writer = await self._take()
                sent = True
                # What is written waits in memory: an answer to a body that is not wanted is read all the same.
                writer.write(request)
                answer, is_kept = await _read(reader)
                if is_kept:
                    self._idle.append(((reader, writer), monotonic()))
                    writer = None
            return answer
        except (OSError, EOFError, asyncio.LimitOverrunError, http.client.HTTPException, ValueError) as error:
            return Failure(error, sent)
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _take(self) -> _Stream:
        while self._idle:
            (reader, writer), since = self._idle.pop()
            if not reader.at_eof() and not writer.is_closing() and is_usable(writer.get_extra_info("socket"), since):
                return reader, writer
            writer.transport.abort()
        where = self._address
        return await asyncio.open_connection(where.host, where.port, ssl=where.context)

    def _request(self, call: Call[Any]) -> bytes:
        where = self._address
        host = f"[{where.host}]" if ":" in where.host else where.host
        lines = [
            f"{call.method} {where.path}{call.path} HTTP/1.1",
            f"Host: {host}:{where.port}",
            *(f"{name}: {value}" for name, value in where.headers_of(call).items()),
        ]
        body = call.body or b""
        if call.body is not None:
            lines.append(f"Content-Length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body


async def _read(reader: asyncio.StreamReader) -> tuple[Answer, bool]:
    """Return the answer, and True if the connection can be used again."""
    while True:
        line, _, fields = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
        version, _, rest = line.decode("latin-1").partition(" ")
        number, _, reason = rest.partition(" ")
        if not version.startswith("HTTP/1.") or not (number.isdigit() and len(number) == 3):
            raise http.client.BadStatusLine(line[:100].decode("latin-1"))
        # Statuses below 200 come before the answer.
        if int(number) >= 200:
            break
    headers = http.client.parse_headers(io.BytesIO(fields))
    is_kept = version == "HTTP/1.1" and headers.get("Connection", "").lower() != "close"
    length = headers.get("Content-Length")
    if headers.get("Transfer-Encoding", "").lower() == "chunked":
        body = await _read_chunks(reader)
    elif number in ("204", "304"):
        body = b""
    elif length is not None:
        body = await reader.readexactly(int(length))
    else:
        body, is_kept = await reader.read(), False
    return Answer(int(number), reason, headers.get("Retry-After"), body), is_kept


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    chunks = []
    while size := int((await reader.readuntil(b"\r\n")).partition(b";")[0], 16):
        chunks.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":
        # Headers after the body are not needed.
        pass
    return b"".join(chunks)
