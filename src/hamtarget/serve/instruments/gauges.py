"""Instruments of a service: they read the machine and the store, and set the gauges."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hamtarget.serve.instruments.machine import (
    descriptor_limit,
    free_bytes,
    log_bytes,
    open_descriptors,
    resident_bytes,
)
from hamtarget.serve.instruments.meters import Meters
from hamtarget.serve.lanes.memory import MemoryAccount
from hamtarget.store import Store

# A process that is not asked for its counters reads its gauges so often: another process may add them up.
_EVERY_SECONDS = 10.0


class Instruments:
    """Readings of the machine, the process and the store, as gauges."""

    def __init__(self, store: Store, meters: Meters, memory: MemoryAccount) -> None:
        self._store = store
        self._meters = meters
        self._memory = memory

    def read(self) -> None:
        """Set the gauges of the process and the disk; this takes microseconds."""
        meters = self._meters
        meters.held_bytes.set(self._memory.held)
        for gauge, value in (
            (meters.resident_bytes, resident_bytes()),
            (meters.open_descriptors, open_descriptors()),
            (meters.max_descriptors, descriptor_limit()),
        ):
            if value is not None:
                gauge.set(value)
        folder = self._store.path
        if isinstance(folder, Path):
            meters.log_bytes.set(log_bytes(folder))
            free = free_bytes(folder)
            if free is not None:
                meters.disk_free_bytes.set(free)

    def read_store(self) -> None:
        """Set the gauges of the store, which is asked for them."""
        facts = self._store.stats()
        self._meters.rows.set(facts.items)
        self._meters.index_bytes.set(facts.index_bytes)
        self._meters.disk_bytes.set(facts.disk_bytes)

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Read now and then during the block."""
        task = asyncio.create_task(self._read_often())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _read_often(self) -> None:
        while True:
            self.read()
            await asyncio.sleep(_EVERY_SECONDS)
