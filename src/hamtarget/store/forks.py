"""Telling an object that the process has been forked, and that this is the copy."""

from __future__ import annotations

import os
import threading
from typing import Protocol
from weakref import WeakSet


class Forkable(Protocol):
    """An object that wants to know of forks."""

    def after_fork(self) -> None:
        """Act on the fork; called in the new process."""
        ...


class _Told:
    """All objects that want to know of forks, once for the process."""

    def __init__(self) -> None:
        self._everyone: WeakSet[Forkable] = WeakSet()
        self._lock = threading.Lock()
        self._is_registered = False

    def add(self, one: Forkable) -> None:
        with self._lock:
            self._everyone.add(one)
            if not self._is_registered and hasattr(os, "register_at_fork"):
                os.register_at_fork(after_in_child=self._tell)
                self._is_registered = True

    def _tell(self) -> None:
        for one in list(self._everyone):
            one.after_fork()


_told = _Told()


def tell_of_forks(one: Forkable) -> None:
    """Call `one.after_fork` in processes that are forked from this one, as long as `one` lives."""
    _told.add(one)
