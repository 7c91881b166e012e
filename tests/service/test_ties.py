"""Hits at equal distance: the order that a request asks for, against a naive twin."""

import hashlib

import numpy as np
import pytest
from services import service

from hamtarget.search import Embeddings
from hamtarget.serve.lanes import ties
from hamtarget.store import Store

N_BITS = 16
N_ITEMS = 300


@pytest.fixture(scope="module")
def rows():
    """Few codes for many items: almost every hit is tied. Classes come one after another, as folders are added."""
    random = np.random.default_rng(3)
    codes = random.integers(0, 4, (N_ITEMS, 2), dtype=np.uint8)
    ids = [row if row % 3 else f"item {row}" for row in range(N_ITEMS)]
    payloads = [{"class": "abc"[3 * row // N_ITEMS]} for row in range(N_ITEMS)]
    return ids, codes, payloads, random.normal(size=(N_ITEMS, 4)).astype(np.float32)


@pytest.fixture(scope="module", params=[False, True], ids=["hash", "embedding"])
def served(request, rows, tmp_path_factory):
    """A service of these rows, with embeddings or without."""
    ids, codes, payloads, embeddings = rows
    kept = Embeddings(4, "float32", "l2") if request.param else None
    store = Store.create(
        tmp_path_factory.mktemp("ties") / "store", n_bits=N_BITS, radius=3, embeddings=kept, durability="os"
    )
    store.put_rows(ids, codes=codes, payloads=payloads, embeddings=embeddings if request.param else None)
    with service(store) as call:
        yield call, request.param


def expected(rows, place, *, ranked, wanted=None, radius=N_BITS):
    """All ids within a radius of an item, in the mixed order, each with its distance."""
    ids, codes, payloads, embeddings = rows
    found = []
    for row, id in enumerate(ids):
        distance = int(np.unpackbits(codes[row] ^ codes[place]).sum())
        if distance <= radius and wanted in (None, payloads[row]["class"]):
            text = f"{'s' if isinstance(id, str) else 'i'}{id}".encode()
            number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
            close = float(np.float32(np.linalg.norm(embeddings[row] - embeddings[place]))) if ranked else 0.0
            found.append((distance, round(close, 4), number, id))
    return [(id, distance) for distance, _, _, id in sorted(found)]


def hits(answer):
    assert answer.status == 200, answer.body
    return [(hit["id"], hit["distance"]) for hit in answer.json["hits"]]


@pytest.mark.parametrize("place", [0, 7, 150])
@pytest.mark.parametrize("limit", [1, 5, 37, 120, 500])
def test_ties_are_mixed_wherever_a_limit_cuts_them(served, rows, place, limit):
    call, ranked = served
    asked = {"id": rows[0][place], "ties": "mixed"}
    whole = expected(rows, place, ranked=ranked)
    assert hits(call.post("/v1/nearest", {**asked, "k": limit})) == whole[:limit]
    within = expected(rows, place, ranked=ranked, radius=2)
    assert hits(call.post("/v1/search", {**asked, "radius": 2, "limit": limit})) == within[:limit]
    some = expected(rows, place, ranked=ranked, wanted="b", radius=2)
    filtered = call.post("/v1/search", {**asked, "radius": 2, "limit": limit, "filter": {"class": "b"}})
    assert hits(filtered) == some[:limit]


def test_a_cut_tie_shows_several_classes(served, rows):
    """In the order of the store, the first class has the tie for itself."""
    call, _ = served
    classes = dict(zip(rows[0], (payload["class"] for payload in rows[2]), strict=True))
    zeros = {"code": "0000", "radius": 0, "limit": 5}
    stored = hits(call.post("/v1/search", zeros))
    mixed = hits(call.post("/v1/search", {**zeros, "ties": "mixed"}))
    assert {distance for _, distance in stored + mixed} == {0}
    assert {classes[id] for id, _ in stored} == {"a"}
    assert len({classes[id] for id, _ in mixed}) > 1


def test_rerank_keeps_its_own_order(served, rows):
    call, ranked = served
    if ranked:
        asked = {"id": rows[0][4], "k": 50, "rerank": 20}
        assert hits(call.post("/v1/nearest", {**asked, "ties": "mixed"})) == hits(call.post("/v1/nearest", asked))


def test_a_tie_larger_than_the_bound_is_the_same_each_time(served, rows, monkeypatch):
    monkeypatch.setattr(ties, "MOST_TIED", 30)
    call, _ = served
    pages = [
        hits(call.post("/v1/search", {"id": rows[0][4], "radius": 3, "limit": limit, "ties": "mixed"}))
        for limit in (5, 10, 30, 30)
    ]
    assert pages[3][:5] == pages[0]
    assert pages[3][:10] == pages[1]
    assert pages[2] == pages[3]


def test_all_bits_may_differ(tmp_path):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, radius=3, durability="os")
    store.put_rows([1, 2, 3], codes=np.full((3, 2), 255, np.uint8))
    with service(store) as call:
        found = hits(call.post("/v1/nearest", {"code": "0000", "k": 2, "ties": "mixed"}))
        assert [distance for _, distance in found] == [16, 16]
