"""Connections that are kept open between calls, for any number of threads."""

from __future__ import annotations

import http.client
import io
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from hamtarget.client.idle import is_usable
from hamtarget.client.messages import Call
from hamtarget.client.service_address import ServiceAddress
from hamtarget.client.trying import Answer, Failure

_READ_BYTES = 1 << 20


class Connections:
    """At most `most` connections to a service; a call takes one that is idle, or opens one, or waits."""

    def __init__(self, address: ServiceAddress, most: int) -> None:
        self._address = address
        self._room = threading.BoundedSemaphore(most)
        self._idle: deque[tuple[http.client.HTTPConnection, float]] = deque()
        self._process = os.getpid()

    def close(self) -> None:
        """Close those that are idle."""
        while self._idle:
            self._idle.pop()[0].close()

    def exchange(self, call: Call[Any], seconds_left: Callable[[], float]) -> Answer | Failure:
        """Send a request and return its answer, or why there is none.

        Args:
            call: the request.
            seconds_left: returns the seconds that are left to the call.
        """
        if not self._room.acquire(timeout=seconds_left()):
            return Failure(TimeoutError("all connections are in use"), sent=False)
        try:
            connection = self._take()
            sent = False
            try:
                connection.timeout = _positive(seconds_left())
                if connection.sock is None:
                    connection.connect()
                connection.sock.settimeout(_positive(seconds_left()))
                connection.response_class = _response_class(seconds_left)
                try:
                    connection.request(
                        call.method, self._address.path + call.path, call.body, self._address.headers_of(call)
                    )
                    sent = True
                except (BrokenPipeError, ConnectionResetError) as error:
                    return _early_answer(connection, error)
                answer, is_kept = _read(connection)
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                return Failure(error, sent)
            except BaseException:
                connection.close()
                raise
            if is_kept:
                self._idle.append((connection, monotonic()))
            else:
                connection.close()
            return answer
        finally:
            self._room.release()

    def _take(self) -> http.client.HTTPConnection:
        if self._process != os.getpid():
            # The connections of a parent process are not this one's.
            self._process = os.getpid()
            self._idle.clear()
        while True:
            try:
                connection, since = self._idle.pop()
            except IndexError:
                break
            if is_usable(connection.sock, since):
                return connection
            connection.close()
        where = self._address
        if where.context is None:
            return http.client.HTTPConnection(where.host, where.port)
        return http.client.HTTPSConnection(where.host, where.port, context=where.context)


def _read(connection: http.client.HTTPConnection) -> tuple[Answer, bool]:
    """Return the answer, and True if the connection can be used again."""
    response = connection.getresponse()
    answer = Answer(response.status, response.reason, response.getheader("Retry-After"), response.read())
    return answer, not response.will_close


def _early_answer(connection: http.client.HTTPConnection, error: OSError) -> Answer | Failure:
    """Return what a service has answered that did not want the whole body, as one that is too large."""
    try:
        return _read(connection)[0]
    except (OSError, http.client.HTTPException):
        return Failure(error, sent=False)
    finally:
        connection.close()


def _positive(seconds: float) -> float:
    """Return a timeout for a socket, for which 0 would mean not to wait at all."""
    return max(seconds, 0.001)


def _response_class(seconds_left: Callable[[], float]) -> Any:
    """Return the class of responses that are read until the call's deadline, however slowly they come."""

    class Reading(io.RawIOBase):
        def __init__(self, connection: socket.socket) -> None:
            self._connection = connection
            # Keeps the socket open after the connection has been closed, until the answer is read.
            self._file = connection.makefile("rb", buffering=0)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int | None:
            left = seconds_left()
            if not left:
                raise TimeoutError("the deadline is past")
            self._connection.settimeout(left)
            return self._file.readinto(buffer)

        def close(self) -> None:
            self._file.close()
            super().close()

    class Opened:
        def __init__(self, connection: socket.socket) -> None:
            self._connection = connection

        def makefile(self, _: str) -> io.BufferedReader:
            return io.BufferedReader(Reading(self._connection), _READ_BYTES)

    def response(connection: socket.socket, **how: Any) -> http.client.HTTPResponse:
        opened: Any = Opened(connection)
        return http.client.HTTPResponse(opened, **how)

    return response
