"""How long work reports its progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int], None]
"""A function that long work calls now and then, and at the end, with how much is done and how much there is."""
