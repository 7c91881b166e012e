"""Several processes that serve one store: all see each change, each is replaced when it dies, all end together."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from services import Caller

from hamtarget.serve.access.tokens import TokenEntry, editing_tokens, new_token
from hamtarget.store import Store

START = "from hamtarget.cli import start; start()"
# Two processes with little time: for a request, and to end.
HURRIED = """
import sys
from hamtarget.serve import ServiceSettings
from hamtarget.serve.transport.workers import run_workers

settings = ServiceSettings(port=0, writable=True, no_token=True, drain_seconds=2.0, deadline=1.0)
run_workers(sys.argv[1], settings, workers=2, announce=lambda address: print("Serving at", address, flush=True))
"""
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


def code_of(number):
    return np.random.default_rng(number).bytes(8).hex()


@contextlib.contextmanager
def served(place, *arguments, workers=2, token=None):
    options = ["--port", "0", "--workers", str(workers), *arguments]
    command = [sys.executable, "-c", START, "serve", str(place), *options]
    with started(command, token) as found:
        yield found


@contextlib.contextmanager
def started(command, token=None):
    environment = {**os.environ, **({"HAMTARGET_TOKEN": token} if token else {})}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        line = process.stdout.readline()
        assert line.startswith("Serving"), process.stderr.read()
        yield process, Caller(line.split()[2])
    finally:
        process.kill()
        process.communicate()


def children(process):
    """The processes that serve, the one that writes first; the tracker of multiprocessing is none of them."""
    pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(pid) for pid in pids if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def connections_to_all(process, call, stack):
    """A connection to each process, by its number of process: whichever accepts one is found by its sockets."""
    found = {}
    for _ in range(200):
        opened = http.client.HTTPConnection(call.host, call.port, timeout=20)
        connection = stack.enter_context(contextlib.closing(opened))
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        ends = f"{call.port:04X}", f"{connection.sock.getsockname()[1]:04X}"
        with open("/proc/net/tcp", encoding="ascii") as table:
            rows = [line.split() for line in table]
        inodes = {row[9] for row in rows if tuple(each.rpartition(":")[2] for each in row[1:3]) == ends}
        for pid in children(process):
            links = {os.readlink(each) for each in Path(f"/proc/{pid}/fd").iterdir() if each.is_symlink()}
            if links & {f"socket:[{inode}]" for inode in inodes}:
                found.setdefault(pid, connection)
        if len(found) == len(children(process)):
            return found
    raise AssertionError(f"only {list(found)} of {children(process)} accept connections")


def ask(connection, method, path, body=None, **headers):
    content = None if body is None else json.dumps(body).encode()
    connection.request(method, path, content, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    return answer.status, answer.read()


def found_ids(connection, code):
    status, body = ask(connection, "POST", "/v1/search", {"code": code, "radius": 0, "payload": False})
    assert status == 200, body
    return [hit["id"] for hit in json.loads(body)["hits"]]


@pytest.fixture
def folder(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64, radius=2, durability="os") as store:
        store.put_rows([1], codes=np.zeros((1, 8), np.uint8))
    return tmp_path / "store"


def test_every_process_sees_a_change_when_it_is_answered(stores):
    with stores.create(n_bits=64, radius=2, durability="os") as store:
        store.put_rows([1], codes=np.zeros((1, 8), np.uint8))
    with (
        served(stores.place(), "--writable", "--no-token", workers=3) as (process, call),
        contextlib.ExitStack() as stack,
    ):
        connections = connections_to_all(process, call, stack)
        assert len(connections) == 3
        number = 0
        for putting in connections.values():
            assert json.loads(ask(putting, "GET", "/v1/stats")[1])["writable"]
            for _ in range(10):
                number += 1
                id, code = f"a/{number}", code_of(number)
                item = {"id": id, "code": code, "payload": {"n": number}}
                assert ask(putting, "PUT", "/v1/items", {"items": [item]}) == (200, b'{"items":1}')
                for looking in connections.values():
                    assert found_ids(looking, code) == [id]
            assert ask(putting, "DELETE", f"/v1/items/a%2F{number}")[0] == 200
            assert ask(putting, "DELETE", f"/v1/items/a%2F{number}")[0] == 404
            for looking in connections.values():
                assert found_ids(looking, code) == []
        status, body = ask(putting, "PUT", "/v1/items", {"items": [{"id": "x", "code": "00"}]})
        assert (status, json.loads(body)["error"]["kind"]) == (422, "input")
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=40)
        assert process.returncode == 0, error
        assert "Traceback" not in error
    with stores.open() as store:
        assert len(store) == 1 + 27
        assert store.verify().ok


def test_counters_are_those_of_all_processes(folder):
    with served(folder, "--writable", "--no-token") as (process, call), contextlib.ExitStack() as stack:
        connections = connections_to_all(process, call, stack)
        for connection in connections.values():
            for number in range(5):
                assert found_ids(connection, code_of(number)) == []
            assert ask(connection, "PUT", "/v1/items", {"items": [{"id": 7, "code": code_of(7)}]})[0] == 200
        for connection in connections.values():
            text = ask(connection, "GET", "/metrics")[1].decode()
            counts = dict(re.findall(r'hamtarget_requests_total\{endpoint="([^"]+)",status="200"\} ([0-9.]+)', text))
            assert float(counts["/v1/search"]) == 10
            # Each counts once, whichever process it came to and whichever made the change.
            assert float(counts["/v1/items"]) == 2


def test_a_token_is_asked_for_by_every_process(folder):
    token = "a-token-for-all-of-them"
    with served(folder, "--writable", token=token) as (process, call), contextlib.ExitStack() as stack:
        for connection in connections_to_all(process, call, stack).values():
            change = "PUT", "/v1/items", {"items": [{"id": 5, "code": code_of(5)}]}
            assert ask(connection, *change)[0] == 401
            assert ask(connection, *change, Authorization=f"Bearer {token}")[0] == 200


def test_a_process_that_dies_is_replaced(folder):
    with served(folder, "--writable", "--no-token") as (process, call):
        for turn in range(2):
            before = children(process)
            # First the one that writes, then another.
            os.kill(before[turn], signal.SIGKILL)
            until = time.monotonic() + 60
            while True:
                with contextlib.suppress(OSError):
                    now = children(process)
                    if len(now) == 2 and set(now) != set(before):
                        break
                assert time.monotonic() < until
                time.sleep(0.1)
            id = f"after {turn}"
            status = 0
            while status != 200:
                # Whoever was connected to it is cut off; whoever asks again is answered.
                with contextlib.suppress(OSError):
                    status = call("PUT", "/v1/items", {"items": [{"id": id, "code": code_of(turn)}]}).status
                assert time.monotonic() < until
            hits = call.post("/v1/search", {"code": code_of(turn), "radius": 0}).json["hits"]
            assert [hit["id"] for hit in hits] == [id]
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=40)
        assert process.returncode == 0
        assert error.count("another starts in") == 2
        assert not any(Path(f"/proc/{pid}").exists() for pid in now)


def test_no_process_outlives_its_parent(folder):
    with served(folder) as (process, _):
        pids = children(process)
        process.kill()
        until = time.monotonic() + 40
        while any(Path(f"/proc/{pid}/fd").exists() and b"spawn" in cmdline(pid) for pid in pids):
            assert time.monotonic() < until
            time.sleep(0.1)


def cmdline(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_writes_from_all_sides_are_kept(folder):
    put = []
    with served(folder, "--writable", "--no-token") as (process, call), contextlib.ExitStack() as stack:
        connections = list(connections_to_all(process, call, stack).values())

        def write(side):
            for number in range(60):
                id = 1000 * (side + 1) + number
                assert (
                    ask(connections[side], "PUT", "/v1/items", {"items": [{"id": id, "code": code_of(id)}]})[0] == 200
                )
                put.append(id)

        threads = [threading.Thread(target=write, args=(side,)) for side in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=40)
    with Store.open(folder) as store:
        assert len(put) == 120
        assert all(id in store for id in put)


def new_token_of(path, name):
    token = new_token()
    with editing_tokens(path) as entries:
        entries.append(TokenEntry.of(name, "read", token))
    return f"Bearer {token}"


def test_a_hangup_makes_every_process_read_the_tokens_again(folder, tmp_path):
    path = tmp_path / "tokens.json"
    before = new_token_of(path, "before")
    with served(folder, "--tokens", str(path)) as (process, call), contextlib.ExitStack() as stack:
        pids = children(process)
        connections = connections_to_all(process, call, stack)

        def statuses(token):
            asked = [ask(each, "GET", "/v1/stats", Authorization=token) for each in connections.values()]
            return [status for status, _ in asked]

        # They looked at the file just now, and would look again after a second.
        assert statuses(before) == [200, 200]
        after = new_token_of(path, "after")
        process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 20
        while statuses(after) != [200, 200]:
            assert time.monotonic() < until
        assert statuses(before) == [200, 200]
        # Several at once, and one while the service ends, are no harm.
        for _ in range(5):
            process.send_signal(signal.SIGHUP)
        assert statuses(after) == [200, 200]
        assert children(process) == pids
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGHUP)
        _, error = process.communicate(timeout=40)
    assert (process.returncode, error) == (0, "")


def test_without_tokens_a_hangup_ends_the_service(folder):
    # As it ends a service of one process: its terminal was closed.
    with served(folder) as (process, _):
        process.send_signal(signal.SIGHUP)
        _, error = process.communicate(timeout=40)
    assert (process.returncode, error) == (0, "")


@pytest.mark.parametrize("which", ["writer", "other"])
def test_a_process_that_hangs_keeps_neither_others_nor_the_end_waiting(folder, which):
    with (
        started([sys.executable, "-c", HURRIED, str(folder)]) as (process, call),
        contextlib.ExitStack() as stack,
    ):
        pids = children(process)
        connections = connections_to_all(process, call, stack)
        hung, lives = pids if which == "writer" else reversed(pids)
        os.kill(hung, signal.SIGSTOP)
        assert found_ids(connections[lives], "00" * 8) == [1]
        # Whoever comes now is not left to the one that hangs.
        for _ in range(10):
            assert call("GET", "/healthz").status == 200
        change = "PUT", "/v1/items", {"items": [{"id": 5, "code": code_of(5)}]}
        assert ask(connections[lives], *change)[0] == (504 if which == "writer" else 200)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
        took = time.monotonic() - began
        assert process.returncode == 0
        # Two seconds, one more for the parent; the machine may be slow.
        assert took < 12
        assert not any(b"spawn" in cmdline(pid) for pid in pids)
    with Store.open(folder) as store:
        assert store.verify().ok
