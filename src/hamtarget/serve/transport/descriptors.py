"""File descriptors of a service: how many connections they allow."""

from __future__ import annotations

import logging
import os
import sys

if sys.platform != "win32":
    import resource

# Kept free for the store: its files, a reader of SQLite or PostgreSQL in each thread, pictures, uploads, logs.
RESERVED = 128
# A service that cannot have so many is of no use; below, it takes from the reserve.
_FEWEST = 8

_log = logging.getLogger("hamtarget.serve")


def fit_connections(asked: int, *, raise_limit: bool) -> int:
    """Return how many connections this process can hold, `asked` at most; warn if they are fewer.

    Args:
        asked: connections wanted.
        raise_limit: True to raise the soft limit of file descriptors as far as it takes, up to the hard one.
    """
    if sys.platform == "win32":
        return asked
    used = _open_descriptors() + RESERVED
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return asked
    wanted = used + asked
    if raise_limit and soft < wanted:
        highest = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (highest, hard))
            soft = highest
        except (OSError, ValueError):
            _log.warning("the limit of open files cannot be raised from %d to %d", soft, highest)
    fitting = max(_FEWEST, min(asked, soft - used))
    if fitting < asked:
        _log.warning(
            "%d connections are asked for, and the limit of %d open files allows %d; raise it (ulimit -n)",
            asked,
            soft,
            fitting,
        )
    return fitting


def _open_descriptors() -> int:
    for folder in ("/proc/self/fd", "/dev/fd"):
        try:
            return len(os.listdir(folder))
        except OSError:
            continue
    return RESERVED
