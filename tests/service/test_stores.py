"""A store is served alike from a folder and from PostgreSQL."""

import numpy as np
import pytest
from services import N_BITS, N_ITEMS, ProbingEncoder, SignEncoder, service

from hamtarget.client import Client
from hamtarget.codes import distances
from hamtarget.errors import ServiceError
from hamtarget.filters import Range
from hamtarget.items import Item
from hamtarget.search import Embeddings
from hamtarget.store import Store


def naive(codes, query, radius=N_BITS, keep=lambda row: True):
    """(id, distance) of all rows within a radius, by distance and then id."""
    far = distances(query, codes, N_BITS)[0]
    found = [(row, int(far[row])) for row in range(len(codes)) if keep(row) and far[row] <= radius]
    return sorted(found, key=lambda hit: (hit[1], hit[0]))


def pairs(hits):
    return [(hit.id, hit.distance) for hit in hits]


@pytest.fixture
def served(stores, rows):
    codes, payloads = rows
    with stores.create(n_bits=N_BITS, radius=4, durability="os") as store:
        store.put_rows(list(range(N_ITEMS)), codes=codes, payloads=payloads)
    with service(stores.open(), writable=True) as call, Client(call.address) as client:
        yield client, call


def test_searches(served, rows):
    client, call = served
    codes, payloads = rows
    for row in (0, 17):
        hits = client.search(code=codes[row], radius=9, limit=500)
        assert pairs(hits) == naive(codes, codes[row], 9)
        assert [hit.payload for hit in hits] == [payloads[hit.id] for hit in hits]
        assert hits.cost.candidates >= len(hits)
        assert pairs(client.nearest(id=row, k=12)) == naive(codes, codes[row])[:12]
    odd = {"parity": "odd", "number": Range(min=200)}
    assert pairs(client.search(code=codes[3], radius=30, limit=500, filter=odd)) == naive(
        codes, codes[3], 30, lambda row: row % 2 and row >= 200
    )
    assert (
        pairs(client.nearest(code=codes[3], k=9, filter=odd))
        == naive(codes, codes[3], keep=lambda row: row % 2 and row >= 200)[:9]
    )
    batch = client.search_batch(codes=codes[:20], radius=6, limit=500)
    assert [pairs(hits) for hits in batch] == [naive(codes, code, 6) for code in codes[:20]]
    assert all(cost.candidates >= len(hits) for cost, hits in zip(batch.costs, batch, strict=True))
    assert [pairs(hits) for hits in client.nearest_batch(codes=codes[:20], k=3)] == [
        naive(codes, code)[:3] for code in codes[:20]
    ]
    told = call.post("/v1/search", {"id": 2, "histogram": True}).json["histogram"]
    expected = np.bincount(distances(codes[2], codes, N_BITS)[0], minlength=N_BITS + 1)
    assert told == {"counts": expected.tolist(), "rows": N_ITEMS, "sampled": False}


def test_changes(served, stores):
    client, _ = served
    assert client.put([Item("a/b", code=b"\x01" * 8, payload={"x": [1]}), Item(7, code="02" * 8)]) == 2
    assert client.get("a/b").payload == {"x": [1]}
    assert client.get(7).code == b"\x02" * 8
    assert pairs(client.search(code=b"\x01" * 8, radius=0)) == [("a/b", 0)]
    client.delete("a/b")
    assert client.get("a/b") is None
    assert client.search(code=b"\x01" * 8, radius=0) == ()
    with pytest.raises(ServiceError, match="no item"):
        client.delete("a/b")


def test_stats_tell_what_the_store_can_do(served, stores):
    client, call = served
    told = client.stats()
    assert (told["items"], told["n_bits"], told["radius"], told["substrings"]) == (N_ITEMS, N_BITS, 4, 5)
    assert told["sample_rows"] == N_ITEMS
    assert len(set(told["examples"])) == 24
    assert told["advised"] == "search"
    assert call("GET", "/metrics").status == 200
    assert told["searches"] == ["search", "nearest", "probe"]
    assert len(client.probe(code=bytes(8), budget=50, radius=63, limit=5)) == 5


def test_a_store_opened_for_reading_takes_no_changes(stores):
    stores.create(n_bits=N_BITS, radius=4, durability="os").close()
    with service(stores.open(read_only=True)) as call, Client(call.address) as client:
        with pytest.raises(ServiceError) as refused:
            client.put([Item(1, code=bytes(8))])
        assert (refused.value.status, refused.value.kind) == (403, "read_only")


def test_embeddings_rank_hits(stores, vectors):
    encoder = SignEncoder()
    kept = Embeddings(N_BITS, "float32", "cosine")
    # An encoder of tests cannot be saved: codes and embeddings are put.
    with stores.create(n_bits=N_BITS, radius=4, embeddings=kept, durability="os") as store:
        embeddings = encoder.embedding(vectors)
        store.put_rows(list(range(N_ITEMS)), codes=encoder.encode(vectors), embeddings=embeddings)
    with service(stores.open(read_only=True)) as call, Client(call.address) as client:
        own = embeddings[5]
        hits = client.nearest(code=encoder.encode(vectors[5:6])[0], k=40, rerank=7, embedding=own)
        nearest = [row for row, _ in naive(encoder.encode(vectors), encoder.encode(vectors[5:6])[0])[:40]]
        expected = sorted(nearest, key=lambda row: 1 - float(embeddings[row] @ own))[:7]
        assert [hit.id for hit in hits] == expected
        assert [hit.id for hit in client.nearest(id=5, k=40, rerank=7)] == expected
        with pytest.raises(ServiceError, match="has no embedding"):
            client.nearest(code=bytes(8), rerank=3)


def test_a_store_of_codes_for_probing_is_probed_without_further_ado(tmp_path, vectors):
    store = Store.create(tmp_path / "store", encoder=ProbingEncoder(), durability="os")
    store.put_rows(list(range(N_ITEMS)), inputs=vectors)
    logits = ProbingEncoder().logits(vectors[:1])[0]
    with service(store) as call, Client(call.address) as client:
        told = client.stats()
        assert (told["advised"], told["searches"]) == ("probe", ["search", "nearest", "probe"])
        # Any distance, and a budget that is more than all there are: exactly the nearest.
        answer = call.post("/v1/probe", {"vector": vectors[0].tolist(), "limit": 9, "payload": False}).json
        assert (answer["radius"], answer["budget"]) == (N_BITS - 1, 1000)
        nearest = client.nearest(vectors[0], 9)
        assert [(hit["id"], hit["distance"]) for hit in answer["hits"]] == pairs(nearest)
        # A smaller budget reads less, and says so.
        few = client.probe(vectors[0], 40, rerank=3)
        assert few.cost.candidates <= 40
        assert few[0].id == 0
        assert [hit.embedding_distance for hit in few] == sorted(hit.embedding_distance for hit in few)
        assert pairs(client.probe(logits=logits, budget=40, rerank=3)) == pairs(few)
        batch = client.probe_batch(vectors[:30], 40, rerank=3)
        assert pairs(batch[0]) == pairs(few)
        assert all(cost.candidates <= 40 for cost in batch.costs)
        assert client.probe(id=4, limit=1)[0].id == 4
        for wrong in ({}, {"logits": [1.0]}, {"vector": vectors[0].tolist(), "logits": logits.tolist()}):
            assert call.post("/v1/probe", wrong).status == 422
