"""A log that repeats itself rarely."""

from __future__ import annotations

import logging
import time


class ThrottledLog:
    """Writes at most one warning every few seconds, and says how many it left out.

    Args:
        log: where warnings go.
        seconds: seconds between two of them.
    """

    def __init__(self, log: logging.Logger, *, seconds: float = 5.0) -> None:
        self._log = log
        self._seconds = seconds
        self._next = 0.0
        self._left_out = 0

    def warn(self, message: str) -> None:
        """Write a warning, or count it as left out."""
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return
        more = f" ({self._left_out:,} warnings before this one were left out)" if self._left_out else ""
        self._next = now + self._seconds
        self._left_out = 0
        self._log.warning("%s%s", message, more)
