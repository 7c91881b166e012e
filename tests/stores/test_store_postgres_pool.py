"""Connections that threads share, with some that are none: no server is needed."""

import threading
from types import SimpleNamespace

import pytest

from hamtarget.errors import ClosedError
from hamtarget.store.postgres import pool as pool_module
from hamtarget.store.postgres.pool import Pool


class FakeConnection:
    def __init__(self, number):
        self.number = number
        self.closed = False
        self.pgconn = SimpleNamespace(transaction_status=0)

    def close(self):
        self.closed = True


@pytest.fixture
def made():
    """All connections, in the order in which they were made."""
    return []


@pytest.fixture
def pool(made):
    def connect():
        made.append(FakeConnection(len(made)))
        return made[-1]

    return Pool(connect)


def test_the_last_that_was_given_back_is_taken_first(pool, made):
    with pool.lend() as first, pool.lend() as second:
        assert [first.number, second.number] == [0, 1]
    for _ in range(3):
        with pool.lend() as again:
            # The inner block ended first.
            assert again is first
    assert len(made) == 2


@pytest.mark.parametrize("status", [1, 2, 3, 4])
def test_what_is_not_idle_is_not_kept(pool, made, status):
    """Active, in a transaction, in a failed one, broken."""
    with pool.lend() as connection:
        connection.pgconn.transaction_status = status
    assert connection.closed
    with pool.lend() as another:
        assert another is not connection
        assert not another.closed


def test_after_a_broken_one_all_are_made_anew(pool, made):
    with pool.lend(), pool.lend():
        pass
    with pool.lend(anew=True) as connection:
        assert connection.number == 2
        assert [one.closed for one in made] == [True, True, False]
    with pool.lend() as again:
        assert again is connection


def test_who_finds_no_place_gets_one_beside(pool, made, monkeypatch):
    monkeypatch.setattr(pool_module, "_PATIENCE_SECONDS", 0.01)
    loans = [pool.lend() for _ in range(pool_module._MOST_CONNECTIONS + 2)]
    for loan in loans:
        loan.__enter__()
    assert len(made) == len(loans)
    for loan in loans:
        loan.__exit__(None, None, None)
    assert sum(not one.closed for one in made) == pool_module._MOST_CONNECTIONS
    # The places are as many as before.
    assert pool._places.qsize() == pool_module._MOST_CONNECTIONS


def test_who_waits_gets_the_place_that_becomes_free(pool, made):
    loans = [pool.lend() for _ in range(pool_module._MOST_CONNECTIONS)]
    for loan in loans:
        loan.__enter__()
    taken = []

    def wait():
        with pool.lend() as connection:
            taken.append(connection)

    waiting = threading.Thread(target=wait)
    waiting.start()
    loans[3].__exit__(None, None, None)
    waiting.join(60)
    assert taken == [made[3]]
    assert len(made) == pool_module._MOST_CONNECTIONS


def test_a_server_that_refuses_leaves_the_place_free(made):
    def connect():
        if made:
            raise OSError("refused")
        made.append(FakeConnection(0))
        return made[0]

    pool = Pool(connect)
    for _ in range(2 * pool_module._MOST_CONNECTIONS):
        with pool.lend(), pytest.raises(OSError, match="refused"), pool.lend():
            pass
    assert pool._places.qsize() == pool_module._MOST_CONNECTIONS


def test_closing_closes_what_is_in_use_when_it_comes_back(pool, made):
    with pool.lend() as first:
        with pool.lend():
            pass
        pool.close()
        assert [one.closed for one in made] == [False, True]
    assert first.closed
    with pytest.raises(ClosedError, match="open the store again"), pool.lend():
        pass
    pool.close()
