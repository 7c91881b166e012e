"""Statements of SQLite that end with the limits of a request."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from hamtarget._core import _native
from hamtarget.errors import LimitError

# Steps of SQLite's machine between two looks at the limits: a few dozen rows, of which a large payload may take a
# millisecond each.
_STEPS = 200


@contextmanager
def bounded(connection: sqlite3.Connection, limits: _native.Limits | None) -> Iterator[None]:
    """End what the connection does within the block when the deadline is past, or the work was cancelled.

    Raises:
        LimitError: it was interrupted.
    """
    if limits is None:
        yield
        return
    limits.check()
    connection.set_progress_handler(lambda: _is_over(limits), _STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_INTERRUPT:
            limits.check()
        raise
    finally:
        connection.set_progress_handler(None, _STEPS)


def _is_over(limits: _native.Limits) -> bool:
    try:
        limits.check()
    except LimitError:
        return True
    return False
