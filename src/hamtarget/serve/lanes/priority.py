"""The priority of a thread: work that can wait gives way to the rest of the service."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

# As `nice -n 5`: a third of the share of other threads. With less, a thread that holds the interpreter's lock on a busy
# machine would keep all others waiting.
_NICENESS = 5


def lower_priority() -> None:
    """Let the calling thread, and threads that it starts, give way to others where cores are scarce.

    Only Linux has priorities of threads that one of them can lower for itself; elsewhere nothing is changed.
    """
    if sys.platform != "linux":
        return
    thread = threading.get_native_id()
    # A sandbox may forbid it; the service works without.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + _NICENESS)
