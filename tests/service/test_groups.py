"""Groups over HTTP: what the store gives, by endpoints and both clients, and bounded work."""

import time

import numpy as np
import pytest
from services import N_BITS, service
from test_workers import served

from hamtarget.errors import ServiceError
from hamtarget.serve.lanes import grouping
from hamtarget.store import Store


def codes_of(*numbers):
    """Codes in which so many of the first bits are 1."""
    return np.packbits(np.arange(N_BITS) < np.array(numbers)[:, None], axis=1, bitorder="little")


def fill(store):
    codes = codes_of(0, 1, 30, 31, 32, 33, 60)
    store.put_rows(["a", "b", "c", 4, "e", "f", "g"], codes=codes, payloads=[None, *({"n": n} for n in range(1, 7))])
    return store


@pytest.fixture
def call(tmp_path):
    with service(fill(Store.create(tmp_path / "store", n_bits=N_BITS, radius=2)), writable=True) as call:
        yield call


WHOLE = {
    "radius": 2,
    "linkage": "single",
    "n_groups": 2,
    "n_items": 6,
    "groups": [
        {
            "id": 1,
            "size": 4,
            "representative": 4,
            "is_capped": False,
            "members": [
                {"id": 4, "distance": 0, "payload": {"n": 3}},
                {"id": "c", "distance": 1, "payload": {"n": 2}},
                {"id": "e", "distance": 1, "payload": {"n": 4}},
                {"id": "f", "distance": 2, "payload": {"n": 5}},
            ],
        },
        {
            "id": 2,
            "size": 2,
            "representative": "a",
            "is_capped": False,
            "members": [{"id": "a", "distance": 0, "payload": None}, {"id": "b", "distance": 1, "payload": {"n": 1}}],
        },
    ],
    "next": None,
}


def test_a_page_of_groups_is_the_stores(call):
    answer = call.post("/v1/groups", {})
    assert answer.status == 200, answer.body
    assert answer.json == WHOLE
    first = call.post("/v1/groups", {"limit": 1, "members": 2, "payload": False, "linkage": "representative"}).json
    assert [(group["size"], group["is_capped"]) for group in first["groups"]] == [(4, True)]
    assert first["groups"][0]["members"] == [{"id": 4, "distance": 0}, {"id": "c", "distance": 1}]
    second = call.post("/v1/groups", {"limit": 1, "after": first["next"], "linkage": "representative"}).json
    assert (second["groups"][0]["representative"], second["next"]) == ("a", None)
    rest = call.post("/v1/groups/members", {"group": 1, "start": 2}).json
    assert rest == {"members": WHOLE["groups"][0]["members"][2:]}


def test_groups_follow_what_is_deleted(call):
    call.post("/v1/groups", {})
    assert call("DELETE", "/v1/items/a").status == 200
    found = call.post("/v1/groups", {}).json
    assert [(group["id"], group["size"]) for group in found["groups"]] == [(1, 4)]


def test_both_clients_have_the_calls_of_a_store(call, kind):
    with kind(call.address) as client:
        found = client.groups()
        assert [(group.id, group.size, group.representative) for group in found.groups] == [(1, 4, 4), (2, 2, "a")]
        assert (found.radius, found.linkage, found.n_groups, found.n_items, found.next) == (2, "single", 2, 6, None)
        assert found.groups[1].members == (("a", 0, None), ("b", 1, {"n": 1}))
        page = client.groups(1, linkage="representative", limit=1, members=1, payload=False)
        assert page.groups[0].members == ((4, 0, None),)
        assert page.groups[0].is_capped
        assert client.groups(1, linkage="representative", after=page.next).groups
        assert client.group_members(2, start=1) == (("b", 1, {"n": 1}),)
        with pytest.raises(ServiceError, match="there is no group 9"):
            client.group_members(9)


@pytest.mark.parametrize(
    ("path", "asked", "status"),
    [
        ("/v1/groups", {"radius": 3}, 422),
        ("/v1/groups", {"radius": -1}, 422),
        ("/v1/groups", {"linkage": "double"}, 422),
        ("/v1/groups", {"limit": 1001}, 422),
        ("/v1/groups", {"limit": 1000, "members": 11}, 422),
        ("/v1/groups", {"after": 77}, 422),
        ("/v1/groups", {"after": 2**63}, 422),
        ("/v1/groups", {"more": 1}, 422),
        ("/v1/groups/members", {}, 422),
        ("/v1/groups/members", {"group": 1, "limit": 10_001}, 422),
        ("/v1/groups/members", {"group": 77}, 422),
    ],
)
def test_what_cannot_be_is_refused(call, path, asked, status):
    answer = call.post(path, asked)
    assert (answer.status, answer.kind) == (status, "input"), answer.body


def test_what_takes_long_is_made_by_a_thread_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setattr(grouping, "_REQUEST_SECONDS", 0.0)
    store = fill(Store.create(tmp_path / "store", n_bits=N_BITS, radius=2))
    with service(store, writable=True) as call:
        answer = call.post("/v1/groups", {})
        assert (answer.status, answer.kind, answer.headers["Retry-After"]) == (503, "busy", "1")
        monkeypatch.setattr(grouping, "_REQUEST_SECONDS", 10.0)
        until = time.monotonic() + 20
        while (answer := call.post("/v1/groups", {})).status == 503 and time.monotonic() < until:
            time.sleep(0.02)
        assert answer.json["n_groups"] == 2


def test_kinds_of_groups_are_bounded(call, monkeypatch):
    monkeypatch.setattr(grouping, "_MOST_KINDS", 2)
    assert call.post("/v1/groups", {"radius": 1}).status == 200
    assert call.post("/v1/groups", {"radius": 0}).status == 200
    answer = call.post("/v1/groups", {"radius": 1, "linkage": "representative"})
    assert (answer.status, answer.kind) == (422, "input")
    assert call.post("/v1/groups", {"radius": 0}).status == 200


def test_a_service_that_only_reads_has_groups_too(tmp_path):
    fill(Store.create(tmp_path / "store", n_bits=N_BITS, radius=2)).close()
    with service(Store.open(tmp_path / "store", read_only=True)) as call:
        assert call.post("/v1/groups", {"radius": 1}).json["n_groups"] == 2
    assert not (tmp_path / "store" / "groups").exists()


def test_several_processes_give_the_same_ids(tmp_path):
    fill(Store.create(tmp_path / "store", n_bits=N_BITS, radius=2)).close()
    with served(tmp_path / "store", "--writable", "--no-token") as (_, call):
        pages = [call.post("/v1/groups", {}).json for _ in range(6)]
        assert pages == [pages[0]] * 6
        assert pages[0]["n_groups"] == 2
        rest = call.post("/v1/groups/members", {"group": 1, "start": 3, "payload": False})
        assert rest.json == {"members": [{"id": "f", "distance": 2}]}
    assert (tmp_path / "store" / "groups" / "2-single.db").exists()
