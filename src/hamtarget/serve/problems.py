"""Refusals of requests: a status, a kind and one sentence; never a traceback."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

from hamtarget.errors import (
    ClosedError,
    HamtargetError,
    InputError,
    LockedError,
    MissingExtraError,
    ReadOnlyError,
    WriteError,
)

RETRY_SECONDS = 1


class Problem(Exception):
    """A refusal of a request.

    Attributes:
        status: status of HTTP.
        kind: one word for programs.
        message: a sentence for people: found, expected, what to do.
        headers: further headers of the answer.
    """

    def __init__(self, status: int, kind: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.headers = dict(headers or {})

    def response(self) -> JSONResponse:
        """Return the refusal as an answer."""
        content = {"error": {"kind": self.kind, "message": self.message}}
        return JSONResponse(content, status_code=self.status, headers=self.headers)


def busy(message: str) -> Problem:
    """Return the refusal of a service that has too much to do at the moment."""
    return Problem(503, "busy", message, headers={"Retry-After": str(RETRY_SECONDS)})


def not_found(message: str) -> Problem:
    """Return the refusal of a request for something that is not there."""
    return Problem(404, "not_found", message)


def problem_of(error: HamtargetError) -> Problem:
    """Return the refusal for an error of the library; damage inside is not described."""
    if isinstance(error, InputError):
        return Problem(422, "input", str(error))
    if isinstance(error, ReadOnlyError):
        return Problem(403, "read_only", "this service does not take changes; it was not started with --writable")
    if isinstance(error, ClosedError | LockedError):
        return busy("the store is not open at the moment; try again")
    if isinstance(error, WriteError):
        return Problem(507, "storage", "the disk is full or fails; nothing was changed")
    if isinstance(error, MissingExtraError):
        return Problem(501, "not_installed", str(error))
    return Problem(500, "internal", "the service failed; its log says why")
