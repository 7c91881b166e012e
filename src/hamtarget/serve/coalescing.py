"""Coalescing: jobs that wait at the same time are worked on as one batch; none waits for a fuller one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from hamtarget.serve.meters import Meters
from hamtarget.serve.problems import busy

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Coalescer(Generic[Job, Answer]):
    """A queue with a thread of its own, which takes all jobs that wait as one batch.

    While a batch is worked on, the next one gathers: at rest a job is done at once and alone; under load batches
    grow by themselves, and with them the throughput.

    Args:
        name: name of the work among the meters.
        work: function that answers the jobs of a batch, in order. An exception in the place of an answer is raised
            for that job alone; an exception that the function raises is raised for every job of the batch.
        most_rows: rows of a batch, at most; a larger job is a batch of its own.
        most_waiting: jobs that may wait.
        meters: counters of the service.
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
        self._waiting: deque[_Waiting[Job, Answer]] = deque()
        # Guards the jobs that wait; notified when one comes, or when none will come any more.
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"hamtarget-{name}", daemon=True)
        self._rows_meter = meters.batch.labels(name)
        self._seconds_meter = meters.work_seconds.labels(name)
        self._waiting_meter = meters.waiting
        self._thread.start()

    async def submit(self, job: Job, *, rows: int = 1) -> Answer:
        """Put a job of so many rows into the queue, and return its answer.

        Raises:
            Problem: too many jobs are waiting already.
            Exception: the error that the work raised for this job.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        with self._changed:
            if self._ending:
                raise busy("the service is ending")
            if len(self._waiting) >= self._most_waiting:
                raise busy(f"{self._most_waiting} requests are waiting already; try again in a moment")
            self._waiting.append(_Waiting(job, rows, future, loop))
            self._changed.notify()
        self._waiting_meter.inc()
        return await future

    async def drain(self) -> None:
        """Wait until every submitted job is answered and the thread has ended."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        while self._thread.is_alive():
            await asyncio.sleep(0.005)

    def _run(self) -> None:
        """Run batches until the end, in the thread; the event loop may be busy with answers meanwhile."""
        while batch := self._next_batch():
            began = time.perf_counter()
            answers: Sequence[Answer | BaseException]
            try:
                answers = self._work([waiting.job for waiting in batch])
            except Exception as error:
                answers = [error] * len(batch)
            self._seconds_meter.inc(time.perf_counter() - began)
            # The loop may be gone, with all who asked.
            with contextlib.suppress(RuntimeError):
                batch[0].loop.call_soon_threadsafe(_settle_all, batch, answers)

    def _next_batch(self) -> list[_Waiting[Job, Answer]]:
        """Wait for jobs and return those of the next batch; an empty list at the end."""
        batch: list[_Waiting[Job, Answer]] = []
        n_rows = n_taken = 0
        with self._changed:
            while not batch:
                while not self._waiting:
                    if self._ending:
                        return []
                    self._changed.wait()
                while self._waiting and (not batch or n_rows + self._waiting[0].rows <= self._most_rows):
                    waiting = self._waiting.popleft()
                    n_taken += 1
                    # Whoever asked may have gone, or be past the deadline.
                    if not waiting.future.done():
                        batch.append(waiting)
                        n_rows += waiting.rows
        self._waiting_meter.dec(n_taken)
        self._rows_meter.observe(n_rows)
        return batch


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting(Generic[Job, Answer]):
    """A submitted job, and the future of its answer."""

    job: Job
    rows: int
    future: asyncio.Future[Answer]
    loop: asyncio.AbstractEventLoop


def _settle_all(batch: Sequence[_Waiting[Job, Answer]], answers: Sequence[Answer | BaseException]) -> None:
    for waiting, answer in zip(batch, answers, strict=True):
        _settle(waiting.future, answer)


def _settle(future: asyncio.Future[Answer], answer: Answer | BaseException) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
