"""The client gives what the service gives, in the library's shape, with nothing but Python's standard library."""

import inspect
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from services import N_BITS, N_ITEMS, SignEncoder, service

import hamtarget.client
from hamtarget.client import AsyncClient, Client
from hamtarget.errors import DtypeError, InputError, NotFiniteError, ServiceError, ShapeError
from hamtarget.filters import Range
from hamtarget.items import Item
from hamtarget.query import Work
from hamtarget.serve.demo_store import demo_encoder
from hamtarget.store import Store


@pytest.fixture
def client(writable, kind):
    with kind(writable.address) as made:
        yield made


def told(hits):
    """What hits of the library and of the client say alike; sums of floats may differ in their last digits."""
    return [
        (hit.id, hit.distance, None if hit.embedding_distance is None else round(hit.embedding_distance, 3))
        for hit in hits
    ]


def test_the_example_of_the_module_runs_as_it_stands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.full((40, 30), 90, np.uint8)).save("shoe.jpg")
    example = re.search(r"\n\n((?:    .*\n|\n)+)", hamtarget.client.__doc__)[1]
    store = Store.create(tmp_path / "store", encoder=demo_encoder(), radius=4, durability="os")
    with service(store, writable=True) as call:
        code = re.sub("^    ", "", example, flags=re.MULTILINE)
        exec(code.replace("http://127.0.0.1:8080", call.address), {})
    assert capsys.readouterr().out == "shoe-1 0 {'price': 40}\n"


def test_it_needs_nothing_but_python():
    script = "import sys, hamtarget.client; print([name for name in sys.modules if name in ('numpy', 'torch', 'rich')])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    assert dir(hamtarget.client) == hamtarget.client.__all__ == sorted(hamtarget.client.__all__)


def test_it_says_what_the_service_says(client, writable, vectors):
    assert client.is_ready()
    near = client.search(vectors[4], radius=20, limit=5, rerank=5, codes=True)
    assert near[0].id == "v4"
    assert near[0].code == near.code
    asked = {"vector": vectors[4].tolist(), "radius": 20, "limit": 5, "rerank": 5}
    plain = writable.post("/v1/search", asked).json
    assert [(hit.id, hit.distance, hit.embedding_distance) for hit in near] == [
        (hit["id"], hit["distance"], hit["embedding_distance"]) for hit in plain["hits"]
    ]
    assert near.cost._asdict() == plain["cost"]
    assert near.cost.comparisons == len(near) == 5
    assert near.truncated
    assert client.stats()["items"] == N_ITEMS


def test_it_says_what_the_store_says(tmp_path, rows, kind):
    """The same calls on a store and on a client of it give the same hits and costs."""
    codes, payloads = rows
    store = Store.create(tmp_path / "store", encoder=SignEncoder(), radius=8, durability="os")
    store.put_rows(list(range(N_ITEMS)), codes=codes, payloads=payloads)
    vectors = np.random.default_rng(1).normal(size=(9, 8)).astype(np.float32)
    logits = SignEncoder().logits(vectors)
    odd = {"parity": "odd", "number": Range(max=400)}
    calls = [
        ("search", {"radius": 12, "limit": 7, "filter": odd}),
        ("nearest", {"k": 6}),
        ("probe", {"budget": 150, "radius": 40, "limit": 7}),
        ("probe", {"budget": 80, "radius": 63, "rerank": 4}),
    ]
    expected = {}
    for place, (verb, how) in enumerate(calls):
        # A service has a word of its own for a search with a budget.
        name = "search" if verb == "probe" else verb
        expected[place, "one"] = getattr(store, name)(vectors[0], **how, work=Work(costs=True))
        expected[place, "batch"] = getattr(store, f"{name}_batch")(vectors, **how, work=Work(costs=True))
    expected["code"] = store.nearest(code=codes[3], k=4, work=Work(costs=True))
    with service(store) as call, kind(call.address) as client:
        for place, (verb, how) in enumerate(calls):
            for arguments in ({"query": vectors[0]}, {"logits": logits[0]})[: 1 + (verb == "probe")]:
                one = getattr(client, verb)(**arguments, **how)
                assert told(one) == told(expected[place, "one"])
                assert tuple(one.cost) == tuple(expected[place, "one"].cost)
            for arguments in ({"queries": vectors}, {"logits": logits})[: 1 + (verb == "probe")]:
                batch = getattr(client, f"{verb}_batch")(**arguments, **how)
                assert len(batch) == 9
                for hits, wanted in zip(batch, expected[place, "batch"], strict=True):
                    assert told(hits) == told(wanted)
                    assert tuple(hits.cost) == tuple(wanted.cost)
        for code in (codes[3], codes[3].tobytes(), codes[3].tobytes().hex(), codes[3].tolist(), memoryview(codes[3])):
            assert told(client.nearest(code=code, k=4)) == told(expected["code"])
            assert told(client.nearest_batch(codes=[code], k=4)[0]) == told(expected["code"])
        batch = client.nearest_batch(codes=codes[:5], k=1)
        assert batch.ids == [hits[0].id for hits in batch]
        with pytest.raises(IndexError, match="query 5 of a batch of 5"):
            batch[5]


def test_filters_are_ranges_or_dicts(client, vectors):
    client.put([Item(f"p{price}", vectors[0], payload={"price": price}) for price in (10, 20, 30)])
    for bounds in (Range(15, 25), {"min": 15, "max": 25}):
        assert [hit.id for hit in client.search(vectors[0], filter={"price": bounds})] == ["p20"]
    assert [hit.id for hit in client.search(vectors[0], filter={"price": Range(min=25)})] == ["p30"]
    assert [hit.id for hit in client.search(vectors[0], filter={"price": 10})] == ["p10"]


def test_items_go_there_and_back(client, vectors):
    code = bytes(range(8))
    items = [
        Item("c", code=code, embedding=[1.0] * N_BITS, payload={"a": 1}),
        Item("hex", code=code.hex(), embedding=np.ones(N_BITS, np.float32)),
        Item("row", code=np.frombuffer(code, np.uint8), embedding=[1.0] * N_BITS),
        Item(7, vectors[3]),
    ]
    assert client.put(iter(items)) == 4
    assert [client.get(id).code for id in ("c", "hex", "row")] == [code] * 3
    assert client.get(7).code == SignEncoder().encode(vectors[3:4]).tobytes()
    found = client.get("c")
    assert (type(found), found.id, found.payload, found.embedding) == (Item, "c", {"a": 1}, [1.0] * N_BITS)
    # What `get` gives, `put` takes.
    assert client.put([found]) == 1
    assert client.put([]) == 0
    assert client.nearest(code=code, k=1, filter={"a": 1})[0].payload == {"a": 1}
    batch = client.search_batch(codes=[code, vectors.tobytes()[:8]], radius=0, rerank=2, embedding=[[1.0] * N_BITS] * 2)
    assert [hit.id for hit in batch[0]] == ["c", "hex"]
    assert batch[0][0].embedding_distance == pytest.approx(0, abs=1e-6)
    client.delete("c")
    assert client.get("c") is None
    with pytest.raises(ServiceError, match="no item") as refused:
        client.delete("c")
    assert refused.value.status == 404


def test_images_as_paths_and_bytes(tmp_path, kind):
    file = io.BytesIO()
    Image.fromarray(np.full((28, 28), 90, np.uint8)).save(file, "PNG")
    (tmp_path / "a.png").write_bytes(file.getvalue())
    store = Store.create(tmp_path / "store", encoder=demo_encoder(), radius=2, durability="os")
    with service(store, writable=True) as call, kind(call.address) as client:
        path = tmp_path / "a.png"
        client.put([Item("path", path), Item("text", str(path)), Item("bytes", path.read_bytes())])
        for query in (path, str(path), path.read_bytes()):
            assert [hit.id for hit in client.search(query, 0)] == ["path", "text", "bytes"]
        assert [hit.id for hit in client.nearest(id="text", k=1)] == ["path"]


def test_mistakes_are_told_before_anything_is_sent(vectors, kind):
    with kind("http://127.0.0.1:9") as nobody:
        for wrong in ({}, {"query": vectors[0], "code": bytes(8)}, {"id": 1, "code": bytes(8)}):
            with pytest.raises(InputError, match="give one of query, code and id"):
                nobody.search(**wrong)
        with pytest.raises(InputError, match="give one of queries and codes"):
            nobody.search_batch()
        for code in ("xyz", [256], 7, [0.5, "a"]):
            with pytest.raises(InputError, match="expected bytes, hexadecimal digits, or a row"):
                nobody.search(code=code)
        with pytest.raises(NotFiniteError, match="NaN or infinity"):
            nobody.search([1.0, float("nan")])
        with pytest.raises(ShapeError, match="ends in _batch"):
            nobody.nearest(vectors[:2])
        with pytest.raises(DtypeError, match="put got a dict"):
            nobody.put([{"id": 1}])
        with pytest.raises(InputError, match="needs either an input or a code"):
            nobody.put([Item("a")])
        with pytest.raises(ServiceError, match="does not answer"):
            nobody.stats()
    for address in ("ftp://example.org", "127.0.0.1:80", "http://", "http://host:port"):
        with pytest.raises(InputError, match="expected one such as"):
            kind(address)
    for wrong in (
        {"token": "a\r\nHost: b"},
        {"token": ""},
        {"timeout": 0},
        {"retries": -1},
        {"connections": 0},
        {"ca_file": "x"},
    ):
        with pytest.raises(InputError):
            kind("http://127.0.0.1:9", **wrong)
    with pytest.raises(InputError, match="cannot be read"):
        kind("https://127.0.0.1:9", ca_file="no such file")


def test_ties_and_the_map_are_those_of_the_service(client, writable):
    asked = {"id": "v5", "k": 40, "ties": "mixed"}
    found = writable.post("/v1/nearest", asked).json["hits"]
    assert [hit.id for hit in client.nearest(id="v5", k=40, ties="mixed")] == [hit["id"] for hit in found]
    assert client.search(id="v5", radius=20, limit=7, ties="mixed")[0].embedding_distance is not None
    assert client.map(50) == writable("GET", "/v1/map?n=50").json
    with pytest.raises(ServiceError, match="ties"):
        client.search(id="v5", ties="any")


def test_both_clients_have_the_same_calls():
    def calls(kind):
        names = [name for name in vars(kind) if not name.startswith("_")]
        return {name: inspect.signature(getattr(kind, name)) for name in [*names, "__init__"]}

    assert calls(Client) == calls(AsyncClient)
    awaited = {name for name in calls(AsyncClient) if inspect.iscoroutinefunction(getattr(AsyncClient, name))}
    assert awaited == set(calls(Client)) - {"__init__", "within"}


def test_clients_show_their_address():
    for made in (Client("http://127.0.0.1:9"), AsyncClient("http://127.0.0.1:9")):
        assert repr(made) == f"{type(made).__name__}('http://127.0.0.1:9')"
