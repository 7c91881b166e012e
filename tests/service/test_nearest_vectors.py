"""The nearest vectors by the service and both clients, as the store finds them."""

import asyncio

import numpy as np
import pytest
from services import SignEncoder, service

from hamtarget.client import AsyncClient, Client
from hamtarget.errors import HamtargetError
from hamtarget.items import Item
from hamtarget.store import Store
from hamtarget.store.vectors import nearest_vectors

N_ROWS = 2500
VECTORS = np.random.default_rng(8).normal(size=(N_ROWS, 8)).astype(np.float32)
QUERIES = np.random.default_rng(9).normal(size=(20, 8)).astype(np.float32)


class VectorEncoder(SignEncoder):
    """An encoder that was trained to find near vectors."""

    def __init__(self):
        super().__init__()
        self.radius = None
        self.neighbor_metric = "cosine"
        self.substrings = 4


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", encoder=VectorEncoder()) as store:
        store.put_rows(range(N_ROWS), inputs=VECTORS)
        yield store


def ids(answer):
    assert answer.status == 200, answer.body
    return [hit["id"] for hit in answer.json["hits"]]


def test_the_service_finds_the_nearest_vectors(store, monkeypatch):
    monkeypatch.setattr(nearest_vectors, "FEWEST_ITEMS", 1000)
    store.tune()
    unit = VECTORS / np.linalg.norm(VECTORS, axis=1, keepdims=True)
    with service(store, writable=True) as caller:
        told = caller("GET", "/v1/stats").json
        assert (told["advised"], told["embedding"]) == ("nearest", "8 x int8, cosine")
        found = 0
        for query in QUERIES:
            near = ids(caller.post("/v1/nearest", {"vector": query.tolist(), "k": 10, "recall": 0.9}))
            assert near == [hit.id for hit in store.nearest(query, k=10, recall=0.9)]
            found += len({*near} & {*np.argsort(-unit @ query)[:10].tolist()})
        assert found > 0.8 * 10 * len(QUERIES)
        whole = caller.post("/v1/nearest", {"vector": QUERIES[0].tolist(), "recall": 1})
        assert whole.json["cost"]["comparisons"] == N_ROWS
        assert ids(caller.post("/v1/nearest", {"id": 7, "k": 3}))[0] == 7
        batch = caller.post("/v1/nearest/batch", {"vectors": QUERIES.tolist(), "k": 4, "recall": 0.95}).json
        expected = store.nearest_batch(QUERIES, k=4, recall=0.95)
        assert batch["ids"] == expected.ids.tolist()
        assert batch["embedding_distances"] == pytest.approx(expected.embedding_distances.tolist(), abs=1e-6)
        # A code has no vector: its nearest are those by code.
        code = store.encoder.encode(QUERIES[:1])[0]
        assert ids(caller.post("/v1/nearest", {"code": code.tobytes().hex(), "k": 3})) == [
            hit.id for hit in store.nearest(code=code, k=3)
        ]


def test_items_that_are_put_are_found_by_their_vectors(store):
    with service(store, writable=True) as caller:
        vector = (3 * QUERIES[0]).tolist()
        answer = caller("PUT", "/v1/items", {"items": [{"id": "new", "vector": vector}]})
        assert answer.status == 200, answer.body
        assert ids(caller.post("/v1/nearest", {"vector": QUERIES[0].tolist(), "k": 1})) == ["new"]


@pytest.mark.parametrize(
    ("asked", "word"),
    [
        ({"vector": [0.0] * 8}, "zeros"),
        ({"vector": [1.0] * 7}, "7"),
        ({"vector": [1.0] * 8, "recall": 0}, "recall"),
        ({"vector": [1.0] * 8, "recall": 1.5}, "recall"),
        ({"vector": [1.0] * 8, "recall": "0.9"}, "recall"),
        ({"code": "00" * 8, "recall": 0.9}, "recall"),
        ({"vector": [1.0] * 8, "k": 0}, "k"),
    ],
)
def test_what_cannot_be_found_is_refused(store, asked, word):
    with service(store) as caller:
        answer = caller.post("/v1/nearest", asked)
        assert answer.status in (400, 422), answer.body
        assert word in answer.json["error"]["message"]


def test_a_store_without_vectors_has_no_recall(tmp_path):
    with Store.create(tmp_path / "codes", encoder=SignEncoder()) as store:
        store.put_rows(range(5), inputs=VECTORS[:5])
        with service(store) as caller:
            answer = caller.post("/v1/nearest", {"vector": QUERIES[0].tolist(), "recall": 0.9})
            assert answer.status in (400, 422)
            assert "keeps no vectors" in answer.json["error"]["message"]


def test_both_clients_ask_for_a_recall(store):
    expected = [[hit.id for hit in hits] for hits in store.nearest_batch(QUERIES, k=5, recall=1)]

    async def ask(address):
        async with AsyncClient(address) as client:
            one = await client.nearest(QUERIES[0], k=5, recall=1)
            many = await client.nearest_batch(QUERIES, k=5, recall=1)
            return one, many

    with service(store, writable=True) as caller:
        with Client(caller.address) as client:
            assert [hit.id for hit in client.nearest(QUERIES[0], k=5, recall=1)] == expected[0]
            assert [[hit.id for hit in hits] for hits in client.nearest_batch(QUERIES, k=5, recall=1)] == expected
            assert client.put([Item("mine", input=QUERIES[3].tolist())]) == 1
            assert client.nearest(QUERIES[3], k=1)[0].id == "mine"
            with pytest.raises(HamtargetError):
                client.nearest(QUERIES[0], recall=2)
        one, many = asyncio.run(ask(caller.address))
    assert [hit.id for hit in one] == expected[0]
    assert [[hit.id for hit in hits][:1] for hits in many][:3] == [each[:1] for each in expected][:3]
