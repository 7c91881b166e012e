"""Searches hold no more than their answer needs: exact for every filter, and ended by their limits, on a server too."""

import threading
import time
import tracemalloc

import numpy as np
import pytest

from hamtarget.codes import distances, unpack
from hamtarget.errors import LimitError
from hamtarget.query import Asked, Bounds, Work
from hamtarget.search import Embeddings
from hamtarget.store import Item, Mirror
from hamtarget.store.postgres import finding, limited

RNG = np.random.default_rng(23)
N_ITEMS, N_QUERIES = 2000, 1000
CODES = RNG.integers(0, 256, (N_ITEMS, 8), dtype=np.uint8)
CODES[1000:] = CODES[:1000]
QUERIES = np.concatenate((CODES[:500], RNG.integers(0, 256, (500, 8), dtype=np.uint8)))
TABLE = distances(QUERIES, CODES, 64)
IDS = [row if row % 3 else f"name {row}" for row in range(N_ITEMS)]
# Integer ids come first at the same distance, then names as they were put.
ORDER = np.array(sorted(range(N_ITEMS), key=lambda row: (row % 3 == 0, row)))
FILTERS = {"nothing": {"parity": 7}, "few": {"tens": 3}, "half": {"parity": 1}, "all": {"is": True}}


def payload(row):
    return {"parity": row % 2, "tens": row % 200, "is": True}


def naive(query, radius, limit, filter):
    """Return (id, distance) of the hits of a query, by sorting everything."""
    passing = [row for row in ORDER if all(payload(row)[name] == value for name, value in (filter or {}).items())]
    near = sorted(((TABLE[query, row], place, row) for place, row in enumerate(passing)), key=lambda hit: hit[:2])
    return [(IDS[row], int(distance)) for distance, _, row in near if distance <= radius][:limit]


def fill(store, **more):
    store.put_rows(IDS, codes=CODES, payloads=[payload(row) for row in range(N_ITEMS)], **more)
    return store


def check(hits, radius, limit, filter):
    assert len(hits) == N_QUERIES
    for query in (*range(0, N_QUERIES, 97), N_QUERIES - 1):
        assert [(hit.id, hit.distance) for hit in hits[query]] == naive(query, radius, limit, filter)


@pytest.fixture(scope="module", params=["folder", "postgres"])
def store(request, tmp_path_factory):
    from hamtarget.store import Store

    if request.param == "folder":
        place = tmp_path_factory.mktemp("bounded") / "store"
    else:
        place = request.getfixturevalue("postgres_server").url(store="bounded")
    with Store.create(place, n_bits=64, radius=2) as store:
        yield fill(store)


@pytest.fixture(params=["as they are", "tiny"])
def sizes(request, monkeypatch):
    """Bounds as they are, and so small that every way of going on is taken."""
    if request.param == "tiny":
        for name, value in (("_FEW_HITS", 2), ("_MANY_HITS", 5), ("_HITS_AT_ONCE", 40), ("_BLOCK_ROWS", 300)):
            monkeypatch.setattr(finding, name, value)


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize("filter", [*FILTERS.values(), None], ids=[*FILTERS, "without"])
def test_a_thousand_queries_with_any_filter_find_what_sorting_finds(store, filter):
    for radius, limit in ((63, 1), (2, None), (2, 1), (30, 7)):
        check(store.search_batch(codes=QUERIES, radius=radius, limit=limit, filter=filter), radius, limit, filter)
    check(store.nearest_batch(codes=QUERIES, k=3, filter=filter), 64, 3, filter)
    logits = unpack(QUERIES, 64) - 0.5
    check(store.search_batch(Asked(logits=logits), budget=N_ITEMS, radius=63, limit=1, filter=filter), 63, 1, filter)
    for query in (0, N_QUERIES - 1):
        for radius, limit in ((63, None), (63, 1), (2, None)):
            one = store.search(code=QUERIES[query], radius=radius, limit=limit, filter=filter)
            assert [(hit.id, hit.distance) for hit in one] == naive(query, radius, limit, filter)


def test_memory_grows_with_the_answer_and_not_with_rows_times_queries(postgres_stores):
    """All rows of all queries are 2 million hits, 32 MB and several times that on the way; the answer is 1,000."""
    with fill(postgres_stores.create(n_bits=64, radius=2)) as store:
        for filter in (*FILTERS.values(), None):
            store.search_batch(codes=QUERIES[:20], radius=63, limit=1, filter=filter)
            tracemalloc.start()
            store.search_batch(codes=QUERIES, radius=63, limit=1, filter=filter)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 4_000_000


def test_reranked_hits_are_those_of_a_search_for_each_query(stores):
    vectors = RNG.normal(size=(N_ITEMS, 4)).astype(np.float32)
    with fill(stores.create(n_bits=64, radius=2, embeddings=Embeddings(4)), embeddings=vectors) as store:
        wanted = {"radius": 30, "limit": 6, "rerank": 3, "filter": {"parity": 1}}
        batch = store.search_batch(Asked(QUERIES[:200], embeddings=vectors[:200]), **wanted)
        for query in range(0, 200, 13):
            rows = [IDS.index(id) for id, _ in naive(query, 30, 6, {"parity": 1})]
            closest = sorted(rows, key=lambda row: float(np.linalg.norm(vectors[row] - vectors[query])))[:3]
            assert [hit.id for hit in batch[query]] == [IDS[row] for row in closest]


def slow(postgres_stores):
    """Let the server take a minute for the first look at any item."""
    postgres_stores.sql(
        "CREATE FUNCTION wait_for_long() RETURNS boolean LANGUAGE sql VOLATILE AS 'SELECT pg_sleep(60) IS NOT NULL'",
        "ALTER TABLE items RENAME TO all_items",
        "CREATE VIEW items AS SELECT i.* FROM all_items i, (SELECT wait_for_long() AS done OFFSET 0) w WHERE w.done",
    )


CALLS = {
    "search": lambda store, limits: store.search(code=CODES[0], work=Work(limits)),
    "search far": lambda store, limits: store.search(code=CODES[0], radius=40, work=Work(limits)),
    "search_batch": lambda store, limits: store.search_batch(codes=CODES[:50], radius=40, work=Work(limits)),
    "filtered": lambda store, limits: store.search(code=CODES[0], filter={"parity": 1}, work=Work(limits)),
    "nearest": lambda store, limits: store.nearest(code=CODES[0], k=5, work=Work(limits)),
    "probe": lambda store, limits: store.search(Asked(logits=np.ones(64)), budget=10, work=Work(limits)),
    "get": lambda store, limits: store.get([1, "name 0"], work=Work(limits)),
    "count": lambda store, limits: store.count({"parity": 1}, work=Work(limits)),
    "scan": lambda store, limits: list(store.scan(work=Work(limits))),
    "near_duplicates": lambda store, limits: list(store.near_duplicates(work=Work(limits))),
    "groups": lambda store, limits: store.groups(work=Work(limits)),
}


def working_statements(postgres_stores):
    sql = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hamtarget' AND state = 'active'"
    return postgres_stores.sql(sql)[0][0]


@pytest.mark.parametrize("way", ["deadline", "cancelled"])
@pytest.mark.parametrize("call", CALLS)
def test_the_server_stops_when_the_time_is_over(postgres_stores, call, way):
    with fill(postgres_stores.create(n_bits=64, radius=2)) as store:
        slow(postgres_stores)
        limits = Bounds(seconds=0.2).start() if way == "deadline" else Bounds().start()
        if way == "cancelled":
            threading.Timer(0.2, limits.cancel).start()
        begin = time.monotonic()
        with pytest.raises(LimitError) as told:
            CALLS[call](store, limits)
        # The server would take a minute.
        assert time.monotonic() - begin < 5
        assert told.value.limit == {"deadline": "seconds", "cancelled": "cancelled"}[way]
        assert working_statements(postgres_stores) == 0
        postgres_stores.sql("DROP VIEW items", "ALTER TABLE all_items RENAME TO items")
        assert [hit.id for hit in store.search(code=CODES[1], radius=0)] == [1, 1001]
        assert store.count({"parity": 1}) == N_ITEMS / 2


def test_a_server_that_does_not_stop_is_left_alone(postgres_stores, monkeypatch):
    monkeypatch.setattr(limited, "_PATIENCE_SECONDS", 0.2)
    with fill(postgres_stores.create(n_bits=64, radius=2)) as store:
        slow(postgres_stores)
        monkeypatch.setattr(limited.connection_class(), "cancel_safe", lambda *_, **__: None)
        for call in (CALLS["search"], CALLS["count"]):
            with pytest.raises(LimitError):
                call(store, Bounds(seconds=0.1).start())
        postgres_stores.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'hamtarget' "
            "AND state = 'active'",
            "DROP VIEW items",
            "ALTER TABLE all_items RENAME TO items",
        )
        assert len(store.search(code=CODES[1], radius=0)) == 2


def test_a_past_deadline_asks_the_server_nothing(postgres_stores):
    with fill(postgres_stores.create(n_bits=64, radius=2)) as store, Mirror(postgres_stores.place()) as mirror:
        for call in CALLS.values():
            with pytest.raises(LimitError):
                call(store, Bounds(seconds=0).start())
        with pytest.raises(LimitError):
            mirror.search_batch(CODES, 63, work=Work(Bounds(seconds=0)))
        with pytest.raises(LimitError):
            mirror.search_batch(CODES, 63, work=Work(Bounds(hits=10_000)))
        assert len(mirror.search(CODES[1], 0)) == 2


@pytest.mark.usefixtures("sizes")
def test_rows_hits_and_bytes_are_bounded(store):
    n_near = len(naive(0, 2, None, None))
    assert len(store.search(code=QUERIES[0], work=Work(Bounds(hits=n_near)))) == n_near
    for wanted in ({"radius": 63}, {"radius": 63, "filter": {"parity": 1}}):
        with pytest.raises(LimitError) as told:
            store.search_batch(codes=QUERIES, **wanted, work=Work(Bounds(hits=10_000)))
        assert told.value.limit == "hits"
        with pytest.raises(LimitError) as told:
            store.search_batch(codes=QUERIES, limit=1, **wanted, work=Work(Bounds(rows=10_000)))
        assert told.value.limit == "rows"
        bound = Bounds(hits=N_QUERIES, rows=10 * N_ITEMS * N_QUERIES).start()
        assert len(store.search_batch(codes=QUERIES, limit=1, **wanted, work=Work(bound)).rows) == N_QUERIES
    with pytest.raises(LimitError) as told:
        store.search(code=QUERIES[0], work=Work(Bounds(hits=n_near - 1)))
    assert told.value.limit == "hits"
    with pytest.raises(LimitError) as told:
        store.search(code=QUERIES[0], work=Work(Bounds(rows=1)))
    assert told.value.limit == "rows"
    with pytest.raises(LimitError) as told:
        store.get(IDS, work=Work(Bounds(bytes=1000)))
    assert told.value.limit == "bytes"
    assert len(store.get(IDS, work=Work(Bounds(bytes=1_000_000)))) == N_ITEMS
    with pytest.raises(LimitError) as told:
        list(store.scan(work=Work(Bounds(bytes=1000))))
    assert told.value.limit == "bytes"
    assert [item.id for item in store.scan(work=Work(Bounds(bytes=1_000_000)))] == [IDS[row] for row in ORDER]
    with pytest.raises(LimitError) as told:
        store.count({"parity": 1}, work=Work(Bounds(rows=N_ITEMS - 1)))
    assert told.value.limit == "rows"


def test_large_items_are_scanned_a_few_at_a_time(postgres_stores, monkeypatch):
    from hamtarget.store.postgres import rows

    monkeypatch.setattr(rows, "_BYTES_AT_ONCE", 1000)
    with postgres_stores.create(n_bits=64) as store:
        store.put(Item(row, code=CODES[row], payload={"text": "x" * (row % 5) * 300}) for row in range(50))
        assert [item.id for item in store.scan(work=Work(Bounds(bytes=100_000)))] == list(range(50))
        assert store.get([3], work=Work(Bounds(bytes=1000)))[0].payload == {"text": "x" * 900}
