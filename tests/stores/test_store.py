"""What a store keeps, finds and refuses."""

import json
import math
import sqlite3
import threading
from types import MappingProxyType

import numpy as np
import pytest

from hamtarget.answer import Hits
from hamtarget.codes import distances
from hamtarget.errors import (
    ClosedError,
    DtypeError,
    FileError,
    InputError,
    LockedError,
    NotFiniteError,
    ReadOnlyError,
    ShapeError,
)
from hamtarget.query import Asked, Work
from hamtarget.search import Answer, Embeddings, Hit, MultiIndex
from hamtarget.store import Item, Store
from hamtarget.store.reports import Pair

RNG = np.random.default_rng(11)
CODES = RNG.integers(0, 256, (500, 8), dtype=np.uint8)
# Some of them near each other.
CODES[100:200] = CODES[:100]
CODES[100:150, 0] ^= 1
CODES[150:200, 3] ^= 0b110


@pytest.fixture
def store(stores):
    with stores.create(n_bits=64, radius=2) as store:
        yield store


@pytest.fixture
def folder_store(folder_stores):
    with folder_stores.create(n_bits=64, radius=2) as store:
        yield store


def naive_search(codes, ids, query, radius):
    """Ids within the radius; integers first, then by time of storing: the order of `ids`."""
    found = distances(query[None], codes, 64)[0].tolist()
    hits = [(distance, place) for place, distance in enumerate(found) if distance <= radius]
    return [(ids[place], distance) for distance, place in sorted(hits)]


def pairs(hits):
    return [(hit.id, hit.distance) for hit in hits]


@pytest.mark.parametrize(
    "ids",
    [
        list(range(500)),
        [f"item {number}" for number in range(500)],
        [*range(-100, 150), *(f"{number}" for number in range(250))],
        [*(2**63 - 1 - number for number in reversed(range(500)))],
    ],
    ids=["integers", "strings", "both", "large"],
)
def test_search_finds_what_a_loop_finds(stores, ids):
    with stores.create(n_bits=64, radius=2) as store:
        store.put_rows(ids, codes=CODES)
        batch = store.search_batch(codes=CODES[:60])
        assert isinstance(batch, Answer)
        for place in range(60):
            expected = naive_search(CODES, ids, CODES[place], 2)
            assert pairs(batch[place]) == expected
            one = store.search(code=CODES[place])
            assert isinstance(one, Hits)
            assert pairs(one) == expected
            assert (
                pairs(store.search(code=CODES[place], radius=30, limit=7))
                == (naive_search(CODES, ids, CODES[place], 30)[:7])
            )
            assert pairs(store.nearest(code=CODES[place], k=5)) == naive_search(CODES, ids, CODES[place], 63)[:5]
        assert [type(hit.id) for hit in batch[3]] == [type(id) for id, _ in naive_search(CODES, ids, CODES[3], 2)]
    with stores.open(read_only=True) as store:
        assert [pairs(hits) for hits in store.search_batch(codes=CODES[:60])] == [pairs(hits) for hits in batch]


def test_names_are_learned_query_by_query_and_kept_when_the_index_is_read_anew(folder_stores):
    ids = [*range(100), *(f"item {number}" for number in range(300)), *(2**62 + number for number in range(100))]
    with folder_stores.create(n_bits=64, radius=2) as store:
        store.put_rows(ids, codes=CODES)
        with folder_stores.open(read_only=True) as reader:
            expected = [naive_search(CODES, ids, query, 2) for query in CODES]
            for _ in range(2):
                assert [pairs(reader.search(code=query)) for query in CODES] == expected
            live = reader._engine._live
            before, names = live.index, live.names
            live.is_torn = True
            live.begin()
            assert [pairs(reader.search(code=query)) for query in CODES] == expected
            assert live.index is not before
            assert live.names is names
            store.put_rows(["new"], codes=CODES[:1])
            store.delete([0, "item 0"])
            assert ("new", 0) in pairs(reader.search(code=CODES[0]))
            assert 0 not in [id for id, _ in pairs(reader.search(code=CODES[0]))]
            assert "item 0" not in [id for id, _ in pairs(reader.search(code=CODES[100]))]


def test_names_of_deleted_items_are_forgotten_and_hits_keep_theirs(folder_stores, monkeypatch):
    monkeypatch.setattr("hamtarget.store.live._LEAST_FORGOTTEN", 100)
    with folder_stores.create(n_bits=64, radius=2) as store:
        codes = np.zeros((50, 8), np.uint8)
        code = codes[0]
        for turn in range(20):
            ids = [f"{turn}-{number}" for number in range(50)]
            store.put_rows(ids, codes=codes)
            early = store.search_batch(codes=codes[:1])
            assert sorted(hit.id for hit in store.search(code=code)) == sorted(ids)
            store.delete(ids)
            # Made only now, when the store may have begun its names anew.
            assert sorted(early.ids.tolist()) == sorted(ids)
            assert len(store.search(code=code)) == 0
            assert len(store._engine._live.names) <= 150


def test_an_integer_and_the_same_digits_as_a_string_are_two_ids(store):
    store.put([Item(1, code=CODES[0], payload={"is": "integer"}), Item("1", code=CODES[1], payload={"is": "string"})])
    assert len(store) == 2
    assert [item.payload["is"] for item in store.get([1, "1"])] == ["integer", "string"]
    assert store.delete(["1"]) == 1
    assert 1 in store
    assert "1" not in store
    assert None not in store
    assert True not in store


@pytest.mark.parametrize(
    "id",
    [
        "",
        " ",
        "a\0b",
        "'; DROP TABLE items; --",
        '"quoted"',
        "\N{PILE OF POO}" * 256,
        "x" * 1024,
        "../../etc/passwd",
        "naïve",
        "nai\u0308ve",
        0,
        -1,
        2**62 - 1,
        2**62,
        2**63 - 1,
        -(2**63),
        np.int32(7),
        np.str_("numpy"),
    ],
    ids=repr,
)
def test_every_id_comes_back_as_it_was(stores, id):
    with stores.create(n_bits=64, radius=2) as store:
        store.put([Item(id, code=CODES[0]), Item("other", code=CODES[1])])
    with stores.open() as store:
        assert [item.id for item in store.get([id])] == [id]
        assert [hit.id for hit in store.search(code=CODES[0])] == [id]
        assert sum(item.id == id for item in store.scan()) == 1
        assert store.verify().ok
        assert store.delete([id]) == 1
        assert len(store) == 1


def test_texts_that_differ_in_one_byte_after_a_nul_are_two_ids(store):
    store.put_rows(["a\0b", "a\0c", "a"], codes=CODES[:3], payloads=[{"n": 1}, {"n": 2}, {"n": 3}])
    assert [item.payload["n"] for item in store.get(["a", "a\0c", "a\0b"])] == [3, 2, 1]


@pytest.mark.parametrize(
    ("id", "error", "what"),
    [
        (1.0, DtypeError, "float"),
        (True, DtypeError, "bool"),
        (None, DtypeError, "NoneType"),
        (b"bytes", DtypeError, "bytes"),
        (2**63, InputError, "64 bits"),
        ("x" * 1025, InputError, "1,024 bytes"),
        ("ü" * 513, InputError, "1,024 bytes"),
        ("\ud800", InputError, "surrogate"),
    ],
)
def test_what_is_no_id_is_refused(store, id, error, what):
    with pytest.raises(error, match=what):
        store.put([Item(id, code=CODES[0])])
    with pytest.raises(error, match=what):
        store.put_rows([id], codes=CODES[:1])
    with pytest.raises(error, match=what):
        store.delete([id])
    assert len(store) == 0


def test_ids_may_come_in_anything_that_can_be_gone_through(store):
    store.put_rows((f"{number}" for number in range(3)), codes=CODES[:3])
    store.put_rows(np.array(["x", "y"]), codes=CODES[:2])
    store.put_rows({7: None, 8: None}, codes=CODES[:2])
    assert store.delete({"0", 7}) == 2
    assert [item.id for item in store.get(dict.fromkeys(["1", "x", 8]))] == ["1", "x", 8]


def test_a_string_is_not_a_list_of_ids(store):
    with pytest.raises(ShapeError, match="list of ids"):
        store.delete("abc")
    with pytest.raises(ShapeError, match="dimensions"):
        store.get(np.zeros((2, 2), dtype=np.int64))


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {},
        {"a": None, "b": [1, 2.5, "x"], "c": {"d": [True, False, {}]}},
        {"": "empty name", 'quote"': 1, "back\\slash": 2, "nul\0": "a\0b", "emoji \N{PILE OF POO}": "\N{PILE OF POO}"},
        {"sql": "'; DROP TABLE items; --", "path": "../../../etc/passwd"},
        {"long": "x" * 1_000_000},
        {"big": 2**200, "small": 5e-324, "negative": -0.0, "digits": 0.1 + 0.2},
        {"image": "pictures/1.jpg"},
        MappingProxyType({"read": "only"}),
    ],
    ids=lambda payload: repr(payload)[:30],
)
def test_every_payload_comes_back_as_it_was(stores, payload):
    with stores.create(n_bits=64, radius=2) as store:
        store.put([Item("id", code=CODES[0], payload=payload)])
    with stores.open() as store:
        found = store.get(["id"])[0].payload
        assert found == payload
        assert json.dumps(found) == json.dumps(payload if payload is None else dict(payload))
        assert store.payloads(["id", "none"]) == [payload, None]
        assert store.verify().ok


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"in": value}
    return value


@pytest.mark.parametrize(
    ("payload", "error", "what"),
    [
        ([1], DtypeError, "object"),
        ("text", DtypeError, "object"),
        ({"a": math.nan}, NotFiniteError, "NaN"),
        ({"a": {"b": [math.inf]}}, NotFiniteError, "infinity"),
        ({1: "a"}, DtypeError, "strings"),
        ({"a": [{1: 2}]}, DtypeError, "strings"),
        ({"a": {1, 2}}, DtypeError, "not JSON"),
        ({"a": np.float32(1)}, DtypeError, "not JSON"),
        ({"a": b"bytes"}, DtypeError, "not JSON"),
        ({"a": "\ud800"}, InputError, "surrogate"),
        ({"a": "x" * 2**24}, InputError, "at most 16,777,216"),
        (nested(101), InputError, "deeper than 100"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_is_no_payload_is_refused(store, payload, error, what):
    with pytest.raises(error, match=what):
        store.put([Item(1, code=CODES[0], payload=payload)])
    with pytest.raises(error, match=what):
        store.put_rows([1], codes=CODES[:1], payloads=[payload])
    assert len(store) == 0
    assert store.sequence == 0


def test_put_replaces_the_whole_item(store):
    store.put([Item("a", code=CODES[0], payload={"version": 1}), Item(5, code=CODES[0], payload={"version": 1})])
    store.put([Item("a", code=CODES[1]), Item(5, code=CODES[1])])
    assert len(store) == 2
    assert store.payloads(["a", 5]) == [None, None]
    assert not store.search(code=CODES[0], radius=0)
    assert [hit.id for hit in store.search(code=CODES[1], radius=0)] == [5, "a"]


def test_of_an_id_that_is_given_twice_the_last_one_counts(store):
    assert store.put([Item("a", code=CODES[0]), Item("b", code=CODES[1]), Item("a", code=CODES[2])]) == 3
    store.put_rows([7, 8, 7], codes=CODES[:3], payloads=[{"n": 0}, {"n": 1}, {"n": 2}])
    assert len(store) == 4
    np.testing.assert_array_equal(store.get(["a"])[0].code, CODES[2])
    assert store.payloads([7]) == [{"n": 2}]
    assert store.verify().ok


def test_delete_tells_how_many_were_there(store):
    store.put_rows([*range(10), *"abc"], codes=CODES[:13])
    assert store.delete([3, 3, "a", "nobody", 99]) == 2
    assert store.delete([3]) == 0
    assert store.delete([]) == 0
    assert len(store) == 11
    assert store.get([3, "a", 4])[:2] == [None, None]
    assert store.verify().ok


def test_an_id_that_comes_back_after_deletion_is_found_again(store):
    for _ in range(3):
        store.put([Item("a", code=CODES[0]), Item(1, code=CODES[0])])
        assert [hit.id for hit in store.search(code=CODES[0])] == [1, "a"]
        assert store.delete(["a", 1]) == 2
        assert not store.search(code=CODES[0])
    store.put([Item("a", code=CODES[0])])
    assert store.verify().ok


def test_a_transaction_is_all_or_nothing(store):
    store.put_rows(range(10), codes=CODES[:10])
    before = store.sequence

    def fail():
        with store.transaction():
            store.put([Item("new", code=CODES[20])])
            store.delete([1, 2])
            raise KeyError("something else")

    with pytest.raises(KeyError):
        fail()
    assert store.sequence == before
    assert len(store) == 10
    assert not store.search(code=CODES[20])
    with store.transaction():
        store.put([Item("new", code=CODES[20])])
        store.delete([1, 2])
        store.put([Item(1, code=CODES[21])])
        assert len(store) == 10, "not yet committed"
        assert "new" not in store
    assert store.sequence == before + 1
    assert len(store) == 10
    assert [hit.id for hit in store.search(code=CODES[20])] == ["new"]
    assert [hit.id for hit in store.search(code=CODES[21])] == [1]
    assert store.verify().ok


def test_a_part_that_fails_leaves_the_rest_of_the_transaction(store):
    with store.transaction():
        store.put([Item("before", code=CODES[0])])
        with pytest.raises(InputError, match="code"):
            # Thousands of items have been written when the last one turns out to have no code.
            store.put([*(Item(f"part {number}", code=CODES[1]) for number in range(5000)), Item("no code")])
        store.put([Item("after", code=CODES[2])])
    assert sorted(item.id for item in store.scan()) == ["after", "before"]
    assert store.verify().ok


def test_errors_of_other_databases_within_a_transaction_stay_what_they_are(store):
    other = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.OperationalError, match="no such table"), store.transaction():
        other.execute("SELECT * FROM items")
    other.close()


def test_put_fails_as_a_whole(store):
    def items():
        for number in range(5000):
            yield Item(number, code=CODES[0])
        raise RuntimeError("the source is broken")

    with pytest.raises(RuntimeError, match="broken"):
        store.put(items())
    assert len(store) == 0
    assert list(store.scan()) == []


@pytest.mark.parametrize(
    ("call", "error", "what"),
    [
        (lambda store: store.put([Item(1)]), InputError, "either an input or a code"),
        (lambda store: store.put([Item(1, input=[1.0], code=CODES[0])]), InputError, "either an input or a code"),
        (lambda store: store.put([Item(1, input=[1.0])]), InputError, "has no encoder"),
        (lambda store: store.put([(1, CODES[0])]), DtypeError, "expected Item"),
        (lambda store: store.put([Item(1, code=CODES[0, :4])]), ShapeError, "4 bytes"),
        (lambda store: store.put([Item(1, code=CODES[:1])]), ShapeError, "2 dimensions"),
        (lambda store: store.put([Item(1, code=[1.0] * 8)]), DtypeError, "uint8"),
        (lambda store: store.put([Item(1, code=CODES[0], embedding=[1.0])]), InputError, "keeps none"),
        (lambda store: store.put_rows([1], codes=CODES[:1], embeddings=[[1.0]]), InputError, "keeps none"),
        (lambda store: store.put_rows([1, 2], codes=CODES[:1]), ShapeError, "2 ids for 1 codes"),
        (lambda store: store.put_rows([1], codes=CODES[:1], payloads=[]), ShapeError, "0 payloads"),
        (lambda store: store.put_rows([1]), InputError, "give one of them"),
        (lambda store: store.search(), InputError, "give one of them"),
        (lambda store: store.search([1.0], code=CODES[0]), InputError, "give one of them"),
        (lambda store: store.search(code=CODES[0], radius=64), InputError, "radius is 64"),
        (lambda store: store.search(code=CODES[0], limit=0), InputError, "limit is 0"),
        (lambda store: store.search(code=CODES[0], rerank=3), InputError, "no embeddings"),
        (lambda store: store.nearest(code=CODES[0], k=0), InputError, "k is 0"),
        (lambda store: store.nearest(code=CODES[0], k=0, filter={"a": 1}), InputError, "k is 0"),
        (lambda store: list(store.near_duplicates(64)), InputError, "radius is 64"),
        (lambda store: store.groups(-1), InputError, "radius is -1"),
    ],
)
def test_what_does_not_fit_is_refused(store, call, error, what):
    with pytest.raises(error, match=what):
        call(store)
    assert len(store) == 0


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({}, "encoder nor n_bits"),
        ({"n_bits": 63}, "multiple of 8"),
        ({"n_bits": 64, "radius": 64}, "radius is 64"),
        ({"n_bits": 64, "radius": 2, "substrings": 9}, "substrings is 9"),
        ({"n_bits": 64, "durability": "none"}, "durability is 'none'"),
    ],
)
def test_settings_that_make_no_store_are_refused_and_leave_nothing(stores, tmp_path, settings, what):
    with pytest.raises(InputError, match=what):
        stores.create(**settings)
    assert list(tmp_path.iterdir()) == []


def test_settings_are_kept(stores):
    kept = {"n_bits": 128, "radius": 5, "substrings": 3, "embeddings": Embeddings(4, "float16", "cosine")}
    stores.create(**kept, durability="os").close()
    with stores.open() as store:
        found = (store.n_bits, store.radius, store.embeddings, store.has_encoder)
        assert found == (128, 5, Embeddings(4, "float16", "cosine"), False)
        assert store._engine.settings.substrings == 3


def test_a_folder_with_something_in_it_is_left_alone(folder_stores, tmp_path):
    stores = folder_stores
    (tmp_path / "store").mkdir()
    stores.create(n_bits=64).close()
    with pytest.raises(FileError, match="not an empty folder"):
        stores.create(n_bits=64)
    with pytest.raises(FileError, match="no such folder"):
        stores.open("nowhere")
    (tmp_path / "empty").mkdir()
    for read_only in (True, False):
        with pytest.raises(FileError, match="no store"):
            stores.open("empty", read_only=read_only)
    assert list((tmp_path / "empty").iterdir()) == []


def test_embeddings_are_kept_and_rank_hits(stores):
    vectors = RNG.normal(size=(200, 6)).astype(np.float32)
    codes = np.tile(CODES[:20], (10, 1))
    with stores.create(n_bits=64, radius=2, embeddings=Embeddings(6)) as store:
        store.put_rows([f"{number}" for number in range(150)], codes=codes[:150], embeddings=vectors[:150])
        store.put(Item(f"{number}", code=codes[number], embedding=vectors[number]) for number in range(150, 200))
        with pytest.raises(InputError, match="embedding"):
            store.put([Item("without", code=codes[0])])
        with pytest.raises(ShapeError, match="6"):
            store.put_rows(["short"], codes=codes[:1], embeddings=vectors[:1, :3])
    with stores.open() as store:
        np.testing.assert_array_equal(store.get(["7"])[0].embedding, vectors[7])
        hits = store.search(Asked(codes[3], embeddings=vectors[3]), rerank=4)
        same = [number for number in range(200) if number % 20 == 3]
        distance = np.linalg.norm(vectors[same] - vectors[3], axis=1)
        assert [hit.id for hit in hits] == [f"{same[place]}" for place in np.argsort(distance)[:4]]
        np.testing.assert_allclose([hit.embedding_distance for hit in hits], np.sort(distance)[:4], rtol=1e-5)
        batch = store.nearest_batch(Asked(codes[:5], embeddings=vectors[:5]), k=20, rerank=3)
        assert batch.embedding_distances.shape == (15,)
        assert [hit.id for hit in batch[3]] == [
            hit.id for hit in store.nearest(Asked(codes[3], embeddings=vectors[3]), k=20, rerank=3)
        ]
        assert store.verify().ok


def test_scan_gives_everything_as_it_was_when_it_began(store):
    ids = [*range(50), *(f"s{number}" for number in range(50))]
    store.put_rows(ids, codes=CODES[:100], payloads=[{"n": number} for number in range(100)])
    scan = store.scan()
    first = next(scan)
    store.delete([5, "s7"])
    store.put([Item("late", code=CODES[0])])
    found = [first, *scan]
    assert [item.id for item in found] == ids
    assert [item.payload["n"] for item in found] == list(range(100))
    np.testing.assert_array_equal([item.code for item in found], CODES[:100])
    assert len(list(store.scan())) == 99


def test_items_of_one_store_can_be_put_into_another(stores):
    with (
        stores.create("a", n_bits=64, embeddings=Embeddings(3)) as a,
        stores.create("b", n_bits=64, embeddings=Embeddings(3)) as b,
    ):
        a.put_rows(range(100), codes=CODES[:100], embeddings=RNG.normal(size=(100, 3)), payloads=[{}] * 100)
        assert b.put(a.scan()) == 100
        assert [item.id for item in b.scan()] == [item.id for item in a.scan()]
        assert (
            b.search_batch(codes=CODES[:10]).distances.tolist() == a.search_batch(codes=CODES[:10]).distances.tolist()
        )


def test_pairs_and_groups_are_those_of_a_loop(store):
    ids = [*range(-50, 150), *(f"{number}" for number in range(300))]
    store.put_rows(ids, codes=CODES)
    for radius in (0, 2, 20):
        table = distances(CODES, CODES, 64)
        expected = {
            (ids[a], ids[b], int(table[a, b])) for a in range(500) for b in range(a + 1, 500) if table[a, b] <= radius
        }
        found = list(store.near_duplicates(radius))
        assert set(found) == expected
        assert len(found) == len(expected)
        groups = {id: {id} for id in ids}
        for a, b, _ in expected:
            both = groups[a] | groups[b]
            for id in both:
                groups[id] = both
        wanted = {frozenset(group) for group in groups.values() if len(group) > 1}
        found_groups = store.groups(radius, limit=None, members=None).groups
        assert {frozenset(member.id for member in group.members) for group in found_groups} == wanted
    assert isinstance(next(store.near_duplicates()), Pair)


def test_a_thousand_copies_are_one_group(store):
    store.put_rows(range(3000), codes=np.repeat(CODES[300:303], 1000, axis=0))
    told = []
    groups = store.groups(1, work=Work(progress=lambda done, total: told.append((done, total)))).groups
    assert [(group.size, len(group.members), group.is_capped) for group in groups] == [(1000, 100, True)] * 3
    assert told[-1] == (3, 3)
    assert sum(1 for _ in store.near_duplicates(0)) == 3 * 1000 * 999 // 2


def test_pairs_are_found_while_items_are_deleted(store):
    store.put_rows([*range(400), *"abcd"], codes=np.tile(CODES[:4], (101, 1)))
    found = store.near_duplicates(0)
    next(found)
    store.delete([*range(100, 300), "b"])
    assert all(pair.a != "b" for pair in found)


def test_compact_keeps_everything(stores, store):
    store.put_rows(
        [*range(400), *(f"{number}" for number in range(100))], codes=CODES, payloads=[{"x": "y" * 100}] * 500
    )
    store.delete([*range(0, 400, 2), *(f"{number}" for number in range(50))])
    before = store.stats()
    store.compact()
    after = store.stats()
    assert (after.items, after.sequence) == (before.items, before.sequence) == (250, 2)
    if stores.has_files:
        assert after.disk_bytes < before.disk_bytes
        assert after.snapshot_sequence == 2
    assert store.verify().ok
    assert [hit.id for hit in store.search(code=CODES[450], radius=0)] == ["50"]
    with store.transaction():
        for call in (store.compact, store.close):
            with pytest.raises(InputError, match="within a transaction"):
                call()
        store.put([Item(1, code=CODES[0])])
    assert 1 in store


def test_compact_does_not_wait_for_a_scan(store):
    store.put_rows(range(100), codes=CODES[:100])
    scan = store.scan()
    next(scan)
    store.delete(range(50))
    store.compact()
    assert len(list(scan)) == 99
    assert len(store) == 50


def test_a_second_writer_is_told_who_the_first_is(folder_stores, folder_store):
    import os

    stores, store = folder_stores, folder_store

    with pytest.raises(LockedError, match=f"process {os.getpid()}"):
        stores.open()
    store.put([Item(1, code=CODES[0])])
    store.close()
    with stores.open() as again:
        assert len(again) == 1


def test_a_reader_sees_changes_and_makes_none(stores, store):
    with stores.open(read_only=True) as reader:
        assert reader.read_only
        assert len(reader) == 0
        for number in range(20):
            store.put([Item(number, code=CODES[number]), Item(f"{number}", code=CODES[number])])
            assert len(reader) == 2 * number + 2
            assert [hit.id for hit in reader.search(code=CODES[number])] == [number, f"{number}"]
        store.delete(["3", 3])
        assert not reader.search(code=CODES[3])
        store.put([Item(4, code=CODES[300])])
        assert [hit.id for hit in reader.search(code=CODES[300])] == [4]
        assert [hit.id for hit in reader.search(code=CODES[4])] == ["4"]
        store.compact()
        store.delete(["5"])
        assert [hit.id for hit in reader.search(code=CODES[5])] == [5]
        assert reader.verify().ok
        for change in (lambda: reader.put([]), lambda: reader.delete([1]), reader.compact):
            with pytest.raises(ReadOnlyError, match="reading only"):
                change()


def test_a_reader_follows_over_a_compaction_that_it_slept_through(stores, store):
    store.put_rows(range(100), codes=CODES[:100])
    with stores.open(read_only=True) as reader:
        assert len(reader) == 100
        store.delete(range(50))
        store.compact()
        store.put([Item("late", code=CODES[300])])
        store.delete([60])
        assert len(reader) == 50
        assert [item.id for item in reader.scan()][-1] == "late"
        assert not reader.search(code=CODES[10], radius=0)
        assert reader.verify().ok


def test_a_reader_sees_a_commit_of_which_it_was_not_told(folder_stores, folder_store):
    """As after a writer that was killed between the commit and the counter."""
    stores, store = folder_stores, folder_store
    store.put([Item(1, code=CODES[0])])
    with stores.open(read_only=True) as reader:
        assert len(reader) == 1
        store._engine._counter.close()
        store.put([Item(2, code=CODES[1])])
        for _ in range(1000):
            if len(reader) == 2:
                break
            threading.Event().wait(0.01)
        assert len(reader) == 2


def test_what_is_closed_says_so(stores):
    store = stores.create(n_bits=64)
    store.put([Item(1, code=CODES[0])])
    scan = store.scan()
    store.close()
    store.close()
    calls = [
        lambda: store.put([Item(2, code=CODES[0])]),
        lambda: store.search(code=CODES[0]),
        lambda: store.search(code=CODES[0], filter={"a": 1}),
        lambda: store.get([1]),
        lambda: len(store),
        lambda: store.delete([1]),
        lambda: list(scan),
        store.verify,
        store.stats,
        store.compact,
        lambda: list(store.near_duplicates()),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match="closed"):
            call()


def test_threads_search_while_one_writes(store):
    """Each transaction moves both of two items: whoever sees one moved and the other not has seen half of it."""
    store.put([Item("a", code=CODES[0]), Item("b", code=CODES[0])])
    wrong, is_done = [], threading.Event()

    def look():
        while not is_done.is_set():
            batch = store.search_batch(codes=CODES[[0, 1]])
            if len(batch.ids) != 2 or len(set(batch.ids.tolist())) != 2 or len(batch[0]) == 1:
                wrong.append(batch.ids)
            items = store.get(["a", "b"])
            if (items[0].code != items[1].code).any():
                wrong.append(items)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for number in range(150):
            with store.transaction():
                store.put([Item("a", code=CODES[number % 2]), Item("c", code=CODES[400])])
                store.put([Item("b", code=CODES[number % 2])])
                store.delete(["c"])
    finally:
        is_done.set()
        for thread in threads:
            thread.join()
    assert not wrong


@pytest.mark.parametrize("filter", [None, {"n": 1}])
def test_a_search_in_the_middle_of_a_change_waits_for_its_end(folder_store, monkeypatch, filter):
    """Of two items that move together, the index has moved one when another thread looks."""
    store = folder_store
    store.put([Item("a", code=CODES[0], payload={"n": 1}), Item("b", code=CODES[0], payload={"n": 1})])
    has_looked, found = threading.Event(), []
    live = store._engine._live
    put, search = live._put, MultiIndex.find

    def look(*arguments, **options):
        hits = search(*arguments, **options)
        has_looked.set()
        return hits

    def find():
        found.append(store.search_batch(codes=CODES[:2], filter=filter))

    thread = threading.Thread(target=find)

    def put_slowly(change):
        put(change)
        if not thread.ident:
            thread.start()
            # A search that reads the database, too, may well wait before it looks.
            has_looked.wait(0.2 if filter else 10)

    monkeypatch.setattr(live, "_put", put_slowly)
    monkeypatch.setattr(MultiIndex, "find", look)
    with store.transaction():
        store.put([Item("a", code=CODES[1], payload={"n": 1})])
        store.put([Item("b", code=CODES[1], payload={"n": 1})])
    thread.join()
    assert [[hit.id for hit in hits] for hits in found[0]] == [[], ["a", "b"]]


def test_hits_are_as_small_as_they_look(store):
    store.put([Item("a", code=CODES[0], payload={"x": 1})])
    (hit,) = store.search(code=CODES[0])
    assert hit == Hit("a", 0) == ("a", 0, None)
    batch = store.search_batch(codes=CODES[:3])
    assert len(batch) == 3
    assert [len(hits) for hits in batch] == [1, 0, 0]
    assert batch[-3] == (hit,)
    with pytest.raises(IndexError, match="query 3"):
        batch[3]


def test_stats_say_what_there_is(store):
    store.put_rows(range(100), codes=CODES[:100])
    stats = store.stats()
    assert (stats.items, stats.sequence, stats.n_bits, stats.radius) == (100, 1, 64, 2)
    assert stats.snapshot_sequence is None
    assert stats.disk_bytes > stats.index_bytes > 100 * 8
    assert store.count() == len(store) == 100


def test_the_index_of_a_store_is_an_index(folder_store):
    assert isinstance(folder_store._engine.index, MultiIndex)
    assert Store.__doc__
