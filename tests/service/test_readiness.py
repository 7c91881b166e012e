"""Readiness: a service that cannot do its work says so, with the reason, before requests are lost on it."""

import asyncio
import threading
import time

import numpy as np
import pytest
from services import N_BITS, service

from hamtarget.errors import ServerError, WriteError
from hamtarget.serve import ServiceSettings
from hamtarget.serve.app import create_app
from hamtarget.serve.instruments import readiness as readiness_module
from hamtarget.serve.instruments.readiness import Readiness
from hamtarget.store import Store

ITEM = {"items": [{"id": "new", "code": "00" * 8}]}
MORE_THAN_ANY_DISK = 2**62


@pytest.fixture
def store(tmp_path):
    made = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    made.put_rows([1], codes=np.zeros((1, 8), np.uint8))
    return made


@pytest.fixture
def fast(monkeypatch):
    """Every question is a new look."""
    monkeypatch.setattr(readiness_module, "_FRESH_SECONDS", 0.0)


def refused(call):
    answer = call("GET", "/readyz")
    assert (answer.status, answer.kind) == (503, "not_ready")
    assert answer.headers["Retry-After"]
    assert call("GET", "/healthz").body == b"ok\n"
    return answer.json["error"]["message"]


def test_a_service_is_ready(store):
    with service(store, writable=True) as call:
        assert call("GET", "/readyz").body == b"ready\n"


def test_a_disk_below_its_reserve_is_not_ready_for_changes(store, tmp_path):
    with service(store, writable=True, disk_reserve_bytes=MORE_THAN_ANY_DISK) as call:
        assert "less than the reserve" in refused(call)
        # It still answers; whoever asks /readyz decides.
        assert call.post("/v1/search", {"code": "00" * 8}).status == 200
    with service(Store.open(tmp_path / "store", read_only=True), disk_reserve_bytes=MORE_THAN_ANY_DISK) as call:
        assert call("GET", "/readyz").status == 200


def test_a_failed_write_is_told_until_one_succeeds(store, fast, monkeypatch):
    def fail(*_, **__):
        raise WriteError("the disk is full")

    with service(store, writable=True) as call:
        with monkeypatch.context() as context:
            context.setattr(type(store), "put_rows", fail)
            assert call("PUT", "/v1/items", ITEM).status == 507
            assert "could not be written" in refused(call)
            assert "could not be written" in refused(call)
        assert call("PUT", "/v1/items", ITEM).status == 200
        assert call("GET", "/readyz").status == 200


def test_a_failed_write_is_forgotten_after_a_while(store):
    now = [0.0]
    readiness = Readiness(store, ServiceSettings(), is_taking=lambda: True, clock=lambda: now[0])
    for status in (200, 422, 500, 503):
        readiness.note(status)
        assert asyncio.run(readiness.reason()) is None
    readiness.note(507)
    assert "could not be written" in asyncio.run(readiness.reason())
    now[0] = 31.0
    assert asyncio.run(readiness.reason()) is None
    store.close()


def test_a_closed_or_lost_store_is_not_ready(store, fast, monkeypatch):
    with service(store) as call:
        with monkeypatch.context() as context:
            context.setattr(type(store), "sequence", property(lambda _: lost()))
            assert "ServerError" in refused(call)
        assert call("GET", "/readyz").status == 200
        store.close()
        assert "ClosedError" in refused(call)


def lost():
    raise ServerError("the server is gone; password=secret")


def test_a_removed_folder_is_not_ready(store, tmp_path, fast):
    with service(store, writable=True) as call:
        (tmp_path / "store").rename(tmp_path / "moved")
        assert refused(call)
        (tmp_path / "moved").rename(tmp_path / "store")


def test_starting_and_ending_are_not_ready(store):
    taking = [False]
    readiness = Readiness(store, ServiceSettings(), is_taking=lambda: taking[0])
    assert "starting or ending" in asyncio.run(readiness.reason())
    taking[0] = True
    assert asyncio.run(readiness.reason()) is None
    store.close()


def test_a_store_that_hangs_costs_one_thread_and_a_bounded_time(store, fast, monkeypatch):
    monkeypatch.setattr(readiness_module, "_STORE_SECONDS", 0.2)
    free = threading.Event()
    asked = []

    def hang(_):
        asked.append(1)
        free.wait(20)
        return 1

    with service(store) as call:
        try:
            with monkeypatch.context() as context:
                context.setattr(type(store), "sequence", property(hang))
                for _ in range(5):
                    assert "has not answered" in refused(call)
                assert len(asked) == 1
        finally:
            free.set()
        end = time.monotonic() + 10
        while call("GET", "/readyz").status != 200:
            assert time.monotonic() < end


def test_many_questions_are_one_look(store, monkeypatch):
    looks = []
    real = Readiness._reason_of_store
    monkeypatch.setattr(Readiness, "_reason_of_store", lambda self: looks.append(1) or real(self))
    monkeypatch.setattr(readiness_module, "_FRESH_SECONDS", 60.0)
    with service(store) as call:
        for _ in range(20):
            assert call("GET", "/readyz").status == 200
    assert len(looks) == 1


def test_a_service_that_has_not_started_is_not_ready(store):
    application = create_app(store)
    assert application.service.is_ready is False
    asyncio.run(application.service.drain())
    store.close()
