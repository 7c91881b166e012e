"""The type of the functions that long-running work reports its progress to."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""A function of (done, total). Long-running work calls it now and then, and once at the end."""

Stages = Callable[[str, int, int | None], None]
"""A function of (what is being done, done, total), for work in several stages; total is None where it is not known."""
