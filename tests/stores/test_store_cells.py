"""Cells of a folder's vectors: they follow every change, lie beside the index, and can be lost at any time."""

import os
import threading

import numpy as np
import pytest

from hamtarget.errors import ClosedError, InputError, LimitError
from hamtarget.query import Bounds, Work
from hamtarget.search import neighbor_index
from hamtarget.search.neighbors import cells
from hamtarget.store import Store
from hamtarget.store.sqlite.index import kept_cells
from hamtarget.store.vectors import nearest_vectors

pytest.importorskip("torch")

RNG = np.random.default_rng(4)
CENTRES = RNG.normal(size=(30, 12))
VECTORS = (CENTRES[RNG.integers(0, 30, 1200)] + 0.4 * RNG.normal(size=(1200, 12))).astype(np.float32)
QUERIES = (CENTRES[RNG.integers(0, 30, 40)] + 0.4 * RNG.normal(size=(40, 12))).astype(np.float32)


@pytest.fixture(scope="module")
def encoder():
    from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions

    training = TrainingOptions(steps=10, batch_size=64)
    return HashEncoder(32, network=NetworkOptions(width=16), training=training, device="cpu").fit(VECTORS[:300])


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    """Let a small store have cells, whatever the clock says."""
    monkeypatch.setattr(nearest_vectors, "FEWEST_ITEMS", 200)
    monkeypatch.setattr(nearest_vectors, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(kept_cells, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(neighbor_index, "FEWEST_ROWS_OF_CELLS", 100)
    monkeypatch.setattr(neighbor_index, "_why_slower", lambda *_: None)
    monkeypatch.setattr(cells, "N_QUERIES", 100)


def made(folder_stores, encoder, n_rows=600, **settings):
    """A tuned store of some rows, closed."""
    with folder_stores.create(encoder=encoder, vectors="l2", **settings) as store:
        store.put_rows(range(n_rows), inputs=VECTORS[:n_rows])
        store.tune()
    return folder_stores.place()


def check(store, kept, *, by_cells=True):
    """Compare what is found with a list: `kept` has the row of VECTORS of each id."""
    ids = [*kept]
    rows = VECTORS[[*kept.values()]].astype(np.float16).astype(np.float64)
    true = np.sqrt(((QUERIES[:, None].astype(np.float64) - rows[None]) ** 2).sum(axis=2))
    hits = store.nearest_batch(QUERIES, k=5, recall=0.9, work=Work(Bounds(seconds=60), costs=True))
    shares = []
    for number, mine in enumerate(hits):
        assert len({hit.id for hit in mine}) == 5
        for hit in mine:
            assert hit.embedding_distance == pytest.approx(true[number, ids.index(hit.id)], abs=1e-4)
        distances = [hit.embedding_distance for hit in mine]
        assert distances == sorted(distances)
        shares.append(np.mean(np.array(distances) <= np.sort(true[number])[4] + 1e-4))
    assert np.mean(shares) > 0.85
    assert (max(hits.costs.comparisons.tolist()) < len(kept)) == by_cells


def cell_files(folder):
    return sorted(file.name for file in folder.glob("*cells*"))


def test_cells_follow_any_order_of_changes(folder_stores, encoder):
    random = np.random.default_rng(3)
    folder = made(folder_stores, encoder)
    kept = {row: row for row in range(600)}
    store = folder_stores.open()
    reader = folder_stores.open(read_only=True)
    try:
        for turn in range(16):
            rows = random.choice(1200, 40, replace=False)
            ids = [f"name {row}" if row % 3 == 0 else int(row) for row in rows]
            if turn % 4 == 1:
                gone = [id for id in ids if id in kept]
                assert store.delete(ids) == len(gone)
                for id in gone:
                    del kept[id]
            elif turn % 4 == 2:
                for id, row in zip(ids[:5], rows[5:10], strict=True):
                    store.put_rows([id], inputs=VECTORS[[row]])
                    kept[id] = int(row)
            else:
                # The id of one row gets the vector of another.
                store.put_rows(ids, inputs=VECTORS[rows[::-1]])
                kept.update(zip(ids, rows[::-1].tolist(), strict=True))
            if turn % 5 == 4:
                store.close()
                assert len(cell_files(folder)) == 1
                store = folder_stores.open()
            check(store, kept)
            check(reader, kept)
        assert store.verify().ok
    finally:
        store.close()
        reader.close()


def test_an_opened_store_needs_no_tuning(folder_stores, encoder, monkeypatch):
    folder = made(folder_stores, encoder)
    (name,) = cell_files(folder)
    monkeypatch.setattr(nearest_vectors.NearestVectors, "tune", None)
    for how in ({"read_only": True}, {}):
        with folder_stores.open(**how) as store:
            assert not store.needs_tuning
            assert store.nearest(QUERIES[0], work=Work(costs=True)).cost.comparisons < 600
    # Nothing has changed, and nothing was written.
    assert cell_files(folder) == [name]


def test_changes_by_a_writer_that_never_searches_keep_the_cells(folder_stores, encoder):
    folder = made(folder_stores, encoder)
    before = cell_files(folder)
    with folder_stores.open() as store:
        store.put_rows([5, "new"], inputs=VECTORS[700:702])
        store.delete([8])
    (after,) = cell_files(folder)
    assert [after] != before
    kept = {row: row for row in range(600) if row != 8} | {5: 700, "new": 701}
    with folder_stores.open(read_only=True) as store:
        check(store, kept)


def test_a_crash_after_changes_keeps_the_cells(folder_stores, encoder):
    folder = made(folder_stores, encoder)
    codes = encoder.encode(VECTORS[700:702])
    child = os.fork()
    if child == 0:
        store = Store.open(folder)
        store.put_rows([5, "new"], codes=codes, embeddings=VECTORS[700:702])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    with folder_stores.open() as store:
        check(store, {row: row for row in range(600)} | {5: 700, "new": 701})


@pytest.mark.parametrize("damage", ["missing", "truncated", "altered", "another store's"])
def test_cells_that_are_lost_are_made_again(folder_stores, encoder, damage):
    folder = made(folder_stores, encoder)
    file = folder / cell_files(folder)[0]
    content = file.read_bytes()
    if damage == "missing":
        file.unlink()
    elif damage == "truncated":
        file.write_bytes(content[: len(content) // 2])
    elif damage == "altered":
        middle = len(content) // 2
        file.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    else:
        with folder_stores.create("other", encoder=encoder, vectors="l2") as other:
            other.put_rows(range(300), inputs=VECTORS[300:600])
            other.tune()
        (strange,) = folder_stores.place("other").glob("cells*")
        os.replace(strange, file)
    kept = {row: row for row in range(600)}
    with folder_stores.open() as store:
        assert store.needs_tuning
        # Under limits, all vectors are compared.
        check(store, kept, by_cells=False)
        store.nearest(QUERIES[0])
        assert not store.needs_tuning
        check(store, kept)
        assert store.verify().ok
    with folder_stores.open(read_only=True) as store:
        check(store, kept)


def test_a_reader_sees_cells_that_a_writer_makes(folder_stores, encoder):
    with folder_stores.create(encoder=encoder, vectors="l2") as store:
        store.put_rows(range(600), inputs=VECTORS[:600])
        with folder_stores.open(read_only=True) as reader:
            kept = {row: row for row in range(600)}
            check(reader, kept, by_cells=False)
            store.tune()
            check(reader, kept)
            store.compact()
            store.put_rows([3], inputs=VECTORS[900:901])
            check(reader, kept | {3: 900})


def test_a_reader_makes_cells_for_itself(folder_stores, encoder):
    with folder_stores.create(encoder=encoder, vectors="l2") as store:
        store.put_rows(range(600), inputs=VECTORS[:600])
    with folder_stores.open(read_only=True) as reader:
        reader.nearest(QUERIES[0])
        assert not reader.needs_tuning
        check(reader, {row: row for row in range(600)})
    assert cell_files(folder_stores.place()) == []


def test_changes_while_cells_are_made_are_in_them(folder_stores, encoder, monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    fit = neighbor_index.NeighborIndex.fit

    def slow_fit(self, *arguments, **options):
        begun.set()
        assert go_on.wait(60)
        return fit(self, *arguments, **options)

    with folder_stores.create(encoder=encoder, vectors="l2") as store:
        store.put_rows(range(600), inputs=VECTORS[:600])
        monkeypatch.setattr(neighbor_index.NeighborIndex, "fit", slow_fit)
        thread = threading.Thread(target=store.tune)
        thread.start()
        assert begun.wait(60)
        kept = {row: row for row in range(600)}
        check(store, kept, by_cells=False)
        store.put_rows([5, "new"], inputs=VECTORS[700:702])
        store.delete([8])
        go_on.set()
        thread.join(60)
        del kept[8]
        check(store, kept | {5: 700, "new": 701})


def test_vectors_of_another_kind_end_the_cells(folder_stores, encoder):
    numbers = np.random.default_rng(5).integers(0, 256, (400, 12))
    with folder_stores.create(encoder=encoder, vectors="l2") as store:
        store.put_rows(range(400), inputs=numbers.astype(np.float32))
        store.tune()
        assert not store.needs_tuning
        # Not a whole number from 0 to 255, as all the others.
        store.put_rows(["odd"], inputs=np.full((1, 12), 0.5, dtype=np.float32))
        assert store.needs_tuning
        assert store.nearest(np.full(12, 0.5, dtype=np.float32), k=1)[0].id == "odd"
        assert not store.needs_tuning


def test_limits_and_closing(folder_stores, encoder):
    made(folder_stores, encoder)
    store = folder_stores.open()
    with pytest.raises(LimitError):
        store.nearest_batch(QUERIES, work=Work(Bounds(rows=100)))
    with pytest.raises(LimitError):
        store.nearest_batch(QUERIES, work=Work(Bounds(hits=100)))
    with store.transaction(), pytest.raises(InputError, match="within a transaction"):
        store.tune()
    assert store.memory > 0
    store.close()
    with pytest.raises(ClosedError):
        store.nearest(QUERIES[0])


def test_what_is_faster_scanned_has_no_cells(folder_stores, encoder, monkeypatch):
    monkeypatch.setattr(neighbor_index, "_why_slower", lambda *_: "an exact scan, because it is as fast")
    folder = made(folder_stores, encoder)
    assert cell_files(folder) == []
    with folder_stores.open() as store:
        assert not store.needs_tuning
        assert store.tunings[10].points == ()
        check(store, {row: row for row in range(600)}, by_cells=False)


def test_a_long_search_says_that_it_tunes(folder_stores, encoder, monkeypatch):
    monkeypatch.setattr(nearest_vectors, "_SILENT_SECONDS", 0.0)
    with folder_stores.create(encoder=encoder, vectors="l2") as store:
        store.put_rows(range(600), inputs=VECTORS[:600])
        with pytest.warns(UserWarning, match="is tuned for its 600 vectors"):
            store.nearest(QUERIES[0])
