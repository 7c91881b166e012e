"""The access log: one line of JSON for each request, without tokens, ids, codes and payloads."""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler

from hamtarget.errors import FileError
from hamtarget.serve.access.request_facts import RequestFacts

_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")

_access = logging.getLogger("hamtarget.access")
_log = logging.getLogger("hamtarget.serve")

_PROCESS = os.urandom(10).hex()
_NUMBERS = itertools.count()


def request_id(given: bytes | None) -> str:
    """Return the id of a request: the one that it was sent with, or a new one where that is missing or odd."""
    if given is not None and _REQUEST_ID.fullmatch(given):
        return given.decode("ascii")
    # Random numbers for each request would be a call of the system, during which another thread takes over.
    return f"{_PROCESS}{next(_NUMBERS):012x}"


class AccessLog:
    """Lines about requests, for the logger `hamtarget.access`, and a file that gets them.

    Other handlers of this logger, such as those of a program that serves a store itself, get them too.

    Args:
        target: file to append to, opened anew when something else has moved or removed it; "-": the standard output;
            None: no file.
    """

    def __init__(self, target: str | None) -> None:
        self._target = target
        self._handler: logging.Handler | None = None
        self._level = logging.NOTSET

    def open(self) -> None:
        """Begin to write to the file.

        Raises:
            FileError: it cannot be written.
        """
        if self._target is None:
            return
        if self._target == "-":
            self._handler = logging.StreamHandler(sys.stdout)
        else:
            try:
                self._handler = _LogFile(self._target, encoding="utf-8")
            except OSError as error:
                raise FileError(f"the access log {self._target} cannot be written: {error.strerror}") from error
        self._handler.setFormatter(logging.Formatter("%(message)s"))
        # Several services of one process have a file each.
        self._handler.addFilter(lambda record: getattr(record, "access_log", None) is self)
        self._level = _access.level
        _access.setLevel(logging.INFO)
        _access.addHandler(self._handler)

    def close(self) -> None:
        """Stop writing to the file; closing twice is fine."""
        if self._handler is not None:
            _access.removeHandler(self._handler)
            _access.setLevel(self._level)
            self._handler.close()
            self._handler = None

    def write(
        self,
        facts: RequestFacts,
        *,
        method: str,
        endpoint: str,
        status: int,
        seconds: float,
        bytes_in: int,
        bytes_out: int,
    ) -> None:
        """Write the line of a request that has been answered, or refused, or given up by its client."""
        if not _access.isEnabledFor(logging.INFO):
            return
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "request": facts.id,
            "client": facts.client,
            "method": method if method in _METHODS else "other",
            "endpoint": endpoint,
            "status": status,
            "error": facts.error,
            "rows": facts.rows,
            "hits": facts.hits,
            "ms": round(1000 * seconds, 3),
            "bytes_in": bytes_in,
            "bytes_out": bytes_out,
        }
        _access.info(json.dumps(line), extra={"access_log": self})


class _LogFile(WatchedFileHandler):
    """A file of log lines; a full disk costs lines, and says so once until it is better, never a request."""

    _failing = False

    def emit(self, record: logging.LogRecord) -> None:
        self._failed = False
        try:
            super().emit(record)
        except OSError:
            # The file cannot be opened anew.
            self.handleError(record)
        self._failing = self._failed

    def handleError(self, record: logging.LogRecord) -> None:
        self._failed = True
        if not self._failing:
            _log.error("the access log %s cannot be written; requests are answered without it", self.baseFilename)
