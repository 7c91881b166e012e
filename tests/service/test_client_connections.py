"""Clients keep connections, try again only where that is safe, and end in time, whatever the other side does."""

import asyncio
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from services import N_BITS, service

from hamtarget.client import AsyncClient, Client
from hamtarget.errors import BusyError, ServiceError
from hamtarget.items import Item
from hamtarget.store import Store

ITEM = Item("a", code=bytes(8))


def answer(body, status="200 OK", *headers):
    content = json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(content)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


PUT_DONE = answer({"items": 1})
STATS = answer({"items": 7})
BUSY = answer({"error": {"kind": "busy", "message": "too much to do"}}, "503 Service Unavailable", "Retry-After: 0")
MISSING = answer({"error": {"kind": "not_found", "message": "no item"}}, "404 Not Found")


class Scripted:
    """A server that treats each request as it is told: bytes are an answer, a function gets the connection.

    Attributes:
        requests: methods of all requests.
        n_connections: connections that were opened.
        most_open: most of them at a time.
    """

    def __init__(self, *script, context=None):
        self._script = list(script)
        self._context = context
        self._lock = threading.Lock()
        self._n_open = 0
        self.requests = []
        self.n_connections = self.most_open = 0
        self.ended = threading.Event()

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        self.address = f"http{'s' if self._context else ''}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        # Closing alone does not wake a thread that waits for connections.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection):
        with self._lock:
            self.n_connections += 1
            self._n_open += 1
            self.most_open = max(self.most_open, self._n_open)
        try:
            if self._context:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as file:
                while line := file.readline():
                    length = 0
                    while (header := file.readline()) != b"\r\n":
                        if not header:
                            return  # The client has gone in the middle of a request.
                        if header.lower().startswith(b"content-length:"):
                            length = int(header.split(b":")[1])
                    file.read(length)
                    with self._lock:
                        self.requests.append(line.split()[0].decode())
                        # The last of the script holds for all that follow.
                        act = self._script.pop(0) if len(self._script) > 1 else self._script[0]
                    if isinstance(act, bytes):
                        connection.sendall(act)
                    elif act(connection) == "close":
                        connection.shutdown(socket.SHUT_RDWR)
                        return
        except OSError:
            pass
        finally:
            with self._lock:
                self._n_open -= 1


def lose(connection):
    """Act on the request, and die before the answer."""
    return "close"


def answer_and_close(body):
    """Answer, and close the connection without having said so."""

    def act(connection):
        connection.sendall(body)
        return "close"

    return act


def drip(connection):
    """Send an answer without end, slowly."""
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    for number in range(1000):
        connection.sendall(b"X-%d: y\r\n" % number)
        time.sleep(0.05)


def keep_silent(connection):
    """Read until the other side goes away."""
    while connection.recv(1000):
        pass
    return "close"


def test_one_connection_serves_many_calls(kind):
    with Scripted(STATS) as server, kind(server.address) as client:
        assert [client.stats()["items"] for _ in range(20)] == [7] * 20
    assert server.n_connections == 1


def test_threads_share_a_pool(rows, read_only):
    codes, _ = rows
    with Client(read_only.address, connections=4) as client, ThreadPoolExecutor(64) as pool:
        expected = [client.search(code=code, radius=4) for code in codes[:64]]
        assert list(pool.map(lambda code: client.search(code=code, radius=4), codes[:64])) == expected
    with Scripted(STATS) as server, Client(server.address, connections=4) as client, ThreadPoolExecutor(64) as pool:
        assert len(list(pool.map(lambda _: client.stats(), range(64)))) == 64
    assert server.most_open <= 4
    assert len(server.requests) == 64


def test_tasks_share_a_pool(rows, read_only):
    codes, _ = rows

    async def ask(address):
        async with AsyncClient(address, connections=4) as client:
            return await asyncio.gather(*(client.search(code=code, radius=4) for code in codes[:64]))

    async def count(address):
        async with AsyncClient(address, connections=4) as client:
            await asyncio.gather(*(client.stats() for _ in range(64)))

    with Client(read_only.address) as client:
        assert asyncio.run(ask(read_only.address)) == [client.search(code=code, radius=4) for code in codes[:64]]
    with Scripted(STATS) as server:
        asyncio.run(count(server.address))
    assert server.most_open <= 4
    assert len(server.requests) == 64


def test_a_change_whose_answer_was_lost_is_not_sent_again(kind):
    with Scripted(lose, PUT_DONE) as server, kind(server.address) as client:
        with pytest.raises(ServiceError, match="may have been made or not") as told:
            client.put([ITEM])
        assert (told.value.kind, told.value.status) == ("lost", 0)
        assert server.requests == ["PUT"]
        assert client.put([ITEM]) == 1


def test_a_change_is_sent_again_if_the_caller_says_so(kind):
    with Scripted(lose, PUT_DONE) as server, kind(server.address, retry_changes=True) as client:
        assert client.put([ITEM]) == 1
        assert server.requests == ["PUT"] * 2
    # What the first delete has deleted, the second does not find.
    with Scripted(lose, MISSING) as server, kind(server.address, retry_changes=True) as client:
        client.delete("a")
        assert server.requests == ["DELETE"] * 2
        with pytest.raises(ServiceError, match="no item"):
            client.delete("a")


def test_a_call_that_reads_is_tried_again(kind):
    with Scripted(lose, lose, STATS) as server, kind(server.address) as client:
        assert client.stats() == {"items": 7}
        assert len(server.requests) == 3
    with Scripted(lose) as server, kind(server.address) as client:
        with pytest.raises(ServiceError, match="does not answer") as told:
            client.stats()
        assert told.value.kind == "unreachable"
        assert len(server.requests) == 3
    with Scripted(lose) as server, kind(server.address, retries=0) as client:
        with pytest.raises(ServiceError):
            client.stats()
        assert not client.is_ready()
        assert len(server.requests) == 2


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
def test_a_busy_service_is_asked_again_when_it_says_so(kind, status):
    busy = BUSY.replace(b"503 Service Unavailable", status.encode())
    with Scripted(busy, busy, PUT_DONE) as server, kind(server.address) as client:
        assert client.put([ITEM]) == 1
        assert len(server.requests) == 3
    with Scripted(busy) as server, kind(server.address, retries=1) as client:
        with pytest.raises(BusyError, match="too much to do") as told:
            client.put([ITEM])
        assert (told.value.status, told.value.kind, told.value.retry_after) == (int(status[:3]), "busy", 0)
        assert len(server.requests) == 2
    # It asks for more time than there is: that is told at once.
    long = busy.replace(b"Retry-After: 0", b"Retry-After: 100")
    with Scripted(long) as server, kind(server.address, timeout=50) as client:
        with pytest.raises(BusyError) as told:
            client.put([ITEM])
        assert told.value.retry_after == 100
    # Without that header, nothing says that the change was not made.
    silent = busy.replace(b"Retry-After: 0\r\n", b"")
    with Scripted(silent) as server, kind(server.address) as client:
        with pytest.raises(BusyError):
            client.put([ITEM])
        assert len(server.requests) == 1


def test_a_service_that_is_just_starting_is_waited_for(kind):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    ready = threading.Event()

    def serve():
        time.sleep(0.3)
        with socket.create_server(("127.0.0.1", port)) as listener:
            ready.set()
            connection, _ = listener.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(PUT_DONE)

    threading.Thread(target=serve, daemon=True).start()
    with kind(f"http://127.0.0.1:{port}", retries=6) as client:
        assert client.put([ITEM]) == 1
    assert ready.is_set()


def test_an_idle_connection_that_was_closed_is_not_used(kind):
    with Scripted(answer_and_close(PUT_DONE)) as server, kind(server.address, retries=0) as client:
        for _ in range(5):
            assert client.put([ITEM]) == 1
            time.sleep(0.05)
    assert server.n_connections == 5


@pytest.mark.parametrize("act", [drip, keep_silent])
def test_a_call_ends_in_time(kind, act):
    with Scripted(act) as server, kind(server.address, timeout=0.4) as client:
        began = time.monotonic()
        with pytest.raises(ServiceError, match="within 0.4 s") as told:
            client.stats()
        assert time.monotonic() - began < 4
        assert (told.value.kind, told.value.status) == ("timeout", 0)
        with pytest.raises(ServiceError, match="may have been made or not"):
            client.put([ITEM])


def test_calls_have_their_own_deadlines():
    with Scripted(keep_silent, STATS) as server, Client(server.address) as client:
        with pytest.raises(ServiceError, match="within 0.2 s"):
            client.within(0.2).stats()
        assert client.stats() == {"items": 7}

    async def ask(address):
        async with AsyncClient(address) as client:
            with pytest.raises(ServiceError, match="within 0.2 s"):
                await client.within(0.2).stats()
            return await client.stats()

    with Scripted(keep_silent, STATS) as server:
        assert asyncio.run(ask(server.address)) == {"items": 7}


def test_a_full_pool_is_waited_for_only_so_long(kind):
    with Scripted(keep_silent) as server, Client(server.address, connections=1, timeout=1) as client:
        first = threading.Thread(target=lambda: pytest.raises(ServiceError, client.stats))
        first.start()
        while not server.requests:
            time.sleep(0.01)
        with pytest.raises(ServiceError, match="within 0.2 s"):
            client.within(0.2).stats()
        first.join()
    assert len(server.requests) == 1


def test_a_cancelled_call_closes_its_connection():
    gone = threading.Event()

    def wait(connection):
        keep_silent(connection)
        gone.set()
        return "close"

    async def ask(server):
        async with AsyncClient(server.address) as client:
            task = asyncio.create_task(client.stats())
            while not server.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(gone.wait, 10)
            return await client.stats()

    with Scripted(wait, STATS) as server:
        assert asyncio.run(ask(server)) == {"items": 7}


@pytest.mark.parametrize(
    "content",
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\n{"ite\r\n6\r\nms":7}\r\n0\r\nEnd: 1\r\n\r\n',
        b"HTTP/1.1 100 Continue\r\n\r\n" + STATS,
        b'HTTP/1.0 200 OK\r\n\r\n{"items":7}',
        b'HTTP/1.1 200\r\nConnection: close\r\nContent-Length: 11\r\n\r\n{"items":7}',
    ],
    ids=["chunks", "continue", "until the end", "without a reason"],
)
def test_answers_in_every_form(kind, content):
    with Scripted(answer_and_close(content)) as server, kind(server.address) as client:
        assert [client.stats() for _ in range(3)] == [{"items": 7}] * 3


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"SSH-2.0-OpenSSH\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{bad}",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_other_answers_are_errors_of_the_service(kind, content):
    with Scripted(answer_and_close(content)) as server, kind(server.address, timeout=5) as client:
        with pytest.raises(ServiceError) as told:
            client.stats()
        assert told.value.kind in ("unreachable", "unreadable", "unknown")


@pytest.fixture
def certificate(tmp_path):
    """A certificate of 127.0.0.1 that nobody knows, with its key."""
    if not shutil.which("openssl"):
        pytest.skip("NO openssl: TLS is not tested")
    key, file = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(file)]
    subprocess.run(made, check=True, capture_output=True)
    return key, file


def test_encrypted_connections_know_who_answers(kind, certificate):
    key, file = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key)
    with Scripted(STATS, context=context) as server:
        with kind(server.address, ca_file=file) as client:
            assert [client.stats() for _ in range(3)] == [{"items": 7}] * 3
        assert server.n_connections == 1
        with kind(server.address) as client:
            with pytest.raises(ServiceError, match="certificate") as told:
                client.put([ITEM])
            assert told.value.kind == "tls"
        assert server.requests == ["GET"] * 3
    with Scripted(STATS) as plain, kind(plain.address.replace("http", "https"), timeout=0.5) as client:
        with pytest.raises(ServiceError):
            client.stats()


def test_refusals_have_their_kind(tmp_path, kind):
    Store.create(tmp_path / "store", n_bits=N_BITS, radius=2, durability="os").close()
    store = Store.open(tmp_path / "store", read_only=True)
    with service(store, token="x" * 16, max_body_bytes=100_000) as call:
        with kind(call.address, token="x" * 16) as client:
            with pytest.raises(ServiceError) as told:
                client.search_batch(codes=[bytes(8)] * 20_000)
            assert (told.value.status, told.value.kind) == (413, "too_large")
            with pytest.raises(ServiceError) as told:
                client.put([ITEM])
            assert told.value.status == 403
            assert not isinstance(told.value, BusyError)
        with kind(call.address) as client, pytest.raises(ServiceError) as told:
            client.stats()
        assert told.value.status == 401
