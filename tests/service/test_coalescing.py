"""Jobs that wait are done together, each gets its own answer, and there is an end to waiting."""

import asyncio
import threading

import pytest

from hamtarget.serve.instruments.meters import Meters
from hamtarget.serve.lanes.coalescing import LATER, Coalescer
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


def test_clients_take_turns():
    batches = []
    gate = threading.Event()

    def work(jobs):
        batches.append(list(jobs))
        gate.wait(5)
        return jobs

    async def scenario():
        queue = coalescer(work, most_rows=3)
        tasks = [asyncio.create_task(queue.submit("first", client="other"))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(queue.submit(f"a{number}", client="a")) for number in range(200)]
        tasks += [asyncio.create_task(queue.submit(f"b{number}", client="b")) for number in range(2)]
        await asyncio.sleep(0.05)
        gate.set()
        await asyncio.gather(*tasks)
        await queue.drain()

    asyncio.run(scenario())
    assert batches[:4] == [["first"], ["a0", "b0", "a1"], ["b1", "a2", "a3"], ["a4", "a5", "a6"]]


def test_a_client_has_its_share_of_the_queue():
    gate = threading.Event()

    def work(jobs):
        gate.wait(5)
        return jobs

    async def scenario():
        queue = Coalescer("test", work, most_rows=1, most_waiting=5, most_waiting_each=3, meters=Meters())
        tasks = [asyncio.create_task(queue.submit(0, client="a"))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(queue.submit(number, client="a")) for number in range(3)]
        await asyncio.sleep(0.01)
        refused = []
        for client in ("a", "b", "b", "c"):
            task = asyncio.create_task(queue.submit(0, client=client))
            await asyncio.sleep(0.01)
            refused.append(task.exception().status if task.done() else None)
            tasks.append(task)
        # What goes on with work that has begun is never refused.
        tasks.append(asyncio.create_task(queue.submit("more", client="a", continues=True)))
        await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        await queue.drain()
        return refused

    assert asyncio.run(scenario()) == [429, None, None, 503]


def test_what_continues_comes_before_what_waits():
    done = []
    gate = threading.Event()

    def work(jobs):
        gate.wait(5)
        done.extend(jobs)
        return jobs

    async def scenario():
        queue = coalescer(work, most_rows=1)
        tasks = [asyncio.create_task(queue.submit("begun", client="a"))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(queue.submit(f"later {number}", client="a")) for number in range(2)]
        await asyncio.sleep(0.01)
        tasks.append(asyncio.create_task(queue.submit("more", client="a", continues=True)))
        await asyncio.sleep(0.01)
        gate.set()
        await asyncio.gather(*tasks)
        await queue.drain()

    asyncio.run(scenario())
    assert done == ["begun", "more", "later 0", "later 1"]


def test_a_job_that_there_was_no_time_for_is_in_the_next_batch():
    batches = []

    def work(jobs):
        batches.append(list(jobs))
        return [jobs[0], *[LATER] * (len(jobs) - 1)]

    async def scenario():
        queue = coalescer(work)
        answers = await asyncio.gather(*map(queue.submit, range(4)))
        await queue.drain()
        return answers

    assert asyncio.run(scenario()) == [0, 1, 2, 3]
    assert sum(map(len, batches)) >= 4
    assert [batch[0] for batch in batches] == [0, 1, 2, 3]
