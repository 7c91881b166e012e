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
STORAGE_STATUS = 507
"""Status of a change that could not be written."""


class Problem(Exception):
    """A refusal of a request.

    Attributes:
        status: status of HTTP.
        kind: one word for programs.
        message: a sentence for people: found, expected, what to do.
        headers: further headers of the answer.
        details: further fields of the answer, for programs: the limit that was passed, the role that is needed.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, str | int | float] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.message = message
        self.headers = dict(headers or {})
        self.details = dict(details or {})

    def response(self) -> JSONResponse:
        """Return the refusal as an answer."""
        content = {"error": {"kind": self.kind, "message": self.message, **self.details}}
        return JSONResponse(content, status_code=self.status, headers=self.headers)


def busy(message: str) -> Problem:
    """Return the refusal of a service that has too much to do at the moment."""
    return Problem(503, "busy", message, headers={"Retry-After": str(RETRY_SECONDS)})


def not_ready(reason: str) -> Problem:
    """Return the answer of a service that should get no requests at the moment."""
    return Problem(503, "not_ready", reason, headers={"Retry-After": str(RETRY_SECONDS)})


def too_much(limit: str, value: float, advice: str) -> Problem:
    """Return the refusal of a request that asks for more than one request may take.

    Args:
        limit: what there is too much of, such as "rows", "hits", "bytes" or "seconds".
        value: the most that one request may take.
        advice: how to ask for less, such as "use a smaller radius".
    """
    message = f"the request takes more than {value:,} {limit}, the most of one request; {advice}"
    return Problem(413, "too_much", message, details={"limit": limit, "value": value})


def too_busy(message: str, *, retry_after: int = RETRY_SECONDS) -> Problem:
    """Return the refusal of a client that has its share of the service under way already; others are served.

    Args:
        message: what there is too much of, and what to do.
        retry_after: seconds after which to try again.
    """
    return Problem(429, "too_busy", message, headers={"Retry-After": str(retry_after)})


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
        return Problem(STORAGE_STATUS, "storage", "the disk is full or fails; nothing was changed")
    if isinstance(error, MissingExtraError):
        return Problem(501, "not_installed", str(error))
    return Problem(500, "internal", "the service failed; its log says why")


def refused(message: str) -> Problem:
    """Return the refusal of a request that asks for something that cannot be done."""
    return Problem(422, "input", message)
