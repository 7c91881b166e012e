"""How often a call is tried and how long all of it may take: the rules that both clients share.

A call that only reads is tried again after any failure of the connection. One that changes items is tried again only
if the service has certainly not acted on it: it could not be connected to, it did not get the whole request, or it
answered that it is too busy.
"""

from __future__ import annotations

import json
import math
import ssl
from dataclasses import dataclass
from time import monotonic
from typing import Generic, TypeVar

from hamtarget.client.messages import Call
from hamtarget.errors import BusyError, InputError, ServiceError

T = TypeVar("T")

_BUSY = (429, 503)
_FIRST_PAUSE = 0.05
_DEFAULT_RETRY_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of the service; `retry_after` is the header of that name."""

    status: int
    reason: str
    retry_after: str | None
    body: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """A call without an answer; `sent` is True if the service may have got all of the request."""

    error: Exception
    sent: bool


@dataclass(frozen=True, slots=True)
class Patience:
    """How long and how often a client tries.

    Attributes:
        seconds: of a whole call, with its pauses.
        retries: tries after the first one.
        retry_changes: True if a change whose answer was lost is sent again.
        connections: most connections at a time.
    """

    seconds: float
    retries: int
    retry_changes: bool
    connections: int

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise InputError(f"timeout is {self.seconds}; expected seconds, more than 0")
        if self.retries < 0:
            raise InputError(f"retries is {self.retries}; expected 0 or more")
        if self.connections < 1:
            raise InputError(f"connections is {self.connections}; expected 1 or more")


class Tries(Generic[T]):
    """The tries of one call.

    After each try, `pause_after` says how long to wait before the next one; where there is none, `result` gives or
    raises what came of it.
    """

    def __init__(self, call: Call[T], patience: Patience) -> None:
        self.call = call
        self._patience = patience
        self._end = monotonic() + patience.seconds
        self._n_failed = 0
        self._may_be_done = False

    @property
    def seconds_left(self) -> float:
        """Seconds until the call's deadline; 0 after it."""
        return max(0.0, self._end - monotonic())

    def pause_after(self, outcome: Answer | Failure) -> float | None:
        """Return the seconds to wait before the next try; None if this outcome is the last."""
        self._n_failed += 1
        pause = self._pause_after(outcome)
        if isinstance(outcome, Failure) and outcome.sent:
            self._may_be_done = True
        if pause is None or self._n_failed > self._patience.retries or pause >= self.seconds_left:
            return None
        return pause

    def _pause_after(self, outcome: Answer | Failure) -> float | None:
        if isinstance(outcome, Answer):
            if outcome.status not in _BUSY or (outcome.retry_after is None and self.call.changes):
                return None
            return _seconds_of(outcome.retry_after)
        if isinstance(outcome.error, TimeoutError | ssl.SSLCertVerificationError):
            return None
        is_safe = not outcome.sent or not self.call.changes or self._patience.retry_changes
        return _FIRST_PAUSE * float(2 ** (self._n_failed - 1)) if is_safe else None

    def result(self, outcome: Answer | Failure) -> T:
        """Return the result of the call.

        Raises:
            ServiceError: the service refused, failed or did not answer.
            BusyError: it has too much to do.
        """
        if isinstance(outcome, Failure):
            raise self._lost(outcome) from outcome.error
        try:
            if outcome.status < 400:
                return self.call.read(outcome.body)
            if outcome.status == 404:
                if self.call.missing:
                    return self.call.missing[0]
                if self._may_be_done and self.call.method == "DELETE":
                    # The first try, whose answer was lost, has deleted it.
                    return self.call.read(b"null")
        except (ValueError, KeyError, TypeError) as error:
            raise ServiceError(
                f"the answer cannot be read ({type(error).__name__}: {error}); is this a hamtarget service?",
                status=outcome.status,
                kind="unreadable",
            ) from error
        raise _refusal(outcome)

    def _lost(self, failure: Failure) -> ServiceError:
        told = str(failure.error) or type(failure.error).__name__
        unsure = ""
        if self.call.changes and (failure.sent or self._may_be_done):
            unsure = "; the change may have been made or not: look, or send it again"
        if isinstance(failure.error, TimeoutError):
            told = f"the service does not answer within {self._patience.seconds:g} s"
            return ServiceError(told + unsure, kind="timeout")
        if isinstance(failure.error, ssl.SSLError):
            return ServiceError(f"no secure connection: {told}{unsure}", kind="tls")
        return ServiceError(f"the service does not answer: {told}{unsure}", kind="lost" if unsure else "unreachable")


def _refusal(answer: Answer) -> ServiceError:
    try:
        told = json.loads(answer.body)["error"]
        message, kind = str(told["message"]), str(told["kind"])
    except (ValueError, KeyError, TypeError):
        message, kind = f"the service answered {answer.status} {answer.reason}", "unknown"
    if answer.status not in _BUSY:
        return ServiceError(message, status=answer.status, kind=kind)
    busy = BusyError(message, status=answer.status, kind=kind)
    busy.retry_after = _seconds_of(answer.retry_after)
    return busy


def _seconds_of(retry_after: str | None) -> float:
    try:
        seconds = float(retry_after or "")
    except ValueError:
        # It may be a date.
        return _DEFAULT_RETRY_AFTER
    return seconds if math.isfinite(seconds) and seconds >= 0 else _DEFAULT_RETRY_AFTER
