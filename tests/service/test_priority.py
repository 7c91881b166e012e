"""Work that takes long gives way: its thread has a lower priority, and leaves a core free."""

import os
import sys
import threading

import numpy as np
import pytest
from services import N_BITS, service

from hamtarget.query import Bounds
from hamtarget.serve import ServiceSettings
from hamtarget.serve.instruments.meters import Meters
from hamtarget.serve.lanes import priority
from hamtarget.serve.lanes import work as work_module
from hamtarget.serve.lanes.jobs import Encoded, SearchJob
from hamtarget.serve.lanes.work import ServiceWork
from hamtarget.serve.messages.search_messages import BatchSearchRequest
from hamtarget.store import Store


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_only_the_slow_lane_gives_way(tmp_path):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    before = {thread.ident for thread in threading.enumerate()}
    with service(store) as call:
        # It has begun by now, and so have its threads.
        assert call.post("/v1/search", {"code": "00" * 8}).status == 200
        lanes = {each.name: each for each in threading.enumerate() if each.ident not in before}
        nice = {name: os.getpriority(os.PRIO_PROCESS, lanes[name].native_id) for name in lanes}
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    assert nice.pop("hamtarget-slow") == min(19, usual + 5)
    assert {"hamtarget-search", "hamtarget-read", "hamtarget-serve"} <= set(nice)
    assert set(nice.values()) == {usual}


def test_a_system_that_refuses_is_no_harm(monkeypatch):
    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(priority.os, "setpriority", refuse, raising=False)
    priority.lower_priority()
    monkeypatch.setattr(priority.sys, "platform", "win32")
    priority.lower_priority()


@pytest.mark.parametrize(("cores", "asked", "expected"), [(1, 1, 1), (2, 8, 1), (4, 2, 2), (4, 8, 3)])
def test_slow_searches_leave_a_core_free(tmp_path, monkeypatch, cores, asked, expected):
    monkeypatch.setattr(work_module, "n_cores", lambda: cores)
    with Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os") as store:
        codes = np.zeros((1, N_BITS // 8), np.uint8)
        store.put_rows([1], codes=codes)
        used = []
        answer = store.answer
        store.answer = lambda asked, query, given: used.append(given.threads) or answer(asked, query, given)
        work = ServiceWork(store, ServiceSettings(threads=asked), Meters())
        job = SearchJob(BatchSearchRequest(radius=2), Encoded(codes))
        work.search_slowly(job, Bounds().start())
        work.search([job])
    assert used == [expected, asked]
