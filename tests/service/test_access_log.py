"""The access log: a line for each request, with what it took and who asked, and nothing that is secret."""

import io
import json
import logging
import os
import threading
import time

import numpy as np
import pytest
from services import N_BITS, service

from hamtarget.errors import FileError
from hamtarget.serve.access.access_log import AccessLog, request_id
from hamtarget.serve.access.request_facts import RequestFacts
from hamtarget.serve.access.tokens import TokenEntry, editing_tokens
from hamtarget.store import Store

KEYS = "time request client method endpoint status error rows hits ms bytes_in bytes_out".split()
TOKEN = "shop-token-that-nobody-may-see"


def codes_store(folder):
    store = Store.create(folder, n_bits=N_BITS, radius=2, durability="os")
    store.put_rows(["secret-id", 2, 3], codes=np.zeros((3, 8), np.uint8), payloads=[{"secret": "payload"}] * 3)
    return store


def lines(path, n):
    """Return the lines of a log, once there are `n`: a line is written after its answer."""
    end = time.monotonic() + 10
    while len(found := path.read_text().splitlines()) < n:
        assert time.monotonic() < end, found
        time.sleep(0.01)
    return [json.loads(line) for line in found]


def test_each_request_has_a_line_of_what_it_took(tmp_path):
    log = tmp_path / "access.log"
    tokens = tmp_path / "tokens.json"
    with editing_tokens(tokens) as entries:
        entries.append(TokenEntry.of("shop", "write", TOKEN))
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with service(codes_store(tmp_path / "store"), writable=True, tokens_file=tokens, access_log=str(log)) as call:
        body = {"code": "00" * 8, "radius": 1}
        found = call("POST", "/v1/search", body, headers)
        call("POST", "/v1/search/batch", {"codes": ["00" * 8] * 4, "radius": 1}, headers)
        call("GET", "/v1/items/secret-id", headers={**headers, "X-Request-Id": "from-the-shop.7"})
        call("GET", "/v1/items/secret-id", headers={**headers, "X-Request-Id": 'a"b\\n{}'})
        call("GET", "/v1/items/secret-id")
        call("GET", "/secret-path?secret=query", headers=headers)
        call("POST", "/v1/search", {"code": "secret-code"}, headers)
        call("DELETE", "/v1/items/secret-id", headers=headers)
        call("GET", "/healthz")
        written = lines(log, 9)
    assert all(list(line) == KEYS for line in written)
    search, batch, named, odd, refused, missing, wrong, deleted, health = written
    assert (search["client"], search["endpoint"], search["status"]) == ("shop", "/v1/search", 200)
    assert (search["rows"], search["hits"]) == (found.json["cost"]["candidates"], 3)
    assert search["rows"] >= 3
    assert search["bytes_in"] == len(json.dumps(body))
    assert search["bytes_out"] == len(found.body)
    assert search["ms"] > 0
    assert found.headers["X-Request-Id"] == search["request"]
    assert (batch["endpoint"], batch["hits"]) == ("/v1/search/batch", 12)
    assert named["request"] == "from-the-shop.7"
    assert named["endpoint"] == "/v1/items/{id}"
    assert odd["request"] not in ("", named["request"])
    assert (refused["status"], refused["error"], refused["client"]) == (401, "token", "127.0.0.1")
    assert (missing["status"], missing["endpoint"], missing["error"]) == (404, "other", "not_found")
    assert (wrong["status"], wrong["error"]) == (422, "input")
    assert (deleted["method"], deleted["status"]) == ("DELETE", 200)
    assert (health["client"], health["endpoint"], health["error"]) == ("127.0.0.1", "/healthz", None)
    text = log.read_text()
    for secret in (TOKEN, "secret", "00" * 8, "payload"):
        assert secret not in text


def test_a_client_writes_no_lines_of_its_own(tmp_path):
    log = tmp_path / "access.log"
    with service(codes_store(tmp_path / "store"), access_log=str(log)) as call:
        call.raw(
            b"BREW/**/ /x%0a%22status%22 HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: "
            + b"a" * 5000
            + b"\r\nConnection: close\r\n\r\n"
        )
        call.raw(b"BREW /%0a{} HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Request-Id: \x1b[31m\r\nConnection: close\r\n\r\n")
        call("GET", "/healthz")
        written = lines(log, 1)
        while written[-1]["endpoint"] != "/healthz":
            written = lines(log, len(written) + 1)
    assert {line["method"] for line in written} <= {"other", "GET"}
    assert max(map(len, log.read_text().splitlines())) < 1000


@pytest.mark.parametrize("given", [None, b"", b"a b", b"a\n", b"x" * 65, b"\xff", b'"', b"../x"])
def test_odd_request_ids_are_replaced(given):
    made = request_id(given)
    assert len(made) == 32
    assert made != request_id(given)


def test_a_moved_log_is_opened_anew(tmp_path):
    log = tmp_path / "access.log"
    with service(codes_store(tmp_path / "store"), access_log=str(log)) as call:
        call("GET", "/healthz")
        lines(log, 1)
        log.rename(tmp_path / "access.log.1")
        call("GET", "/readyz")
        wait_until(log.exists)
        assert [line["endpoint"] for line in lines(log, 1)] == ["/readyz"]
    assert len((tmp_path / "access.log.1").read_text().splitlines()) == 1


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_log_that_cannot_be_written_costs_no_request(tmp_path, caplog):
    if not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    with service(codes_store(tmp_path / "store"), access_log="/dev/full") as call:
        for _ in range(5):
            assert call("GET", "/healthz").status == 200
    told = [record for record in caplog.records if "cannot be written" in record.getMessage()]
    # Said once, not for each request.
    assert len(told) == 1


def test_a_log_in_no_folder_ends_the_start(tmp_path):
    log = str(tmp_path / "nothing" / "access.log")
    with pytest.raises(FileError, match="cannot be written"), service(codes_store(tmp_path / "store"), access_log=log):
        pass


def test_several_services_of_one_process_have_their_own_files(tmp_path):
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    with (
        service(codes_store(tmp_path / "a"), access_log=str(logs[0])) as one,
        service(codes_store(tmp_path / "b"), access_log=str(logs[1])) as two,
    ):
        one("GET", "/healthz")
        two("GET", "/readyz")
        assert [line["endpoint"] for line in lines(logs[0], 1)] == ["/healthz"]
        assert [line["endpoint"] for line in lines(logs[1], 1)] == ["/readyz"]


def test_lines_of_threads_do_not_mix(tmp_path):
    log = AccessLog(str(tmp_path / "access.log"))
    log.open()

    def write():
        for _ in range(100):
            log.write(
                RequestFacts("id", "client"),
                method="GET",
                endpoint="/v1/stats",
                status=200,
                seconds=0.1,
                bytes_in=0,
                bytes_out=1,
            )

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    log.close()
    written = [json.loads(line) for line in (tmp_path / "access.log").read_text().splitlines()]
    assert len(written) == 800
    assert logging.getLogger("hamtarget.access").handlers == []


def test_the_standard_output_can_be_the_log(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.StringIO())
    import sys

    log = AccessLog("-")
    log.open()
    log.write(RequestFacts("id", "client"), method="X", endpoint="/", status=200, seconds=0, bytes_in=0, bytes_out=0)
    log.close()
    assert json.loads(sys.stdout.getvalue())["method"] == "other"


def test_a_failure_is_logged_without_the_path(tmp_path, caplog, monkeypatch):
    store = codes_store(tmp_path / "store")
    with service(store) as call:
        monkeypatch.setattr(type(store), "get", lambda *_, **__: 1 / 0)
        answer = call("GET", "/v1/items/secret-id")
        assert answer.status == 500
        wait_until(lambda: "ZeroDivisionError" in caplog.text)
        assert answer.headers["X-Request-Id"] in caplog.text
        assert "secret-id" not in caplog.text


def test_addresses_are_those_of_the_connection_unless_a_proxy_is_trusted(tmp_path):
    def clients(**settings):
        log = tmp_path / f"{len(settings)}.log"
        folder = tmp_path / f"store{len(settings)}"
        with service(codes_store(folder), access_log=str(log), **settings) as call:
            call("GET", "/healthz", headers={"X-Forwarded-For": "203.0.113.9, 198.51.100.7"})
            call("GET", "/healthz", headers={"X-Forwarded-For": "<script>"})
            call("GET", "/healthz")
            return [line["client"] for line in lines(log, 3)]

    assert clients() == ["127.0.0.1"] * 3
    # The last address that the proxy itself has seen; what stands before it, anybody can write.
    assert clients(trusted_proxies=("127.0.0.0/8",))[0] == "198.51.100.7"
