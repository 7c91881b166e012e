"""Many requests at once: each gets its own right answer, writes and reads side by side; limits say come again."""

import base64
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from services import N_BITS, Caller, service

from hamtarget.client import Client
from hamtarget.codes import distances
from hamtarget.errors import BusyError
from hamtarget.items import Item
from hamtarget.store import Store

START = "from hamtarget.cli import start; start()"


def test_requests_at_the_same_time_get_their_own_answers(read_only, rows):
    codes, _ = rows

    def ask(number):
        row, radius, k = number % len(codes), number % 12, 1 + number % 7
        far = distances(codes[row], codes, N_BITS)[0]
        order = np.lexsort((np.arange(len(codes)), far))
        if number % 2:
            hits = read_only.post("/v1/nearest", {"id": row, "k": k, "payload": False}).json["hits"]
            expected = order[:k]
        else:
            hits = read_only.post("/v1/search", {"code": codes[row].tobytes().hex(), "radius": radius, "limit": 900})
            hits = hits.json["hits"]
            expected = [place for place in order if far[place] <= radius]
        return [hit["id"] for hit in hits] == list(expected)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(ask, range(160)))


def test_reads_see_acknowledged_writes_of_others(tmp_path):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    wrong = []
    with service(store, writable=True) as call:

        def live(number):
            generator = np.random.default_rng(number)
            with Client(call.address) as client:
                for turn in range(12):
                    code = generator.bytes(8)
                    id = f"{number}-{turn}"
                    client.put([Item(id, code=code, payload={"turn": turn})])
                    if id not in [hit.id for hit in client.search(code=code, radius=0)]:
                        wrong.append(f"{id} was put and is not found")
                    if turn % 3 == 0:
                        client.delete(id)
                        if client.get(id) is not None:
                            wrong.append(f"{id} was deleted and is there")

        threads = [threading.Thread(target=live, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert call("GET", "/v1/stats").json["items"] == 8 * 8
    # What was acknowledged is on disk when the service has ended.
    with Store.open(tmp_path / "store") as again:
        assert len(again) == 8 * 8
        assert again.verify().ok


def test_a_full_service_says_come_again(tmp_path, monkeypatch):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    store.put_rows([1], codes=np.zeros((1, 8), np.uint8))
    gate, entered = threading.Event(), threading.Event()
    answer = Store.answer

    def slow(self, *asked):
        entered.set()
        gate.wait(10)
        return answer(self, *asked)

    monkeypatch.setattr(Store, "answer", slow)
    with service(store, max_waiting=2) as call, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(call.post, "/v1/search", {"code": "00" * 8})]
        assert entered.wait(10)
        # One is at work, two can wait.
        asked += [pool.submit(call.post, "/v1/search", {"code": "00" * 8}) for _ in range(7)]
        while sum(answer.done() for answer in asked) < 5:
            time.sleep(0.01)
        refused = [answer.result() for answer in asked if answer.done()]
        assert [(answer.status, answer.kind, answer.headers["Retry-After"]) for answer in refused] == [
            (503, "busy", "1")
        ] * 5
        with Client(call.address) as client, pytest.raises(BusyError) as busy:
            client.search(code=bytes(8))
        assert busy.value.retry_after == 1
        gate.set()
        assert sorted(answer.result().status for answer in asked) == [200] * 3 + [503] * 5


def test_bodies_of_all_requests_together_have_a_bound(tmp_path, caplog):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    with service(store, max_held_bytes=1_000_000) as call:

        def large():
            return call.post("/v1/search", b" " * 400_000, **{"Content-Type": "application/json"})

        def beside_another():
            """The answer to a large request while another one is on its way."""
            head = "POST /v1/search HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 900000\r\n\r\n"
            with socket.create_connection((call.host, call.port)) as first:
                first.sendall(head.encode() + b" " * 800_000)
                time.sleep(0.2)
                answer = large()
                assert call.post("/v1/search", {"code": "00" * 8}).status == 200
            return answer

        def comes_to(status, ask):
            # Whoever is read later is the one that is too much: on a busy machine, that may be the other one.
            deadline = time.monotonic() + 10
            while (answer := ask()).status != status and time.monotonic() < deadline:
                time.sleep(0.02)
            return answer

        assert large().kind == "json"
        assert comes_to(429, beside_another).kind == "busy_bytes"
        # Whoever has gone holds nothing, and is no failure of the service.
        assert comes_to(400, large).kind == "json"
    assert caplog.text == ""


def test_a_request_has_a_deadline(tmp_path, monkeypatch):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")
    gate = threading.Event()
    monkeypatch.setattr(Store, "answer", lambda *_, **__: gate.wait(10))
    with service(store, deadline=0.3) as call:
        answer = call.post("/v1/search", {"code": "00" * 8})
        gate.set()
        assert (answer.status, answer.kind) == (504, "deadline")
        assert call("GET", "/healthz").status == 200


def test_what_fails_inside_is_told_without_details(tmp_path, monkeypatch, caplog):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os")

    def fail(*_, **__):
        raise RuntimeError(f"secret {tmp_path}")

    monkeypatch.setattr(Store, "answer", fail)
    monkeypatch.setattr(Store, "get", fail)
    with service(store) as call:
        for answer in (call.post("/v1/search", {"code": "00" * 8}), call("GET", "/v1/items/1")):
            assert (answer.status, answer.kind) == (500, "internal")
            assert b"secret" not in answer.body
        assert call("GET", "/healthz").status == 200
        assert 'errors_total{kind="internal"} 2.0' in call("GET", "/metrics").body.decode()
    assert caplog.text.count("RuntimeError: secret") == 2


def test_sigterm_lets_running_requests_finish(tmp_path):
    with Store.create(tmp_path / "store", n_bits=N_BITS, radius=2) as store:
        generator = np.random.default_rng(0)
        store.put_rows(list(range(400_000)), codes=generator.integers(0, 256, (400_000, 8), dtype=np.uint8))
    command = [sys.executable, "-c", START, "serve", str(tmp_path / "store"), "--port", "0", "--writable", "--no-token"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        address = process.stdout.readline().split()[2]
        call = Caller(address)
        assert call("GET", "/readyz").status == 200
        # Long enough to be still running when the signal comes.
        asked = {"codes_base64": base64.b64encode(generator.bytes(8 * 8000)).decode(), "k": 10}
        with ThreadPoolExecutor(1) as pool:
            assert call("PUT", "/v1/items", {"items": [{"id": "last", "code": "00" * 8}]}).status == 200
            running = pool.submit(call.post, "/v1/nearest/batch", asked)
            time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert not running.done()
            answer = running.result()
        assert answer.status == 200
        assert len(json.loads(answer.body)["ids"]) == 80_000
        out, error = process.communicate(timeout=20)
        assert process.returncode == 0, error
        assert "Traceback" not in out + error
    finally:
        process.kill()
        process.wait()
    with Store.open(tmp_path / "store") as store:
        assert "last" in store
