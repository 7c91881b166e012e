"""Tokens: who may do what, how the file of tokens is kept, and how a running service follows it."""

import hashlib
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from services import N_BITS, Caller, service
from typer.testing import CliRunner

from hamtarget.cli.main import app
from hamtarget.errors import CorruptFileError, FileError, InputError, UnsupportedFileError
from hamtarget.serve import ServiceSettings
from hamtarget.serve.access import token_ring as token_ring_module
from hamtarget.serve.access import tokens as tokens_module
from hamtarget.serve.access.roles import check_roles, needed_role
from hamtarget.serve.access.token_ring import TokenRing
from hamtarget.serve.access.tokens import TokenEntry, editing_tokens, new_token, read_tokens, remove_tokens
from hamtarget.store import Store

START = "from hamtarget.cli import start; start()"
ITEM = {"items": [{"id": "new", "code": "00" * 8}]}
SEARCH = {"code": "00" * 8}


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def add(path, name, role="read", *, expires=None):
    """Add a token as the command does, and return it."""
    token = new_token()
    with editing_tokens(path) as entries:
        entries.append(TokenEntry.of(name, role, token, expires=expires))
    return token


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens.json"


@pytest.fixture
def fast(monkeypatch):
    """Services look at the file at each request."""
    monkeypatch.setattr(token_ring_module, "_LOOK_SECONDS", 0.0)


def codes_store(folder):
    store = Store.create(folder, n_bits=N_BITS, radius=2, durability="os")
    store.put_rows(["kept"], codes=np.zeros((1, 8), np.uint8))
    return store


def wait_for(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


# What each role may do.


def test_roles_allow_what_they_say(tmp_path, path):
    held = {role: add(path, f"{role}er", role) for role in ("read", "write", "admin")}
    reads = [
        ("POST", "/v1/search", SEARCH),
        ("POST", "/v1/nearest", SEARCH),
        ("POST", "/v1/probe", SEARCH),
        ("POST", "/v1/search/batch", {"codes": ["00" * 8]}),
        ("POST", "/v1/match", {"codes": ["00" * 8]}),
        ("GET", "/v1/items/kept", None),
        ("GET", "/v1/stats", None),
        ("GET", "/openapi.json", None),
        ("GET", "/metrics", None),
    ]
    writes = [("PUT", "/v1/items", ITEM), ("DELETE", "/v1/items/new", None)]
    with service(codes_store(tmp_path / "store"), writable=True, tokens_file=path) as call:
        for method, place, body in reads + writes:
            assert call(method, place, body).status == 401
            assert call(method, place, body, bearer(new_token())).status == 401
        for role, token in held.items():
            for method, place, body in reads:
                assert call(method, place, body, bearer(token)).status == 200, (role, place)
        for method, place, body in writes:
            answer = call(method, place, body, bearer(held["read"]))
            assert (answer.status, answer.kind, answer.json["error"]["role"]) == (403, "role", "write")
        for role in ("write", "admin"):
            for method, place, body in writes:
                assert call(method, place, body, bearer(held[role])).status == 200
        # A path that is none is not found, whatever the role; nothing is told of it to whoever has no token.
        assert call("POST", "/v1/serch", SEARCH, bearer(held["read"])).status == 404
        assert call("POST", "/v1/serch", SEARCH).status == 401
        assert call("GET", "/v1/items/kept").status == 401


@pytest.mark.parametrize(
    "place",
    ["/v1/items/kept", "/v1/items/%6bept", "/v1/items/kept?kind=string", "/v1/items//kept", "/v1/./items/kept"]
    + ["/v1/%69tems/kept", "/v1/items%2Fkept", "/v1/items/", "/v1/items%2F", "//v1/items/kept"],
)
@pytest.mark.parametrize("method", ["DELETE", "delete", "PUT", "PATCH", "POST"])
def test_a_reader_finds_no_other_way_to_change_things(place, method, reader):
    call, token = reader
    answer = call.raw(
        f"{method} {place} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        "X-HTTP-Method-Override: DELETE\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()
    )
    # Or it is sent to the path that it means, which refuses it.
    assert int(answer[9:12]) in (307, 400, 403, 404, 405)
    assert call("GET", "/v1/items/kept", headers=bearer(token)).status == 200


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")
    token = add(folder / "tokens.json", "reader")
    with service(codes_store(folder / "store"), writable=True, tokens_file=folder / "tokens.json") as call:
        yield call, token


def test_an_endpoint_without_a_role_does_not_start():
    class Route:
        methods = {"POST"}
        path = "/v1/shutdown"

    with pytest.raises(TypeError, match="POST /v1/shutdown has no role"):
        check_roles([Route])
    assert needed_role("DELETE", "/v1/items/a/b") == "write"


def test_the_single_token_allows_everything(tmp_path):
    with service(codes_store(tmp_path / "store"), writable=True, token="a-token-of-some-length") as call:
        assert call("PUT", "/v1/items", ITEM).status == 401
        assert call("PUT", "/v1/items", ITEM, bearer("a-token-of-some-length")).status == 200


def test_a_single_token_and_a_file_go_together(tmp_path, path):
    token = add(path, "reader")
    with service(codes_store(tmp_path / "store"), token="a-token-of-some-length", tokens_file=path) as call:
        assert call("GET", "/v1/stats", headers=bearer("a-token-of-some-length")).status == 200
        assert call("GET", "/v1/stats", headers=bearer(token)).status == 200


# Nobody writes without having been let in on purpose.


def test_a_writable_service_needs_a_token_or_a_word():
    with pytest.raises(InputError, match=r"no token.*--tokens.*--no-token"):
        ServiceSettings(writable=True)
    with pytest.raises(InputError, match="no token"):
        ServiceSettings(host="0.0.0.0", no_token=True)
    with pytest.raises(InputError, match="leave out one"):
        ServiceSettings(no_token=True, token="a-token-of-some-length")
    assert "can change the store" in ServiceSettings(writable=True, no_token=True).cautions[0]
    assert ServiceSettings().cautions == []


def test_a_service_that_is_not_writable_takes_no_changes_whatever_the_store_allows(tmp_path):
    store = codes_store(tmp_path / "store")
    assert not store.read_only
    with service(store) as call:
        for method, place, body in (("PUT", "/v1/items", ITEM), ("DELETE", "/v1/items/kept", None)):
            answer = call(method, place, body)
            assert (answer.status, answer.kind) == (403, "read_only")
        assert call("GET", "/v1/items/kept").status == 200


def test_the_command_says_both_ways(tmp_path, monkeypatch):
    monkeypatch.delenv("HAMTARGET_TOKEN", raising=False)
    codes_store(tmp_path / "store").close()
    told = CliRunner().invoke(app, ["serve", str(tmp_path / "store"), "--writable"])
    assert told.exit_code == 2
    assert "--tokens" in told.output
    assert "--no-token" in told.output
    assert told.output.count("\n") == 1


# The file.


def test_the_file_keeps_no_token(path):
    token = add(path, "shop", "write", expires=datetime.now(UTC) + timedelta(days=1))
    text = path.read_text()
    assert token not in text
    (kept,) = json.loads(text)["tokens"]
    # What the documentation says of the hash.
    assert kept["sha256"] == hashlib.sha256(bytes.fromhex(kept["salt"]) + token.encode()).hexdigest()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (entry,) = read_tokens(path)
    assert (entry.name, entry.role) == ("shop", "write")
    assert entry.is_of(token.encode())
    assert kept["sha256"] not in repr(entry)
    assert len(new_token()) >= 43


def test_editing_keeps_the_group_of_the_file_and_the_lock_lets_one_in_at_a_time(path):
    add(path, "first")
    path.chmod(0o640)
    threads = [threading.Thread(target=add, args=(path, f"n{number}")) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(entry.name for entry in read_tokens(path)) == ["first", *(f"n{number}" for number in range(8))]
    assert sorted(each.name for each in path.parent.iterdir()) == ["tokens.json"]


def test_an_error_while_editing_leaves_the_file(path):
    add(path, "shop")
    before = path.read_bytes()
    with pytest.raises(InputError, match="no token of this name"), editing_tokens(path) as entries:
        remove_tokens([entries.pop()], "other")
    with pytest.raises(InputError, match="at most 256"), editing_tokens(path) as entries:
        entries.extend(entries * 300)
    assert path.read_bytes() == before


def changed(**fields):
    entry = {"name": "shop", "role": "read", "salt": "0f" * 16, "sha256": "5e" * 32}
    entry.update(fields)
    return {"hamtarget_tokens": 1, "tokens": [{key: each for key, each in entry.items() if each is not None}]}


SECRET = "5e" * 31
DAMAGED = [
    b"",
    b"{",
    b"[" * 100_000,
    b"\xff\xfe",
    b"null",
    b"[]",
    b"x" * (2**20 + 1),
    {},
    {"tokens": []},
    {"hamtarget_tokens": 1},
    {"hamtarget_tokens": 1, "tokens": {}},
    {"hamtarget_tokens": 1, "tokens": [], "more": 1},
    {"hamtarget_tokens": 1, "tokens": [None]},
    {"hamtarget_tokens": 1, "tokens": changed()["tokens"] * 257},
    changed(name=None),
    changed(name=""),
    changed(name="a b"),
    changed(name="x\n"),
    changed(name="127.0.0.1"),
    changed(name="n" * 65),
    changed(role="root"),
    changed(role=["admin"]),
    changed(salt=""),
    changed(salt="0f" * 15),
    changed(sha256=SECRET),
    changed(sha256=f"{SECRET}zz"),
    changed(sha256=f"{SECRET[:-2]}  5e"),
    changed(sha256=5),
    changed(expires="tomorrow"),
    changed(expires="2027-01-31T12:00:00"),
    changed(expires=5),
    changed(token="in-the-clear"),
]


@pytest.mark.parametrize("content", DAMAGED, ids=range(len(DAMAGED)))
def test_a_damaged_file_is_refused_without_showing_hashes(path, content):
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with pytest.raises(CorruptFileError) as caught:
        read_tokens(path)
    said = str(caught.value)
    assert str(path) in said
    assert "5e5e" not in said
    assert "0f0f" not in said
    assert "in-the-clear" not in said
    assert len(said) < 400


def test_other_versions_and_files_that_others_may_write_are_refused(path):
    path.write_text(json.dumps({"hamtarget_tokens": 2, "tokens": []}))
    with pytest.raises(UnsupportedFileError, match="version 1"):
        read_tokens(path)
    path.write_text(json.dumps(changed()))
    path.chmod(0o666)
    with pytest.raises(FileError, match="chmod 600"):
        read_tokens(path)
    with pytest.raises(FileError, match="cannot be read"):
        read_tokens(path.parent / "nothing")
    with pytest.raises(FileError, match="no ordinary file"):
        read_tokens(path.parent)
    os.mkfifo(path.parent / "pipe")
    with pytest.raises(FileError, match="no ordinary file"):
        read_tokens(path.parent / "pipe")


# How tokens are compared.


def test_every_entry_is_compared_whatever_was_sent(path, monkeypatch):
    tokens = [add(path, f"n{number}") for number in range(5)]
    ring = TokenRing(path=path, token="a-token-of-some-length")
    compared = []
    monkeypatch.setattr(tokens_module, "hmac", WatchedComparison(compared))
    for sent in (tokens[0], tokens[-1], "a-token-of-some-length", "", tokens[0][:-1], "x" * 30_000):
        compared.clear()
        ring.find(f"Bearer {sent}".encode())
        assert len(compared) == 6
        # What is compared is a hash: no part of a token that was guessed right makes it end later.
        assert all(len(left) == len(right) == 32 for left, right in compared)
    assert ring.find(f"Bearer {tokens[3]}".encode()).name == "n3"
    assert ring.find(f"Basic {tokens[3]}".encode()) is None
    assert ring.find(b"") is None


class WatchedComparison:
    def __init__(self, compared):
        self._compared = compared

    def compare_digest(self, left, right):
        self._compared.append((left, right))
        return left == right


def test_expired_tokens_are_refused(tmp_path, path):
    old = add(path, "old", expires=datetime.now(UTC) - timedelta(seconds=1))
    new = add(path, "new", expires=datetime.now(UTC) + timedelta(days=1))
    with service(codes_store(tmp_path / "store"), tokens_file=path) as call:
        assert call("GET", "/v1/stats", headers=bearer(old)).status == 401
        assert call("GET", "/v1/stats", headers=bearer(new)).status == 200


# A running service follows the file.


def test_a_changed_file_counts_without_a_restart(tmp_path, path, fast):
    first = add(path, "shop")
    with service(codes_store(tmp_path / "store"), tokens_file=path) as call:

        def status(token):
            return call("GET", "/v1/stats", headers=bearer(token)).status

        assert status(first) == 200
        # Both are valid while the new one replaces the old one.
        second = add(path, "shop")
        assert (status(first), status(second)) == (200, 200)
        with editing_tokens(path) as entries:
            assert remove_tokens(entries, "shop", keep_newest=True) == 1
        assert (status(first), status(second)) == (401, 200)
        # All tokens can go; nobody gets in then.
        with editing_tokens(path) as entries:
            remove_tokens(entries, "shop")
        assert (status(first), status(second)) == (401, 401)
        assert call("GET", "/v1/stats").status == 401


@pytest.mark.parametrize("damage", ["broken", "gone", "others may write"])
def test_a_damaged_new_file_keeps_the_tokens_of_before(tmp_path, path, fast, damage, caplog):
    token = add(path, "shop")
    with service(codes_store(tmp_path / "store"), tokens_file=path) as call:
        assert call("GET", "/v1/stats", headers=bearer(token)).status == 200
        if damage == "broken":
            path.write_bytes(path.read_bytes()[:-20])
        elif damage == "gone":
            path.unlink()
        else:
            path.chmod(0o606)
        for _ in range(3):
            assert call("GET", "/v1/stats", headers=bearer(token)).status == 200
        assert call("GET", "/v1/stats", headers=bearer(new_token())).status == 401
        # Once for each change of the file, not for each request.
        told = [record for record in caplog.records if "tokens of before stay" in record.getMessage()]
        assert len(told) == 1
        assert token not in caplog.text
        path.unlink(missing_ok=True)
        other = add(path, "other")
        assert call("GET", "/v1/stats", headers=bearer(other)).status == 200
        assert call("GET", "/v1/stats", headers=bearer(token)).status == 401


def test_the_file_is_looked_at_once_a_second(path, monkeypatch):
    add(path, "shop")
    now = [0.0]
    ring = TokenRing(path=path, clock=lambda: now[0])
    looks = []
    monkeypatch.setattr(token_ring_module, "_version", lambda path: looks.append(path) or ())
    monkeypatch.setattr(ring, "reload", lambda: None)
    for now[0] in np.arange(0, 3, 0.01):
        ring.find(b"Bearer x")
    assert len(looks) == 2


def test_a_service_does_not_start_with_a_damaged_file(tmp_path, path):
    path.write_text("{")
    with pytest.raises(CorruptFileError), service(codes_store(tmp_path / "store"), tokens_file=path):
        pass


@pytest.mark.slow
def test_the_command_makes_rotates_and_removes_tokens_of_a_running_service(tmp_path, path):
    def command(*arguments):
        told = CliRunner().invoke(app, ["token", *arguments])
        assert told.exit_code == 0, told.output
        return told.stdout.strip()

    token = command("add", str(path), "shop", "--role", "write", "--days", "30")
    listed = command("list", str(path))
    assert "shop" in listed
    assert "write" in listed
    assert token not in listed
    codes_store(tmp_path / "store").close()
    arguments = ["serve", str(tmp_path / "store"), "--port", "0", "--writable", "--tokens", str(path)]
    process = subprocess.Popen([sys.executable, "-c", START, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        call = Caller(process.stdout.readline().split()[2])
        assert call("PUT", "/v1/items", ITEM, bearer(token)).status == 200
        second = command("add", str(path), "shop", "--role", "read")
        # At once, without waiting for the next look.
        os.kill(process.pid, signal.SIGHUP)
        wait_for(lambda: call("GET", "/v1/stats", headers=bearer(second)).status == 200)
        assert command("remove", str(path), "shop", "--keep-newest").startswith("Removed 1 token")
        # Without a signal.
        wait_for(lambda: call("GET", "/v1/stats", headers=bearer(token)).status == 401)
        assert call("PUT", "/v1/items", ITEM, bearer(second)).status == 403
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_command_refuses_in_one_line(path):
    for arguments, said in (
        (["add", str(path), "a b"], "1 to 64 letters"),
        (["add", str(path), "shop", "--role", "root"], "read"),
        (["list", str(path)], "cannot be read"),
        (["remove", str(path), "shop"], "no token of this name"),
    ):
        told = CliRunner().invoke(app, ["token", *arguments])
        assert told.exit_code == 2, arguments
        assert said in told.output
        assert "Traceback" not in told.output
    assert not path.exists() or read_tokens(path) == []


def test_tokens_are_never_logged(tmp_path, path, caplog):
    caplog.set_level(logging.DEBUG, logger="hamtarget")
    token = add(path, "shop")
    with service(codes_store(tmp_path / "store"), tokens_file=path) as call:
        assert call("GET", "/v1/stats", headers=bearer(token)).status == 200
        assert call("GET", f"/v1/items/{token}", headers=bearer(token)).status == 404
        assert call("GET", "/v1/stats", headers=bearer("another-token-that-is-wrong")).status == 401
    assert token not in caplog.text
    assert "another-token" not in caplog.text
    assert "shop" in caplog.text
