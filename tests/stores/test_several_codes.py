"""Items with several codes: what is kept, found, refused, repaired and bounded."""

import shutil
import sqlite3
import threading
import time

import numpy as np
import pytest

from hamtarget.codes import distances
from hamtarget.errors import CorruptFileError, DtypeError, InputError, LimitError, ShapeError
from hamtarget.query import Asked, Bounds, Work
from hamtarget.search import Embeddings
from hamtarget.store import Item, Store
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW

RNG = np.random.default_rng(7)
CODES = RNG.integers(0, 256, (400, 8), dtype=np.uint8)
VECTORS = RNG.normal(size=(400, 16)).astype(np.float32)


@pytest.fixture
def store(stores):
    with stores.create(n_bits=64, radius=2) as store:
        yield store


@pytest.fixture(scope="module")
def encoder():
    pytest.importorskip("torch")
    from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions

    training = TrainingOptions(steps=5, batch_size=64)
    return HashEncoder(64, network=NetworkOptions(width=16), training=training, device="cpu", metric="l2").fit(VECTORS)


def fail_after(store, *batches):
    """Put batches in a transaction that fails in the end."""
    with store.transaction():
        for items in batches:
            store.put(items)
        raise InterruptedError


def test_a_search_finds_an_item_once_at_its_best_distance(store):
    near = CODES[0].copy()
    near[0] ^= 1
    store.put([Item("video", codes=np.stack([near, CODES[0], CODES[0]])), Item("picture", code=near)])
    assert [hit[:2] for hit in store.search(code=CODES[0])] == [("video", 0), ("picture", 1)]
    assert [hit[:2] for hit in store.nearest(code=CODES[0], k=2)] == [("video", 0), ("picture", 1)]
    assert [hit[:2] for hit in store.search(code=CODES[0], limit=2)] == [("video", 0), ("picture", 1)]
    logits = 2.0 * np.unpackbits(CODES[0], bitorder="little") - 1
    assert [hit[:2] for hit in store.search(Asked(logits=logits), budget=10, limit=2)] == [("video", 0), ("picture", 1)]


def test_a_match_says_how_many_of_both_sides_were_matched(store):
    store.put([Item("video", codes=CODES[[0, 0, 1, 2]], payload={"label": "a"}), Item("other", codes=CODES[[0, 9]])])
    first, second = store.match(codes=CODES[[0, 1, 5]])
    assert (first.id, first.n_query_matched, first.n_query_codes) == ("video", 2, 3)
    assert (first.n_item_matched, first.n_item_codes, first.distance) == (3, 4, 0)
    assert first.pairs == ((0, 0, 0), (0, 1, 0), (1, 2, 0))
    assert (first.query_share, first.item_share) == (2 / 3, 3 / 4)
    assert (second.id, second.n_query_matched, second.item_share) == ("other", 1, 0.5)
    assert [match.id for match in store.match(codes=CODES[[0, 1, 5]], at_least=2)] == ["video"]
    assert store.match(codes=CODES[[0, 1, 5]], at_least=3) == ()
    assert [match.id for match in store.match(codes=CODES[[0, 1]], limit=1)] == ["video"]
    assert [match.id for match in store.match(codes=CODES[[0, 1]], filter={"label": "a"})] == ["video"]
    # An item with one code is matched as well.
    store.put([Item(5, code=CODES[1])])
    assert [(match.id, match.n_item_codes) for match in store.match(codes=CODES[[1]])] == [(5, 1), ("video", 4)]


def test_what_was_got_can_be_put_again(stores):
    with stores.create(n_bits=64, embeddings=Embeddings(3)) as store:
        embeddings = RNG.normal(size=(3, 3)).astype(np.float32)
        store.put([Item("a", codes=CODES[:3], embeddings=embeddings, payload={"n": 1})])
        store.put([Item(4, codes=CODES[:1], embeddings=embeddings[:1])])
        before = store.get(["a", 4])
        assert (before[0].code, before[0].embedding, before[1].codes) == (None, None, None)
        store.put(before)
        after = store.get(["a", 4])
        np.testing.assert_array_equal(after[0].codes, CODES[:3])
        np.testing.assert_array_equal(after[0].embeddings, embeddings)
        np.testing.assert_array_equal(after[1].code, CODES[0])
        with pytest.raises(ValueError, match="read-only"):
            after[0].codes[0, 0] = 1


def test_other_numbers_of_codes_take_the_place_of_those_before(stores, store):
    reader = stores.open(read_only=True)
    for n_codes in (1, 5, 2, 64, 1, 64, 3):
        for id in (7, "seven"):
            store.put([Item(id, codes=CODES[:n_codes], payload={"n": n_codes})])
        for each in (store, reader):
            assert (len(each), each.stats().codes) == (2, 2 * n_codes)
            assert [item.payload for item in each.get([7, "seven"])] == [{"n": n_codes}] * 2
            assert {match.n_item_codes for match in each.match(codes=CODES[:1])} == {n_codes}
            assert len(each.match(codes=CODES[63:64])) == (2 if n_codes == 64 else 0)
    assert store.delete([7, "seven", 8]) == 2
    assert len(store) == store.stats().codes == len(reader) == 0
    reader.close()


def test_a_transaction_that_fails_leaves_nothing(store):
    store.put([Item("a", codes=CODES[:2])])
    with pytest.raises(InterruptedError):
        fail_after(store, [Item("a", codes=CODES[:5]), Item("b", codes=CODES[:3])], [Item("a", codes=CODES[:3])])
    with store.transaction():
        store.put([Item("c", codes=CODES[:3])])
        # What fails within a transaction is undone, and the rest stays.
        with pytest.raises(InputError):
            store.put([Item("c", codes=CODES[:4]), Item("d")])
        store.delete(["c"])
    assert [item.id for item in store.scan()] == ["a"]
    assert len(store.get(["a"])[0].codes) == 2
    assert store.verify().ok


def test_hits_are_ranked_by_the_closest_embedding_of_an_item(stores):
    with stores.create(n_bits=64, radius=63, embeddings=Embeddings(2)) as store:
        store.put(
            [
                Item("far and near", codes=CODES[:2], embeddings=[[9.0, 9.0], [1.0, 0.0]]),
                Item("middle", code=CODES[2], embedding=[3.0, 0.0]),
                Item("far", codes=CODES[3:5], embeddings=[[8.0, 0.0], [9.0, 0.0]]),
            ]
        )
        hits = store.nearest(Asked(CODES[0], embeddings=[0.0, 0.0]), k=5, rerank=2)
        assert [hit.id for hit in hits] == ["far and near", "middle"]
        assert [hit.embedding_distance for hit in hits] == [1, 3]


def test_the_nearest_vectors_are_those_of_items(stores, encoder):
    with stores.create(encoder=encoder, vectors="l2") as store:
        store.put(Item(f"item {n}", inputs=VECTORS[4 * n : 4 * n + 4]) for n in range(100))
        for query in (VECTORS[17] + 0.01, VECTORS[100] + 0.1):
            apart = np.linalg.norm(VECTORS - query, axis=1).reshape(100, 4).min(axis=1)
            expected = [f"item {n}" for n in np.argsort(apart)[:10]]
            hits = store.nearest(query, k=10)
            # Vectors are kept with 16 bits.
            np.testing.assert_allclose([hit.embedding_distance for hit in hits], np.sort(apart)[:10], rtol=0.01)
            assert [hit.id for hit in hits][:3] == expected[:3]
        assert not store.needs_tuning


def test_inputs_become_codes(stores, encoder):
    with stores.create(encoder=encoder, radius=2, vectors=None) as store:
        store.put([Item("a", inputs=list(VECTORS[:3])), Item("b", input=VECTORS[5]), Item("c", inputs=VECTORS[6:8])])
        np.testing.assert_array_equal(store.get(["a"])[0].codes, encoder.encode(VECTORS[:3]))
        np.testing.assert_array_equal(store.get(["b"])[0].code, encoder.encode(VECTORS[5:6])[0])
        assert [match.id for match in store.match(VECTORS[[0, 2]], at_least=2)] == ["a"]


@pytest.mark.parametrize(
    ("call", "error", "what"),
    [
        (lambda store: store.put([Item(1, codes=CODES[:65])]), InputError, "65 codes; expected 1 to 64"),
        (lambda store: store.put([Item(1, codes=CODES[:0])]), InputError, "0 codes"),
        (lambda store: store.put([Item(1, codes=CODES[0])]), ShapeError, "1 dimensions; expected 2"),
        (lambda store: store.put([Item(1, codes=CODES[:2], code=CODES[0])]), InputError, "either an input or a code"),
        (
            lambda store: store.put([Item(1, codes=CODES[:2], embedding=[1.0])]),
            InputError,
            "embeddings=... with several",
        ),
        (lambda store: store.put([Item(1, code=CODES[0], embeddings=[[1.0]])]), InputError, "embedding=... with one"),
        (
            lambda store: store.put([Item(1, codes=CODES[:2], embeddings=[[1.0]])]),
            ShapeError,
            "1 embeddings for 2 codes",
        ),
        (lambda store: store.put_rows([1], codes=CODES[None, :65]), InputError, "65 codes"),
        (lambda store: store.put_rows([1], codes=CODES[None, :0]), InputError, "0 codes"),
        (lambda store: store.put_rows([1, 2], codes=CODES[None, :2]), ShapeError, "2 ids for 1 codes"),
        (lambda store: store.match(codes=CODES[:65]), InputError, "65 codes; expected 1 to 64"),
        (lambda store: store.match(codes=CODES[:0]), InputError, "0 codes"),
        (lambda store: store.match(codes=CODES[:3], at_least=4), InputError, "at_least is 4, and the query has 3"),
        (lambda store: store.match(codes=CODES[:3], at_least=0), InputError, "at_least is 0"),
        (lambda store: store.match(codes=CODES[:3], at_least=True), DtypeError, "at_least is True"),
        (lambda store: store.match(codes=CODES[:3], limit=0), InputError, "limit is 0"),
        (lambda store: store.match(codes=CODES[:3], radius=64), InputError, "radius is 64"),
        (lambda store: store.match(), InputError, "both missing"),
        (lambda store: store.match(CODES[:3]), InputError, "has no encoder"),
    ],
)
def test_what_does_not_fit_is_refused(store, call, error, what):
    with pytest.raises(error, match=what):
        call(store)
    assert len(store) == 0


def test_limits_bound_a_match(store):
    store.put(Item(n, codes=np.stack([CODES[0]] * 8)) for n in range(20))
    assert len(store.match(codes=CODES[:1], work=Work(Bounds(hits=160)))) == 20
    with pytest.raises(LimitError, match="hits"):
        store.match(codes=CODES[:1], work=Work(Bounds(hits=100)))
    with pytest.raises(LimitError):
        store.match(codes=CODES[:1], filter={"a": 1}, work=Work(Bounds(rows=10)))
    with pytest.raises(LimitError):
        store.match(codes=CODES[:1], work=Work(Bounds(seconds=0)))
    # A search that is limited to a few items is not refused for the codes that it looks at.
    assert len(store.search(code=CODES[0], limit=20, work=Work(Bounds(hits=20)))) == 20
    with pytest.raises(LimitError):
        list(store.scan(work=Work(Bounds(rows=100))))
    assert len(store.get(range(20), work=Work(Bounds(rows=160)))) == 20


def test_a_backup_and_the_index_after_a_loss_hold_all_codes(folder_stores, tmp_path):
    with folder_stores.create(n_bits=64, radius=2) as store:
        store.put(Item(f"{n}", codes=CODES[4 * n : 4 * n + 4], payload={"n": n}) for n in range(50))
        store.backup(tmp_path / "copy")
    for file in (tmp_path / "store").glob("index-*.ham"):
        file.unlink()
    for place in ("store", "copy"):
        with folder_stores.open(place) as store:
            assert len(store) == 50
            assert [match.id for match in store.match(codes=CODES[8:12], at_least=4)] == ["2"]
            assert store.verify().ok


def test_items_are_counted_after_a_crash_that_the_saved_index_does_not_know_of(folder_stores, tmp_path):
    """The last item with several codes was deleted after the index was saved."""
    with folder_stores.create(n_bits=64) as store:
        store.put([Item("several", codes=CODES[:3]), Item("one", code=CODES[3])])
        store.compact()
        store.delete(["several"])
        shutil.copytree(folder_stores.place(), folder_stores.place("crashed"))
    for _ in range(2):
        with folder_stores.open("crashed") as store:
            assert (len(store), store.stats().codes) == (1, 1)
            assert store.groups(2).n_groups == 0


def damage(path, sql):
    with sqlite3.connect(path / "store.db") as connection:
        connection.execute(sql)
    connection.close()


def test_repair_keeps_what_is_left_of_an_item(folder_stores, tmp_path):
    with folder_stores.create(n_bits=64, radius=2, embeddings=Embeddings(2)) as store:
        embeddings = RNG.normal(size=(4, 2)).astype(np.float32)
        for id in ("whole", "cut", 3, "headless"):
            store.put([Item(id, codes=CODES[:4], embeddings=embeddings, payload={"id": id})])
    path = folder_stores.place()
    several = f"SELECT row FROM names WHERE row >= {FIRST_SEVERAL_ROW} AND id ="
    damage(path, f"UPDATE items SET checksum = 0 WHERE row = ({several} 'cut') + 2")
    damage(path, f"UPDATE items SET checksum = 0 WHERE row > ({several} 3) AND row < ({several} 3) + 4")
    damage(path, f"UPDATE items SET checksum = 0 WHERE row = ({several} 'headless')")
    report = Store.repair(path, tmp_path / "repaired")
    assert report.items == 3
    assert (report.n_bad_rows, report.n_missing, report.missing) == (5, 1, ("headless",))
    assert any("2 items have lost some of their codes" in problem for problem in report.problems)
    with folder_stores.open("repaired") as store:
        assert store.verify().ok
        whole, cut, three = store.get(["whole", "cut", 3])
        np.testing.assert_array_equal(whole.codes, CODES[:4])
        np.testing.assert_array_equal(cut.codes, CODES[[0, 1, 3]])
        np.testing.assert_array_equal(cut.embeddings, embeddings[[0, 1, 3]])
        np.testing.assert_array_equal(three.code, CODES[0])
        assert [item.payload for item in (whole, cut, three)] == [{"id": id} for id in ("whole", "cut", 3)]
        store.put([Item("new", codes=CODES[:4], embeddings=embeddings)])
        assert len(store) == 4


def test_a_code_that_is_missing_is_noticed(folder_stores):
    with folder_stores.create(n_bits=64) as store:
        store.put([Item("a", codes=CODES[:4])])
    damage(folder_stores.place(), "DELETE FROM items WHERE row = (SELECT max(row) FROM items)")
    with folder_stores.open() as store:
        assert any("has 4 codes, of which 3 are there" in problem for problem in store.verify().problems)
        with pytest.raises(CorruptFileError, match="'a' has lost one of its codes"):
            store.get(["a"])


def test_postgres_notices_a_code_that_is_missing(postgres_stores):
    with postgres_stores.create(n_bits=64) as store:
        store.put([Item("a", codes=CODES[:4])])
        postgres_stores.sql("DELETE FROM items WHERE row = (SELECT max(row) FROM items)")
        problems = store.verify().problems
        assert any("has 4 codes, of which 3 are there" in problem for problem in problems)
        assert any("the state says 1, 4" in problem for problem in problems)
        with pytest.raises(CorruptFileError, match="lost one of its codes"):
            store.get(["a"])


def test_the_first_such_item_does_not_disturb_writers_that_wait(postgres_stores):
    with postgres_stores.create(n_bits=64) as store, postgres_stores.open() as other:
        begun = threading.Event()

        def wait_and_put():
            begun.set()
            other.put([Item("other", codes=CODES[:3])])

        waiting = threading.Thread(target=wait_and_put)
        with store.transaction():
            store.put([Item("plain", code=CODES[0])])
            waiting.start()
            begun.wait()
            # The other writer waits for the lock of this one by now, or will.
            time.sleep(0.2)
            store.put([Item("first", codes=CODES[:2])])
        waiting.join(30)
        assert {item.id for item in store.scan()} == {"plain", "first", "other"}
        assert (len(other), other.stats().codes) == (3, 6)
        assert store.verify().ok


def test_many_items_near_one_code_are_limited_exactly(store):
    """More codes than are asked for at first belong to few items."""
    codes = np.repeat(CODES[:1], 64, axis=0)
    store.put(Item(f"{n}", codes=codes) for n in range(30))
    assert [hit.id for hit in store.search(code=CODES[0], limit=25)] == [f"{n}" for n in range(25)]
    batch = store.nearest_batch(codes=CODES[:2], k=30)
    assert [len(hits) for hits in batch] == [30, 30]
    apart = int(distances(CODES[1:2], CODES[:1], 64)[0, 0])
    assert {hit.distance for hit in batch[1]} == {apart}


def test_groups_of_such_items_are_refused(store):
    store.put([Item("one", code=CODES[0]), Item("same", code=CODES[0])])
    assert store.groups(2).n_groups == 1
    store.put([Item("several", codes=CODES[:2])])
    with pytest.raises(InputError, match="has items with several codes"):
        store.groups(2)
