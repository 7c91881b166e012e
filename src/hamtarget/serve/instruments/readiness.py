"""Readiness of a service: the reason why it should get no requests at the moment, if there is one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from hamtarget.errors import HamtargetError
from hamtarget.serve.instruments.machine import free_bytes
from hamtarget.serve.problems import STORAGE_STATUS
from hamtarget.serve.service_settings import ServiceSettings
from hamtarget.store import Store

# Whoever asks may ask often, and without a token: what was found counts so long.
_FRESH_SECONDS = 1.0
# A store that does not answer within this time would not answer a search either.
_STORE_SECONDS = 5.0
# A write that failed is forgotten after this time: nobody would learn otherwise that the disk is well again.
_FAILED_SECONDS = 30.0


class Readiness:
    """Judge of whether a service should get requests.

    Args:
        store: the store that is served.
        settings: settings of the service: whether it takes changes, and the reserve of the disk.
        is_taking: function that returns True while the service takes requests: neither starting nor ending.
        clock: seconds that only grow; tests give their own.
    """

    def __init__(
        self,
        store: Store,
        settings: ServiceSettings,
        *,
        is_taking: Callable[[], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._settings = settings
        self._is_taking = is_taking
        self._clock = clock
        # When a change last failed, and the number of the store's last change that was first read after that.
        self._write_failed: float | None = None
        self._sequence_then: int | None = None
        self._looked: float | None = None
        self._found: str | None = None
        self._looking: asyncio.Task[str | None] | None = None

    def note(self, status: int) -> None:
        """Remember that the disk is full or fails, if that is what the status of an answer says."""
        if status == STORAGE_STATUS:
            self._write_failed = self._clock()
            self._sequence_then = None
            self._looked = None

    async def reason(self) -> str | None:
        """Return why the service is not ready; None if it is."""
        if not self._is_taking():
            return "the service is starting or ending"
        if self._looked is None or self._clock() - self._looked >= _FRESH_SECONDS:
            self._found = await self._look()
            self._looked = self._clock()
        return self._found

    async def _look(self) -> str | None:
        # One look at a time: one that hangs is not joined by a thread for each who asks.
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(asyncio.to_thread(self._reason_of_store))
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), _STORE_SECONDS)
        except TimeoutError:
            return f"the store has not answered within {_STORE_SECONDS:g} s"

    def _reason_of_store(self) -> str | None:
        try:
            # A read of a few bytes, from the file or the server.
            sequence = self._store.sequence
        except HamtargetError as error:
            return f"the store cannot be read ({type(error).__name__})"
        if self._has_failing_writes(sequence):
            return "the last change could not be written: the disk is full or fails"
        folder = self._store.path
        if not isinstance(folder, Path):
            return None
        free = free_bytes(folder)
        if free is None:
            return "the folder of the store has gone"
        reserve = self._settings.disk_reserve_bytes
        if self._settings.writable and free < reserve:
            return f"the disk has {free:,} free bytes, less than the reserve of {reserve:,}"
        return None

    def _has_failing_writes(self, sequence: int) -> bool:
        """Return True for a while after a change has failed, unless one has succeeded since."""
        failed = self._write_failed
        if failed is None:
            return False
        if self._sequence_then is None:
            self._sequence_then = sequence
        if self._clock() - failed >= _FAILED_SECONDS or sequence > self._sequence_then:
            self._write_failed = None
            return False
        return True
