"""Coalescing: jobs that wait at the same time are worked on as one batch, to which all clients contribute in turn."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from hamtarget.serve.instruments.meters import Meters
from hamtarget.serve.lanes.priority import lower_priority
from hamtarget.serve.problems import busy, too_busy

Job = TypeVar("Job")
Answer = TypeVar("Answer")


class Later(Exception):
    """In the place of an answer: there was no time for this job; it is put into the next batch."""


LATER: Final = Later()


class Coalescer(Generic[Job, Answer]):
    """A queue with a thread of its own, which takes jobs that wait as one batch.

    While a batch is worked on, the next one gathers: at rest a job is done at once and alone; under load batches
    grow by themselves, and with them the throughput. Clients take turns, a job each: however many jobs of one client
    wait, a job of another one is in the next batch or in that after it.

    Args:
        name: name of the work among the meters.
        work: function that answers the jobs of a batch, in order. An exception in the place of an answer is raised
            for that job alone; an exception that the function raises is raised for every job of the batch.
        most_rows: rows of a batch, at most; a larger job is a batch of its own.
        most_waiting: jobs that may wait.
        most_waiting_each: jobs of one client that may wait.
        meters: counters of the service.
        weigh: returns the rows of a job when a batch is made, in place of those that it was submitted with.
        gives_way: True if other threads go first where cores are scarce.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[Sequence[Job]], Sequence[Answer | BaseException]],
        *,
        most_rows: float,
        most_waiting: int,
        most_waiting_each: int | None = None,
        meters: Meters,
        weigh: Callable[[Job], float] | None = None,
        gives_way: bool = False,
    ) -> None:
        self._work = work
        self._gives_way = gives_way
        self._most_rows = most_rows
        self._most_waiting = most_waiting
        self._most_waiting_each = most_waiting if most_waiting_each is None else most_waiting_each
        self._weigh = weigh
        # Jobs of each client that has any; the first client is the next in turn.
        self._waiting: OrderedDict[str, deque[_Waiting[Job, Answer]]] = OrderedDict()
        self._n_waiting = 0
        self._is_working = False
        # Guards the jobs that wait; notified when one comes, or when none will come any more.
        self._changed = threading.Condition()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name=f"hamtarget-{name}", daemon=True)
        self._rows_meter = meters.batch.labels(name)
        self._seconds_meter = meters.work_seconds.labels(name)
        self._waiting_meter = meters.waiting
        self._thread.start()

    async def submit(
        self, job: Job, *, rows: int = 1, client: str = "", admitted: bool = False, continues: bool = False
    ) -> Answer:
        """Put a job of so many rows into the queue, and return its answer.

        Args:
            job: the job.
            rows: its rows.
            client: whose it is.
            admitted: True if it has waited in another queue already: it is not refused.
            continues: True if it goes on with what another job began here: it is not refused either, and comes before
                the client's other jobs, so that what was begun is finished first.

        Raises:
            Problem: too many jobs are waiting already, of this client (429) or of all (503).
            Exception: the error that the work raised for this job.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        may_refuse = not (admitted or continues)
        with self._changed:
            if self._ending:
                raise busy("the service is ending")
            if may_refuse and self._n_waiting >= self._most_waiting:
                raise busy(f"{self._n_waiting} requests are waiting already; try again in a moment")
            queue = self._waiting.get(client)
            if may_refuse and queue is not None and len(queue) >= self._most_waiting_each:
                raise too_busy(f"{len(queue)} requests of this client are waiting already; try again in a moment")
            if queue is None:
                queue = self._waiting[client] = deque()
            waiting = _Waiting(job, rows, client, future, loop)
            if continues:
                queue.appendleft(waiting)
            else:
                queue.append(waiting)
            self._n_waiting += 1
            self._changed.notify()
        self._waiting_meter.inc()
        return await future

    @property
    def is_busy(self) -> bool:
        """True if a new job would have to wait."""
        return self._is_working or self._n_waiting > 0

    def has_waiting(self, client: str) -> bool:
        """Return True if jobs of this client wait."""
        return client in self._waiting

    async def drain(self) -> None:
        """Wait until every submitted job is answered and the thread has ended."""
        with self._changed:
            self._ending = True
            self._changed.notify()
        while self._thread.is_alive():
            await asyncio.sleep(0.005)

    def _run(self) -> None:
        """Run batches until the end, in the thread; the event loop may be busy with answers meanwhile."""
        if self._gives_way:
            lower_priority()
        while batch := self._next_batch():
            self._is_working = True
            began = time.perf_counter()
            answers: Sequence[Answer | BaseException]
            try:
                answers = self._work([waiting.job for waiting in batch])
            except Exception as error:
                answers = [error] * len(batch)
            self._seconds_meter.inc(time.perf_counter() - began)
            if any(answer is LATER for answer in answers):
                self._put_back([waiting for waiting, answer in zip(batch, answers, strict=True) if answer is LATER])
            # The loop may be gone, with all who asked.
            with contextlib.suppress(RuntimeError):
                batch[0].loop.call_soon_threadsafe(_settle_all, batch, answers)
            # Else what is in them would stay in memory until the next batch.
            del batch, answers
            self._is_working = False

    def _next_batch(self) -> list[_Waiting[Job, Answer]]:
        """Wait for jobs and return those of the next batch; an empty list at the end."""
        batch: list[_Waiting[Job, Answer]] = []
        n_rows = 0.0
        n_taken = 0
        with self._changed:
            while not batch:
                while not self._waiting:
                    if self._ending:
                        return []
                    self._changed.wait()
                while self._waiting:
                    client, queue = next(iter(self._waiting.items()))
                    waiting = queue[0]
                    # Whoever asked may have gone, or be past the deadline.
                    is_gone = waiting.future.done()
                    rows = 0 if is_gone else waiting.rows if self._weigh is None else self._weigh(waiting.job)
                    if batch and not is_gone and n_rows + rows > self._most_rows:
                        break
                    queue.popleft()
                    n_taken += 1
                    if not queue:
                        del self._waiting[client]
                    elif not is_gone:
                        self._waiting.move_to_end(client)
                    if not is_gone:
                        batch.append(waiting)
                        n_rows += rows
            self._n_waiting -= n_taken
        self._waiting_meter.dec(n_taken)
        self._rows_meter.observe(sum(waiting.rows for waiting in batch))
        return batch

    def _put_back(self, jobs: Sequence[_Waiting[Job, Answer]]) -> None:
        """Let jobs wait again, before others of the same clients."""
        with self._changed:
            for waiting in reversed(jobs):
                self._waiting.setdefault(waiting.client, deque()).appendleft(waiting)
            self._n_waiting += len(jobs)
        self._waiting_meter.inc(len(jobs))


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting(Generic[Job, Answer]):
    """A submitted job, and the future of its answer."""

    job: Job
    rows: int
    client: str
    future: asyncio.Future[Answer]
    loop: asyncio.AbstractEventLoop


def _settle_all(batch: Sequence[_Waiting[Job, Answer]], answers: Sequence[Answer | BaseException]) -> None:
    for waiting, answer in zip(batch, answers, strict=True):
        if answer is not LATER:
            _settle(waiting.future, answer)


def _settle(future: asyncio.Future[Answer], answer: Answer | BaseException) -> None:
    if future.done():
        return
    if isinstance(answer, BaseException):
        future.set_exception(answer)
    else:
        future.set_result(answer)
