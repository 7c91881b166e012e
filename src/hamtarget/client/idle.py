"""Connections that wait for their next call."""

from __future__ import annotations

import select
from time import monotonic
from typing import Any

# The service closes a connection that was idle for 30 s: one that is used later may be closed while a request is sent.
_IDLE_SECONDS = 20.0


def is_usable(connection: Any, since: float) -> bool:
    """Return True if a connection that has been idle can be used again.

    Args:
        connection: its socket.
        since: time at which it was last used, by `time.monotonic`.
    """
    try:
        # There is something to read only if the other side has ended it, or says what nobody asked for.
        return monotonic() - since < _IDLE_SECONDS and not select.select([connection], [], [], 0)[0]
    except (OSError, ValueError, TypeError):
        return False
