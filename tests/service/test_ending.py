"""The end of a service: within the time that it promises, whatever is stuck; at once at a second signal."""

import base64
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from services import N_BITS, Caller

from hamtarget.store import Store

DRAIN_SECONDS = 4
# A service in which one kind of work never ends; `threading.Event().wait()` cannot be cancelled from outside.
STUCK = """
import sys, threading
from hamtarget.serve import ServiceSettings, run
from hamtarget.serve.lanes.work import ServiceWork
from hamtarget.store import Store

path, stuck, drain = sys.argv[1:]
setattr(ServiceWork, stuck, lambda *_: threading.Event().wait())
settings = ServiceSettings(port=0, writable=True, token="a-token-for-the-test", drain_seconds=float(drain))
run(Store.open(path), settings, announce=lambda address: print(address, flush=True))
"""
REQUESTS = {
    "search": ("POST", "/v1/search", {"code": "00" * 8}),
    "read": ("GET", "/v1/items/1?kind=integer", None),
    "write": ("PUT", "/v1/items", {"items": [{"id": 2, "code": "00" * 8}]}),
}


@pytest.fixture
def stuck(tmp_path):
    """Starts a service in which some work is stuck, and a request that waits for it."""
    with Store.create(tmp_path / "store", n_bits=N_BITS, radius=2) as store:
        store.put_rows([1], codes=np.zeros((1, 8), np.uint8))
    started = []

    def start(work):
        command = [sys.executable, "-c", STUCK, str(tmp_path / "store"), work, str(DRAIN_SECONDS)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        call = Caller(process.stdout.readline().strip())
        running = pool.submit(call, *REQUESTS[work], {"Authorization": "Bearer a-token-for-the-test"})
        time.sleep(0.5)
        assert not running.done()
        return process, running

    with ThreadPoolExecutor(1) as pool:
        yield start
        for process in started:
            process.kill()
            process.communicate()
    with Store.open(tmp_path / "store") as store:
        assert store.verify().ok
        assert 1 in store


@pytest.mark.parametrize("work", list(REQUESTS))
def test_sigterm_ends_a_stuck_service_in_its_time(stuck, work):
    process, running = stuck(work)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=5 * DRAIN_SECONDS)
    took = time.monotonic() - began
    answer = running.result()
    assert process.returncode == 0, error
    assert (answer.status, answer.kind) == (503, "busy")
    # Running requests had most of the time, and no more than all of it; the machine may be slow.
    assert 0.5 * DRAIN_SECONDS < took < 2 * DRAIN_SECONDS
    assert "Traceback" not in error


def test_a_second_signal_ends_a_service_at_once(stuck):
    process, _ = stuck("search")
    process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert process.poll() is None
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    assert time.monotonic() - began < DRAIN_SECONDS / 2
    assert process.returncode == 128 + signal.SIGTERM


HEAVY = """
import sys
from hamtarget.serve import ServiceSettings, run
from hamtarget.store import Store

settings = ServiceSettings(port=0, drain_seconds=float(sys.argv[2]))
store = Store.open(sys.argv[1], read_only=True)
run(store, settings, announce=lambda address: print(address, flush=True))
"""


def test_sigterm_cancels_searches_that_take_too_long(tmp_path):
    generator = np.random.default_rng(0)
    with Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os") as store:
        store.put_rows(np.arange(200_000), codes=generator.integers(0, 256, (200_000, 8), dtype=np.uint8))
    # Each looks at every row for every code; all of them together take far longer than the end may.
    packed = base64.b64encode(generator.bytes(8 * 8192)).decode()
    asked = {"codes_base64": packed, "radius": 63, "limit": 10, "arrays": "base64"}
    command = [sys.executable, "-c", HEAVY, str(tmp_path / "store"), str(DRAIN_SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            call = Caller(process.stdout.readline().strip())
            with ThreadPoolExecutor(40) as pool:
                running = [pool.submit(call.post, "/v1/search/batch", asked) for _ in range(40)]
                time.sleep(0.5)
                assert not all(each.done() for each in running)
                began = time.monotonic()
                process.send_signal(signal.SIGTERM)
                answers = [each.result() for each in running]
            _, error = process.communicate(timeout=5 * DRAIN_SECONDS)
            took = time.monotonic() - began
        finally:
            process.kill()
    refused = [answer for answer in answers if answer.status != 200]
    assert len(refused) > 10
    assert {(answer.status, answer.kind) for answer in refused} == {(503, "busy")}
    # The searches themselves have heard of it: the answers are theirs, and no thread was left behind.
    assert all("given up because the service is ending" in answer.json["error"]["message"] for answer in refused)
    assert "does not end" not in error
    assert "does not return" not in error
    assert process.returncode == 0, error
    assert 0.5 * DRAIN_SECONDS < took < 2 * DRAIN_SECONDS
