"""Requests that come at the same time are worked on together: one batch at a time, none waits for a fuller one."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from hamtarget.serve.meters import Meters
from hamtarget.serve.problems import busy

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Coalescer(Generic[Job, Answer]):
    """Runs jobs in a thread of its own, all that wait at a time.

    While a batch is worked on, the next one gathers: at rest a job is done at once and alone; under load batches
    grow by themselves, and with them the throughput.

    Args:
        name: what the work is called among the meters.
        work: answers of the jobs of a batch, in order; an exception in the place of an answer is raised for that job
            alone. What it raises itself is raised for every job of the batch.
        most_rows: a batch is closed when it has so many rows.
        most_waiting: jobs that may wait.
        meters: where batches are counted.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[Job]], Sequence[Answer | BaseException]],
        *,
        most_rows: int,
        most_waiting: int,
        meters: Meters,
    ) -> None:
        self._work = work
        self._most_rows = most_rows
        self._most_waiting = most_waiting
        self._waiting: deque[tuple[Job, int, asyncio.Future[Answer]]] = deque()
        self._running: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"hamtarget-{name}")
        self._rows_meter = meters.batch.labels(name)
        self._seconds_meter = meters.work_seconds.labels(name)
        self._waiting_meter = meters.waiting

    async def submit(self, job: Job, *, rows: int = 1) -> Answer:
        """The answer of a job of so many rows.

        Raises:
            Problem: too many jobs are waiting already. What the work raises.
        """
        if len(self._waiting) >= self._most_waiting:
            raise busy(f"{self._most_waiting} requests are waiting already; try again in a moment")
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, rows, future))
        self._waiting_meter.inc()
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await future

    async def drain(self) -> None:
        """Nothing, once all that was submitted is answered; then the thread ends."""
        while self._running is not None:
            await asyncio.sleep(0.005)
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._waiting:
                batch = self._next_batch()
                if not batch:
                    continue
                jobs = [job for job, _, _ in batch]
                began = time.perf_counter()
                try:
                    answers = await loop.run_in_executor(self._thread, self._work, jobs)
                except Exception as error:
                    answers = [error] * len(batch)
                self._seconds_meter.inc(time.perf_counter() - began)
                for (_, _, future), answer in zip(batch, answers, strict=True):
                    _settle(future, answer)
        finally:
            self._running = None

    def _next_batch(self) -> list[tuple[Job, int, asyncio.Future[Answer]]]:
        batch: list[tuple[Job, int, asyncio.Future[Answer]]] = []
        n_rows = 0
        while self._waiting and (not batch or n_rows + self._waiting[0][1] <= self._most_rows):
            entry = self._waiting.popleft()
            self._waiting_meter.dec()
            # Whoever asked may have gone, or be past the deadline.
            if not entry[2].done():
                batch.append(entry)
                n_rows += entry[1]
        if batch:
            self._rows_meter.observe(n_rows)
        return batch


def _settle(future: asyncio.Future[Answer], answer: Answer | BaseException) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
