"""Requests that would stop a service, if their work were not bounded: each is refused or shares, and others are served.

Every service here runs in a process of its own, so that its memory and its time can be seen.
"""

import base64
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from hamtarget.store import Store

MIB = 2**20
N_ROWS = 300_000
ONE, OTHER = "127.0.0.1", "127.0.0.2"
_SERVE = """
import json, sys
from hamtarget.serve import ServiceSettings, run
from hamtarget.store import Store
path, settings = sys.argv[1], json.loads(sys.argv[2])
store = Store.open(path, read_only=not settings.get("writable", False))
run(store, ServiceSettings(port=0, **settings), announce=lambda address: print(address, flush=True))
"""


class Running:
    """A service in a process of its own."""

    def __init__(self, path, settings):
        command = [sys.executable, "-c", _SERVE, str(path), json.dumps(settings)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.port = int(self.process.stdout.readline().strip().rstrip("/").rsplit(":", 1)[1])

    @property
    def memory(self):
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    @property
    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def worked(self, seconds):
        """The share of the next seconds in which it works."""
        before = self.cpu_seconds
        time.sleep(seconds)
        return (self.cpu_seconds - before) / seconds

    def wire(self, source=ONE):
        return Wire(self.port, source)


class Wire:
    """A connection to a service, from an address of loopback: each address is a client."""

    def __init__(self, port, source):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, method, path, body=b""):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        self.socket.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    def receive(self):
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._part()
        head, _, body = received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        parts = [body]
        while sum(map(len, parts)) < length:
            parts.append(self._part())
        return int(head[9:12]), json.loads(b"".join(parts))

    def ask(self, method, path, body=b""):
        self.send(method, path, body)
        return self.receive()

    def _part(self):
        # Else the system may wait 40 ms before it confirms the head, and the service before it sends the body.
        self.socket.setsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_QUICKACK", socket.TCP_NODELAY), 1)
        part = self.socket.recv(262_144)
        if not part:
            raise ConnectionResetError("the service closed the connection")
        return part


@contextmanager
def running(path, **settings):
    service = Running(path, settings)
    try:
        yield service
    finally:
        # It need not finish what it was asked for.
        service.process.send_signal(signal.SIGKILL)
        service.process.wait(10)
        service.process.stdout.close()


@pytest.fixture(scope="module")
def codes():
    return np.random.default_rng(0).integers(0, 256, (N_ROWS, 8), dtype=np.uint8)


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory, codes):
    path = tmp_path_factory.mktemp("many") / "store"
    with Store.create(path, n_bits=64, radius=2, durability="os") as store:
        store.put_rows(np.arange(N_ROWS), codes=codes, payloads=[{"n": row} for row in range(N_ROWS)])
    return path


@pytest.fixture(scope="module")
def large_payloads(tmp_path_factory):
    """150 items at one place, with payloads of 2 MB each; and one far away of 12 MB."""
    path = tmp_path_factory.mktemp("large") / "store"
    with Store.create(path, n_bits=64, radius=2, durability="os") as store:
        for row in range(150):
            store.put_rows([row], codes=np.zeros((1, 8), np.uint8), payloads=[{"text": "y" * 2_000_000}])
        store.put_rows([999], codes=np.full((1, 8), 255, np.uint8), payloads=[{"text": "z" * 12_000_000}])
    return path


def heavy(codes, n_queries):
    """A search that looks at every payload, and finds nothing."""
    packed = base64.b64encode(codes[:n_queries].tobytes()).decode()
    return {"codes_base64": packed, "radius": 63, "limit": 10, "filter": {"nowhere": 1}}


def long(codes, n_queries):
    """A search that every payload passes, which takes a second: those in a range are compared in Python."""
    return {**heavy(codes, n_queries), "filter": {"n": {"min": 0}}}


def small_searches(service, codes, *, n=150, seconds=8.0):
    """Seconds of each of some small searches of the other client, one after another."""
    took = []
    late = time.monotonic() + seconds
    with service.wire(OTHER) as wire:
        for row in range(n):
            began = time.perf_counter()
            status, answer = wire.ask("POST", "/v1/search", {"code": codes[row].tobytes().hex(), "limit": 10})
            took.append(time.perf_counter() - began)
            assert (status, answer["hits"][0]["id"]) == (200, row)
            if time.monotonic() > late:
                break
            time.sleep(0.005)
    return took


def large_batch(codes):
    """A search of the same kind as the small ones, for many codes: it takes a while, each query does not."""
    return {"codes_base64": base64.b64encode(codes[:8192].tobytes()).decode(), "limit": 10, "arrays": "base64"}


@pytest.mark.parametrize("kind", ["other", "same"])
def test_heavy_searches_of_one_client_do_not_delay_those_of_another(many_rows, codes, kind):
    with running(many_rows) as service:
        small_searches(service, codes, n=30)
        alone = statistics.median(small_searches(service, codes))
        before = service.memory
        body = heavy(codes, 64) if kind == "other" else large_batch(codes)
        wires = [service.wire(ONE) for _ in range(120)]
        for wire in wires:
            wire.send("POST", "/v1/search/batch", body)
        time.sleep(0.3)
        shared = statistics.median(small_searches(service, codes))
        grown = service.memory - before
        for wire in wires:
            wire.socket.close()
    # About the same on a machine without other work.
    assert shared < 5 * alone + 0.005, f"{1000 * alone:.1f} ms alone, {1000 * shared:.1f} ms beside 120 heavy searches"
    assert grown < 200 * MIB, f"grew by {grown / MIB:.0f} MiB"


def test_the_work_ends_with_the_deadline(many_rows, codes):
    with running(many_rows, deadline=0.6) as service, service.wire() as wire:
        small_searches(service, codes, n=10)
        before = service.memory
        began = time.monotonic()
        wire.send("POST", "/v1/search/batch", long(codes, 8192))
        at_work = service.worked(0.25)
        while_it_works = small_searches(service, codes, n=50, seconds=0.2)
        status, answer = wire.receive()
        assert time.monotonic() - began < 10
        assert (status, answer["error"]["kind"]) == (504, "deadline")
        assert statistics.median(while_it_works) < 0.5
        time.sleep(0.1)
        after = service.worked(1.0)
        grown = service.memory - before
    assert after < 0.3 * at_work, f"worked {at_work:.0%} of the time before the deadline, and {after:.0%} after it"
    assert grown < 200 * MIB, f"grew by {grown / MIB:.0f} MiB"


def test_the_work_ends_when_the_client_goes(many_rows, codes):
    with running(many_rows) as service:
        small_searches(service, codes, n=10)
        with service.wire() as wire:
            wire.send("POST", "/v1/search/batch", long(codes, 8192))
            time.sleep(0.1)
            at_work = service.worked(0.5)
        time.sleep(0.3)
        after = service.worked(1.0)
    assert after < 0.3 * at_work, f"worked {at_work:.0%} of the time for the client, and {after:.0%} when it had gone"


def test_rows_and_answers_have_bounds_that_name_themselves(many_rows, codes):
    with running(many_rows, max_rows=1_000_000, max_found=5000) as service, service.wire() as wire:
        # Of each query at most one hit is so near: a search for ten looks at every row.
        scans = {**heavy(codes, 512), "radius": 8, "filter": None}
        status, answer = wire.ask("POST", "/v1/search/batch", scans)
        assert (status, answer["error"]["kind"]) == (413, "too_much")
        assert (answer["error"]["limit"], answer["error"]["value"]) == ("rows", 1_000_000)
        many = {"code": "00" * 8, "radius": 63, "limit": 6000, "payload": False}
        status, answer = wire.ask("POST", "/v1/search", many)
        assert (status, answer["error"].get("limit")) == (413, "hits"), answer
        assert wire.ask("POST", "/v1/search", {"code": codes[3].tobytes().hex()})[0] == 200


def test_large_payloads_are_added_up_before_they_are_read(large_payloads):
    with running(large_payloads) as service, service.wire() as wire:
        assert wire.ask("GET", "/v1/items/0?kind=integer")[0] == 200
        before = service.memory
        status, answer = wire.ask("POST", "/v1/search", {"code": "00" * 8, "limit": 150})
        assert (status, answer["error"]["kind"], answer["error"]["limit"]) == (413, "too_much", "bytes")
        status, answer = wire.ask("POST", "/v1/search", {"code": "00" * 8, "limit": 150, "payload": False})
        assert (status, len(answer["hits"])) == (200, 150)
        # As many as an answer may hold.
        status, answer = wire.ask("POST", "/v1/search", {"code": "00" * 8, "limit": 12})
        assert (status, [len(hit["payload"]["text"]) for hit in answer["hits"]]) == (200, [2_000_000] * 12)
        grown = service.memory - before
    assert grown < 160 * MIB, f"grew by {grown / MIB:.0f} MiB"


def test_an_item_that_is_larger_than_an_answer_is_refused(large_payloads):
    with running(large_payloads, max_answer_bytes=8 * MIB) as service, service.wire() as wire:
        assert wire.ask("GET", "/v1/items/0?kind=integer")[0] == 200
        before = service.memory
        for path in ("/v1/items/999?kind=integer", "/v1/items/999/image?kind=integer"):
            status, answer = wire.ask("GET", path)
            assert (status, answer["error"]["kind"], answer["error"]["limit"]) == (413, "too_much", "bytes")
        status, answer = wire.ask("POST", "/v1/search", {"id": 999})
        assert (status, answer["error"]["kind"], answer["error"]["limit"]) == (413, "too_much", "bytes")
        assert service.memory - before < 32 * MIB


def test_large_answers_that_nobody_reads_are_counted(large_payloads):
    with running(large_payloads, max_held_bytes=128 * MIB, max_request_bytes=128 * MIB) as service:
        before = service.memory
        wires = [service.wire(f"127.0.0.{2 + number}") for number in range(24)]
        for wire in wires:
            wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            wire.send("POST", "/v1/search", {"code": "00" * 8, "limit": 12})
        most = 0
        for _ in range(30):
            time.sleep(0.1)
            most = max(most, service.memory - before)
        with service.wire() as other:
            assert other.ask("GET", "/v1/items/0?kind=integer")[0] in (200, 429)
            assert other.ask("GET", "/v1/stats")[0] == 200
        statuses = []
        for wire in wires:
            # Those that nothing comes for still wait for their turn.
            wire.socket.settimeout(0.05)
            with suppress(TimeoutError):
                statuses.append(wire.socket.recv(12)[9:12])
            wire.socket.close()
    assert most < 256 * MIB, f"grew by {most / MIB:.0f} MiB"
    assert set(statuses) == {b"200", b"429"}


HUGE = 7 * MIB


def repeated(start, piece, end):
    return start + (piece * (HUGE // len(piece)))[:-1] + end


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/items", repeated(b'{"items":[', b"{},", b"]}")),
        ("/v1/items", repeated(b'{"items":[', b'{"id":1},', b"]}")),
        ("/v1/items", repeated(b'{"items":[{"id":1,"code":"0000000000000000","payload":{"a":[', b"[],", b"]}}]}")),
        ("/v1/search/batch", repeated(b'{"vectors":[', b"[1],", b"]}")),
        ("/v1/search", repeated(b'{"a":[', b"{},", b"]}")),
        ("/v1/search/batch", repeated(b'{"embedding":[', b"[],", b"]}")),
    ],
    ids=["empty items", "short items", "lists in a payload", "short vectors", "not a search", "empty embeddings"],
)
def test_bodies_that_grow_when_they_are_parsed_are_refused_before(tmp_path, path, body):
    Store.create(tmp_path / "store", n_bits=64, radius=2, durability="os").close()
    with (
        running(tmp_path / "store", writable=True, no_token=True) as service,
        service.wire() as wire,
        service.wire(OTHER) as other,
    ):
        other.ask("POST", "/v1/search", {"code": "00" * 8})
        before = service.memory
        wire.send("PUT" if path == "/v1/items" else "POST", path, body)
        time.sleep(0.05)
        began = time.monotonic()
        assert other.ask("POST", "/v1/search", {"code": "00" * 8})[0] == 200
        waited = time.monotonic() - began
        status, answer = wire.receive()
        grown = service.memory - before
    damage = f"another search waited {waited:.2f} s; the service grew by {grown / MIB:.0f} MiB"
    assert waited < 0.5, damage
    assert grown < 64 * MIB, damage
    assert (status, answer["error"]["kind"]) == (413, "too_much")


def test_floods_of_one_client_fill_only_its_own_share(many_rows, codes):
    with running(many_rows, max_waiting_each=4) as service, service.wire(OTHER) as other:
        small_searches(service, codes, n=5)
        wires = [service.wire(ONE) for _ in range(30)]
        for wire in wires:
            wire.send("POST", "/v1/search/batch", long(codes, 256))
        time.sleep(0.5)
        assert other.ask("POST", "/v1/search", {"code": codes[7].tobytes().hex()})[0] == 200
        refused = []
        for wire in wires:
            wire.socket.settimeout(0.05)
            with suppress(TimeoutError):
                refused.append(wire.receive())
            wire.socket.close()
    assert len(refused) >= 20
    assert {(status, answer["error"]["kind"]) for status, answer in refused} == {(429, "too_busy")}
