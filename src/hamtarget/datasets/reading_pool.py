"""Tasks done in several processes, with their results in order."""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TypeVar

from hamtarget.errors import ImageError, InputError

Task = TypeVar("Task")
Result = TypeVar("Result")

# Tasks that wait for each worker.
_TASKS_AHEAD = 3


def results_in_order(
    work: Callable[[Task], Result], tasks: Iterable[Task], *, workers: int
) -> Generator[Result, None, None]:
    """Yield the result of each task, in their order. Close the generator, so that no process outlives an error.

    Args:
        work: does a task; it, the tasks and the results go from process to process.
        tasks: taken only a few ahead of the results.
        workers: processes; 0: this one does all.

    Raises:
        InputError: `workers` is below 0.
        ImageError: a process ended unexpectedly.
    """
    if workers < 0:
        raise InputError(f"workers is {workers}; expected 0 (this process reads) or more")
    if workers == 0:
        yield from map(work, tasks)
        return
    waiting: deque[Future[Result]] = deque()
    # Forked processes would inherit locks of other threads, such as torch's, and wait for them forever.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_leave_interrupts_to_parent)
    try:
        for task in tasks:
            waiting.append(pool.submit(work, task))
            if len(waiting) > _TASKS_AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool as error:
        raise ImageError(
            "a process that reads images ended unexpectedly: it ran out of memory, or the script lacks "
            'if __name__ == "__main__"; try fewer workers, or workers=0'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
