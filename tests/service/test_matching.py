"""Items with several codes over HTTP: put, got, searched and matched as in the store itself."""

import base64
import io

import numpy as np
import pytest
from PIL import Image
from services import N_BITS, SignEncoder, service

from hamtarget.errors import InputError, ServiceError
from hamtarget.filters import Range
from hamtarget.items import Item
from hamtarget.serve.demo_store import demo_encoder
from hamtarget.store import Store

CODES = np.random.default_rng(3).integers(0, 256, (80, 8), dtype=np.uint8)
VECTORS = np.random.default_rng(4).normal(size=(40, 8)).astype(np.float32)


@pytest.fixture
def place(tmp_path):
    store = Store.create(tmp_path / "store", encoder=SignEncoder(), radius=8, durability="os")
    store.put(Item(f"item {n}", codes=CODES[4 * n : 4 * n + 4], payload={"n": n}) for n in range(20))
    store.put([Item(7, code=CODES[0], payload={"n": 7})])
    with service(store, writable=True) as call:
        yield store, call


def test_a_client_matches_what_the_store_matches(place, kind):
    store, call = place
    with kind(call.address) as client:
        for asked in (
            {"codes": CODES[:4]},
            {"codes": CODES[2:9], "radius": 28, "at_least": 3, "limit": 4},
            {"codes": CODES[:4], "filter": {"n": Range(5, 9)}, "radius": 28},
            {"inputs": VECTORS[:3], "radius": 28, "at_least": 2},
        ):
            matches = client.match(**asked)
            same = {"queries" if name == "inputs" else name: value for name, value in asked.items()}
            assert matches == store.match(**{"limit": 50, **same})
            assert matches
            assert [match.payload for match in matches] == store.payloads([match.id for match in matches])
        (best, *_) = client.match(id="item 3", radius=0, payload=False)
        assert (best.id, best.n_query_matched, best.item_share, best.payload) == ("item 3", 4, 1.0, None)
        assert client.match(id=7, radius=0) == store.match(codes=CODES[:1], radius=0)


def test_items_go_there_and_back(place, kind):
    store, call = place
    with kind(call.address) as client:
        items = [
            Item("codes", codes=CODES[:3], payload={"a": 1}),
            Item("bytes", codes=[code.tobytes() for code in CODES[:3]]),
            Item("vectors", inputs=VECTORS[:5]),
            Item("one", code=CODES[4]),
        ]
        assert client.put(items) == 4
        assert client.get("codes").codes == client.get("bytes").codes == [code.tobytes() for code in CODES[:3]]
        assert (client.get("codes").code, client.get("one").codes) == (None, None)
        np.testing.assert_array_equal(store.get(["vectors"])[0].codes, SignEncoder().encode(VECTORS[:5]))
        assert client.put([client.get("codes")]) == 1
        hits = client.search(code=CODES[1], radius=0, codes=True)
        assert [(hit.id, len(hit.codes), hit.code) for hit in hits if hit.id == "codes"] == [("codes", 3, None)]
        assert [hit.id for hit in client.search(code=CODES[4], radius=0)] == ["one", "item 1"]
        assert (client.stats()["items"], client.stats()["codes"]) == (25, 81 + 12)
        client.delete("codes")
        assert client.get("codes") is None


def test_embeddings_come_one_for_each_code(tmp_path, kind):
    from hamtarget.search import Embeddings

    store = Store.create(tmp_path / "store", n_bits=N_BITS, embeddings=Embeddings(2), durability="os")
    with service(store, writable=True) as call, kind(call.address) as client:
        client.put([Item("a", codes=CODES[:2], embeddings=[[1.0, 2.0], [3.0, 4.0]])])
        assert client.get("a").embeddings == [[1.0, 2.0], [3.0, 4.0]]
        with pytest.raises(ServiceError, match="item 1 has no embedding"):
            client.put([Item("a", codes=CODES[:2], embeddings=[[1.0, 2.0], [3.0, 4.0]]), Item("b", codes=CODES[:2])])
        with pytest.raises(ServiceError, match="1 embeddings for 2 codes"):
            client.put([Item("a", codes=CODES[:2], embeddings=[[1.0, 2.0]])])


def test_pictures_are_matched(tmp_path, kind):
    files = []
    for shade in (30, 90, 150):
        file = io.BytesIO()
        pixels = np.random.default_rng(shade).integers(0, 255, (28, 28), dtype=np.uint8)
        Image.fromarray(pixels).save(file, "PNG")
        files.append(file.getvalue())
    store = Store.create(tmp_path / "store", encoder=demo_encoder(), radius=0, durability="os")
    with service(store, writable=True) as call, kind(call.address) as client:
        client.put([Item("frames", inputs=files), Item("frame", inputs=files[:1])])
        found = client.match(files[:2], at_least=1)
        assert [(match.id, match.n_query_matched) for match in found] == [("frames", 2), ("frame", 1)]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({}, "give one of codes, vectors, images, texts and id"),
        ({"codes": ["00" * 8], "id": 1}, "give one of"),
        ({"codes": []}, "codes"),
        ({"codes": ["00" * 8] * 65}, "64"),
        ({"codes": ["00"]}, "hexadecimal digits"),
        ({"codes": ["00" * 8], "at_least": 2}, "at_least is 2"),
        ({"codes": ["00" * 8], "at_least": 0}, "at_least"),
        ({"codes": ["00" * 8], "limit": 10**9}, "limit"),
        ({"codes": ["00" * 8], "radius": 64}, "radius is 64"),
        ({"codes": ["00" * 8], "unknown": 1}, "unknown"),
    ],
)
def test_a_match_that_does_not_fit_is_refused(place, body, what):
    _, call = place
    answer = call.post("/v1/match", body)
    assert answer.status == 422
    assert what in answer.json["error"]["message"]


def test_puts_that_do_not_fit_are_refused(place, kind):
    store, call = place
    code = "00" * 8
    for item in (
        {"id": 1, "codes": [code], "code": code},
        {"id": 1, "codes": [code], "vectors": [[1.0]]},
        {"id": 1, "codes": [code], "embedding": [1.0]},
        {"id": 1, "codes": [code] * 65},
        {"id": 1, "codes": []},
        {"id": 1},
    ):
        assert call("PUT", "/v1/items", {"items": [item]}).status == 422, item
    assert len(store) == 21
    with kind(call.address) as client:
        for wrong in ("text", [VECTORS[0], "text"], []):
            with pytest.raises(InputError, match="inputs are"):
                client.match(wrong)


def test_the_work_of_a_match_is_bounded(tmp_path):
    store = Store.create(tmp_path / "store", n_bits=N_BITS, durability="os")
    store.put(Item(n, codes=np.repeat(CODES[:1], 64, axis=0)) for n in range(20))
    with service(store, max_found=1000) as call:
        answer = call.post("/v1/match", {"codes": [CODES[0].tobytes().hex()]})
        assert (answer.status, answer.kind) == (413, "too_much")
        assert call.post("/v1/match", {"codes": [CODES[1].tobytes().hex()]}).status == 200
    with service(store, max_items=30) as call:
        items = [{"id": n, "codes": ["00" * 8] * 16} for n in range(2)]
        # Nothing is put here: the service only reads.
        assert call("PUT", "/v1/items", {"items": items}).status == 403


def test_integer_ids_of_such_items_are_packed(place):
    store, call = place
    store.put([Item(70, codes=CODES[:2])])
    body = {"codes": [CODES[1].tobytes().hex()], "radius": 0, "filter": {"n": 0}, "arrays": "base64"}
    assert call.post("/v1/search/batch", body).status == 422
    store.put([Item(70, codes=CODES[:2], payload={"n": 70})])
    answer = call.post("/v1/search/batch", {**body, "filter": {"n": 70}}).json
    assert np.frombuffer(base64.b64decode(answer["ids"]), "<i8").tolist() == [70]


def test_a_stored_item_with_several_codes_is_no_single_query(place):
    _, call = place
    answer = call.post("/v1/search", {"id": "item 3"})
    assert answer.status == 422
    assert "has 4 codes" in answer.json["error"]["message"]
