"""The memory of requests is counted, bounded, and given back."""

import threading

import pytest

from hamtarget.serve.lanes.memory import MemoryAccount
from hamtarget.serve.problems import Problem


def test_what_is_taken_is_given_back():
    account = MemoryAccount(100, 60)
    first, second = account.open(), account.open()
    first.take(50)
    second.take(30)
    assert account.held == 80
    first.give(20)
    assert (account.held, first.held) == (60, 30)
    first.close()
    first.close()
    second.close()
    assert account.held == 0


def test_a_request_that_takes_too_much_is_told_so_and_others_are_none_the_worse():
    account = MemoryAccount(100, 60)
    one, other = account.open(), account.open()
    one.take(40)
    with pytest.raises(Problem, match="more than 60 bytes") as too_much:
        one.take(21)
    assert (too_much.value.status, too_much.value.kind) == (413, "too_much")
    assert account.held == 40
    other.take(60)
    with pytest.raises(Problem) as busy:
        one.take(1)
    assert (busy.value.status, busy.value.kind, busy.value.headers) == (429, "busy_bytes", {"Retry-After": "1"})
    one.close()
    other.close()
    assert account.held == 0


def test_a_request_that_has_ended_takes_no_more():
    account = MemoryAccount(100, 60)
    holding = account.open()
    holding.close()
    with pytest.raises(Problem, match="ended"):
        holding.take(1)
    assert account.held == 0


def test_threads_take_and_give_at_once():
    account = MemoryAccount(10**9, 10**9)

    def work():
        for _ in range(500):
            holding = account.open()
            holding.take(7)
            holding.take(3)
            holding.give(4)
            holding.close()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert account.held == 0
