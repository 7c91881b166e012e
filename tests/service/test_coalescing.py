"""Jobs that wait are done together, each gets its own answer, and there is an end to waiting."""

import asyncio
import threading

import pytest

from hamtarget.serve.coalescing import Coalescer
from hamtarget.serve.meters import Meters
from hamtarget.serve.problems import Problem


def coalescer(work, most_rows=100, most_waiting=1000):
    return Coalescer("test", work, most_rows=most_rows, most_waiting=most_waiting, meters=Meters())


def test_what_waits_is_done_in_one_batch():
    batches = []
    gate = threading.Event()

    def work(jobs):
        batches.append(list(jobs))
        gate.wait(5)
        return [job * 10 for job in jobs]

    async def scenario():
        queue = coalescer(work)
        tasks = [asyncio.create_task(queue.submit(0))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(queue.submit(number)) for number in range(1, 30)]
        await asyncio.sleep(0.05)
        gate.set()
        answers = await asyncio.gather(*tasks)
        await queue.drain()
        return answers

    assert asyncio.run(scenario()) == [number * 10 for number in range(30)]
    assert batches == [[0], list(range(1, 30))]


def test_a_batch_has_so_many_rows_at_most():
    batches = []

    def work(jobs):
        batches.append(sum(jobs))
        return jobs

    async def scenario():
        queue = coalescer(work, most_rows=10)
        await asyncio.gather(*(queue.submit(rows, rows=rows) for rows in (4, 4, 4, 25, 1, 1)))
        await queue.drain()

    asyncio.run(scenario())
    # One that is larger than a batch goes alone.
    assert batches == [8, 4, 25, 2]


def test_an_error_is_told_to_whom_it_belongs():
    def work(jobs):
        if "worst" in jobs:
            raise RuntimeError("all of them")
        return [ValueError(job) if job == "bad" else job for job in jobs]

    async def scenario():
        queue = coalescer(work)
        first = await asyncio.gather(*map(queue.submit, ("good", "bad", "fine")), return_exceptions=True)
        second = await asyncio.gather(*map(queue.submit, ("good", "worst")), return_exceptions=True)
        third = await queue.submit("after")
        await queue.drain()
        return first, second, third

    first, second, third = asyncio.run(scenario())
    assert [type(answer) for answer in first] == [str, ValueError, str]
    assert [type(answer) for answer in second] == [RuntimeError, RuntimeError]
    assert third == "after"


def test_a_full_queue_says_come_again_and_gone_jobs_are_left_out():
    gate = threading.Event()
    done = []

    def work(jobs):
        gate.wait(5)
        done.extend(jobs)
        return jobs

    async def scenario():
        queue = coalescer(work, most_waiting=2)
        tasks = [asyncio.create_task(queue.submit(0))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(queue.submit(number)) for number in (1, 2)]
        await asyncio.sleep(0.01)
        with pytest.raises(Problem, match="waiting already") as refused:
            await queue.submit(3)
        tasks[1].cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await queue.drain()
        return refused.value

    problem = asyncio.run(scenario())
    assert (problem.status, problem.headers["Retry-After"]) == (503, "1")
    assert done == [0, 2]
