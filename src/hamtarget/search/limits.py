"""Limits: bounds on the work of one request, which every call that it is given to takes from."""

from __future__ import annotations

import math

import numpy as np

from hamtarget.errors import DtypeError, InputError
from hamtarget.search.core import _native

# More than is ever counted: as good as no bound, and within the range of the core's numbers.
_HUGE = 2**62


class Limits(_native.Limits):
    """Bounds on the work of one request. The clock starts when it is made; every call with it takes from it.

    Work that reaches one of them raises `LimitError` and changes nothing. Any number of threads may use them.

    Example:
        >>> import numpy as np
        >>> from hamtarget import FlatIndex, Limits
        >>> index = FlatIndex(64)
        >>> index.add(np.arange(1000), np.zeros((1000, 8), dtype=np.uint8))
        >>> index.search(np.zeros(8, dtype=np.uint8), radius=2, limit=1, limits=Limits(seconds=1.0, rows=5000))
        Hits(1 hit: Hit(id=0, distance=0))
        >>> index.search(np.zeros(8, dtype=np.uint8), radius=2, limits=Limits(hits=100))
        Traceback (most recent call last):
        ...
        hamtarget.errors.LimitError: the work needs more than 100 hits; ask for less, or allow more hits
    """

    def __init__(
        self,
        *,
        seconds: float | None = None,
        rows: int | None = None,
        hits: int | None = None,
        bytes: int | None = None,
    ) -> None:
        """Start the clock. What is not given is not bounded.

        Args:
            seconds: time from now on.
            rows: candidates read: rows of an index, one in several buckets counted in each, and rows of a store whose
                payloads a filter looks at.
            hits: hits found; where hits are re-ranked, those that are compared.
            bytes: of payloads and embeddings that are read from a store.

        Raises:
            InputError: a bound is negative, or `seconds` is NaN.
            DtypeError: a bound is not a number.
        """
        super().__init__(_seconds(seconds), _count("rows", rows), _count("hits", hits), _count("bytes", bytes))
        # Where rows must be counted by a statement of their own, this is done only if they are bounded.
        self.bounds_rows = rows is not None

    @property
    def seconds_left(self) -> float:
        """Seconds until the deadline, negative after it; infinite without one."""
        return super().seconds_left

    def check(self) -> None:
        """Check that there is time left.

        Raises:
            LimitError: the deadline is past, or `cancel` was called.
        """
        super().check()

    def cancel(self) -> None:
        """End what runs under these limits, in any thread, within 50 ms; it raises `LimitError`."""
        super().cancel()

    def take(self, *, rows: int = 0, hits: int = 0, bytes: int = 0) -> None:
        """Count work of the request.

        Raises:
            LimitError: more has been taken than allowed.
        """
        super().take(rows=rows, hits=hits, bytes=bytes)


def check_limits(limits: object) -> None:
    """Check that limits are what they should be.

    Raises:
        DtypeError: they are not.
    """
    if not isinstance(limits, Limits):
        raise DtypeError(f"limits are {limits!r}; expected Limits(seconds=..., rows=..., hits=..., bytes=...)")


def _seconds(seconds: float | None) -> float:
    if seconds is None:
        return math.inf
    if isinstance(seconds, bool) or not isinstance(seconds, int | float | np.integer | np.floating):
        raise DtypeError(f"seconds is {seconds!r}; expected a number")
    if not seconds >= 0:
        raise InputError(f"seconds is {seconds}; expected 0 or more")
    return float(seconds)


def _count(name: str, count: int | None) -> int:
    if count is None:
        return _HUGE
    if isinstance(count, bool) or not isinstance(count, int | np.integer):
        raise DtypeError(f"{name} is {count!r}; expected an integer")
    if count < 0:
        raise InputError(f"{name} is {count}; expected 0 or more")
    return min(int(count), _HUGE)
