"""Stores that keep vectors: the nearest at a recall, tuned on the store's own rows."""

import numpy as np
import pytest

from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    InputError,
    LimitError,
    NotFiniteError,
    ShapeError,
)
from hamtarget.query import Asked, Bounds, Query, Work
from hamtarget.search import Embeddings, neighbor_index
from hamtarget.search.neighbors import cells
from hamtarget.store import Item
from hamtarget.store.vectors import nearest_vectors
from hamtarget.store.vectors.tuning import Point, Tuning, tuning_of

pytest.importorskip("torch")

RNG = np.random.default_rng(12)
CENTRES = RNG.normal(size=(40, 12))
N_ROWS = 3000
VECTORS = (CENTRES[RNG.integers(0, 40, N_ROWS)] + 0.4 * RNG.normal(size=(N_ROWS, 12))).astype(np.float32)
QUERIES = (CENTRES[RNG.integers(0, 40, 50)] + 0.4 * RNG.normal(size=(50, 12))).astype(np.float32)
METRICS = ["l2", "cosine", "dot"]


@pytest.fixture(scope="module")
def encoders():
    from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions

    training = TrainingOptions(steps=25, batch_size=64)
    return {
        metric: HashEncoder(32, network=NetworkOptions(width=16), training=training, device="cpu", metric=metric).fit(
            VECTORS[:400]
        )
        for metric in METRICS
    }


@pytest.fixture
def few_are_many(monkeypatch):
    """Let a small store be worth cells, or probing, whatever the clock says."""
    monkeypatch.setattr(nearest_vectors, "FEWEST_ITEMS", 200)
    monkeypatch.setattr(neighbor_index, "FEWEST_ROWS_OF_CELLS", 100)
    monkeypatch.setattr(neighbor_index, "_why_slower", lambda *_: None)
    monkeypatch.setattr(cells, "N_QUERIES", 200)


def naive_distances(queries, rows, metric):
    """The distance of each query to each row, in float64."""
    queries, rows = queries.astype(np.float64), rows.astype(np.float64)
    if metric == "l2":
        return np.sqrt(((queries[:, None] - rows[None]) ** 2).sum(2))
    if metric == "dot":
        return -queries @ rows.T
    unit = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (queries, rows)]
    return 1 - unit[0] @ unit[1].T


def found_share(hits, queries, rows, ids, k, metric):
    """Mean share of the true nearest that were found."""
    order = np.argsort(naive_distances(queries, rows, metric), axis=1)[:, :k]
    shares = [
        len({hit.id for hit in mine} & {ids[row] for row in true}) / k for mine, true in zip(hits, order, strict=True)
    ]
    return np.mean(shares)


@pytest.mark.parametrize("metric", METRICS)
def test_few_vectors_are_all_compared(stores, encoders, metric):
    with stores.create(encoder=encoders[metric]) as store:
        assert store.vectors == metric
        assert store.embeddings == Embeddings(12, "int8" if metric == "cosine" else "float16", metric)
        store.put_rows(range(300), inputs=VECTORS[:300])
        hits = store.nearest_batch(QUERIES, k=5, work=Work(costs=True))
        assert found_share(hits, QUERIES, VECTORS[:300], range(300), 5, metric) > 0.97
        assert set(hits.costs.comparisons.tolist()) == {300}
        distances = naive_distances(QUERIES, VECTORS[:300], metric)
        for number, mine in enumerate(hits):
            assert len(mine) == 5
            for hit in mine:
                assert hit.embedding_distance == pytest.approx(distances[number, hit.id], abs=0.02)
        assert store.nearest(QUERIES[3], k=5) == hits[3]
        assert store.nearest(QUERIES[3].tolist(), k=5, recall=1) == hits[3]
        assert store.tunings == {}
        assert not store.needs_tuning
    with stores.open(read_only=True) as store:
        assert store.vectors == metric
        assert [*store.nearest_batch(QUERIES, k=5)] == [*hits]


@pytest.mark.parametrize("metric", METRICS)
def test_more_vectors_are_found_by_what_was_measured(stores, encoders, metric, few_are_many):
    names = [f"row {row}" if row % 3 else row for row in range(N_ROWS)]
    with stores.create(encoder=encoders[metric]) as store:
        store.put_rows(names, inputs=VECTORS)
        assert store.needs_tuning
        for recall in (0.8, 0.95):
            hits = store.nearest_batch(QUERIES, k=10, recall=recall, work=Work(costs=True))
            assert found_share(hits, QUERIES, VECTORS, names, 10, metric) > recall - 0.06
        assert not store.needs_tuning
        (tuning,) = store.tunings.values()
        assert (tuning.k, tuning.n_items) == (10, N_ROWS)
        assert tuning.way == ("cells" if stores.has_files else "probe")
        point = tuning.points[0]
        assert point.budget < N_ROWS
        assert [each.recall for each in tuning.points] == sorted(each.recall for each in tuning.points)
        assert max(hits.costs.candidates.tolist()) < N_ROWS
        distances = naive_distances(QUERIES, VECTORS, metric)
        for number, mine in enumerate(hits):
            for hit in mine:
                assert hit.embedding_distance == pytest.approx(distances[number, names.index(hit.id)], abs=0.02)
        codes = encoders[metric].encode(VECTORS)
        bits = np.unpackbits(codes[names.index(hits[0][0].id)] ^ encoders[metric].encode(QUERIES[:1])[0]).sum()
        assert hits[0][0].distance == bits
        assert store.nearest(QUERIES[0]) == store.nearest_batch(QUERIES[:1])[0]
        whole = store.nearest_batch(QUERIES, recall=1, work=Work(costs=True))
        assert found_share(whole, QUERIES, VECTORS, names, 10, metric) > 0.97
        assert set(whole.costs.comparisons.tolist()) == {N_ROWS}
    with stores.open(read_only=True) as store:
        assert store.tunings == {10: tuning}


def test_what_is_measured_is_the_recall(postgres_stores, encoders, few_are_many):
    with postgres_stores.create(encoder=encoders["l2"]) as store:
        store.put_rows(range(N_ROWS), inputs=VECTORS)
        tuning = store.tune(k=4)
        point = tuning.points[-1]
        rows = np.sort(np.random.default_rng(0).choice(np.arange(N_ROWS), tuning.n_queries, replace=False))
        kept = VECTORS.astype(np.float16).astype(np.float32)
        asked = Asked(logits=store.encoder.logits(kept[rows]), embeddings=kept[rows])
        hits = store.answer(asked, Query(31, budget=point.budget, comparisons=point.comparisons, rerank=5))
        distances = naive_distances(kept[rows], kept, "l2")
        distances[np.arange(len(rows)), rows] = np.inf
        true = np.argsort(distances, axis=1)[:, :4]
        shares = [
            len({hit.id for hit in mine if hit.id != row} & set(near.tolist())) / 4
            for mine, row, near in zip(hits, rows, true, strict=True)
        ]
        assert point.recall == pytest.approx(np.mean(shares), abs=0.003)


def test_a_store_that_has_grown_is_tuned_again(stores, encoders, few_are_many):
    with stores.create(encoder=encoders["l2"]) as store:
        store.put_rows(range(400), inputs=VECTORS[:400])
        store.nearest(QUERIES[0])
        assert store.tunings[10].n_items == 400
        enough = 800 if stores.has_files else 600
        store.put_rows(range(400, enough), inputs=VECTORS[400:enough])
        store.nearest(QUERIES[0])
        assert store.tunings[10].n_items == 400
        store.put_rows([enough], inputs=VECTORS[enough : enough + 1])
        assert store.needs_tuning
        store.nearest(QUERIES[0])
        assert store.tunings[10].n_items == enough + 1
        # More neighbours need another measurement; fewer do not.
        store.nearest(QUERIES[0], k=30)
        store.nearest(QUERIES[0], k=3)
        assert [*store.tunings] == [10, 30]


def test_under_limits_nothing_is_tuned(stores, encoders, few_are_many):
    with stores.create(encoder=encoders["l2"]) as store:
        store.put_rows(range(400), inputs=VECTORS[:400])
        hits = store.nearest(QUERIES[0], work=Work(Bounds(rows=400), costs=True))
        assert hits.cost.comparisons == 400
        assert store.tunings == {}
        with pytest.raises(LimitError):
            store.nearest(QUERIES[0], work=Work(Bounds(rows=399)))


def test_a_filter_leaves_the_nearest_of_those_that_pass(stores, encoders, few_are_many):
    payloads = [{"odd": bool(row % 2)} for row in range(600)]
    with stores.create(encoder=encoders["cosine"]) as store:
        store.put_rows(range(600), inputs=VECTORS[:600], payloads=payloads)
        hits = store.nearest_batch(QUERIES, k=7, recall=0.5, filter={"odd": True})
        ids = list(range(1, 600, 2))
        assert found_share(hits, QUERIES, VECTORS[1:600:2], ids, 7, "cosine") > 0.97


def test_fewer_items_than_wanted_are_all_found(stores, encoders):
    with stores.create(encoder=encoders["l2"]) as store:
        assert store.nearest(QUERIES[0]) == ()
        store.put([Item("a", input=VECTORS[0]), Item("b", input=VECTORS[1])])
        assert {hit.id for hit in store.nearest(VECTORS[0], k=10)} == {"a", "b"}
        with pytest.raises(InputError, match="2 items"):
            store.tune()


def test_any_order_of_changes_is_found_as_by_a_list(stores, encoders, few_are_many):
    random = np.random.default_rng(3)
    kept = {}
    store = stores.create(encoder=encoders["l2"])
    try:
        for turn in range(12):
            rows = random.choice(N_ROWS, 60, replace=False)
            if turn % 3 == 2:
                gone = [int(row) for row in rows if int(row) in kept]
                assert store.delete(rows.tolist()) == len(gone)
                kept = {id: row for id, row in kept.items() if id not in set(gone)}
            else:
                # The id of one row gets the vector of another.
                store.put_rows(rows.tolist(), inputs=VECTORS[rows[::-1]])
                kept.update(zip(rows.tolist(), rows[::-1].tolist(), strict=True))
            if turn % 5 == 4:
                store.close()
                store = stores.open()
            # Several ids may have one vector: which of them is found is not said, but at what distance.
            distances = np.sort(naive_distances(QUERIES[:10], VECTORS[[*kept.values()]], "l2"), axis=1)[:, :5]
            for mine, true in zip(store.nearest_batch(QUERIES[:10], k=5, recall=1), distances, strict=True):
                assert [hit.embedding_distance for hit in mine] == pytest.approx(true.tolist(), abs=2e-3)
                assert {hit.id for hit in mine} <= kept.keys()
            assert len(store.nearest(QUERIES[0], k=5)) == 5
    finally:
        store.close()


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (np.full(12, np.nan), NotFiniteError, "NaN|nan|finite"),
        (np.zeros(12), InputError, "zeros"),
        (np.ones(11), ShapeError, "11"),
        (np.array(["a"] * 12), DtypeError, "numbers|dtype"),
    ],
)
def test_queries_and_rows_that_are_no_vectors_are_refused(stores, encoders, query, error, message):
    with stores.create(encoder=encoders["cosine"]) as store:
        store.put_rows([1], inputs=VECTORS[:1])
        with pytest.raises(error, match=message):
            store.nearest(query)
        with pytest.raises(error, match=message):
            store.put_rows([2, 3], inputs=np.stack([VECTORS[0][: len(query)].astype(query.dtype), query]))
        assert len(store) == 1


@pytest.mark.parametrize("recall", [0, -0.1, 1.01, float("nan"), "0.9", True])
def test_a_recall_is_a_share(stores, encoders, recall):
    with stores.create(encoder=encoders["l2"]) as store, pytest.raises(InputError, match="recall"):
        store.nearest(QUERIES[0], recall=recall)


def test_recall_is_for_vectors(stores, encoders):
    with stores.create(encoder=encoders["l2"], vectors=None) as store:
        assert (store.vectors, store.embeddings) == (None, None)
        store.put_rows(range(20), inputs=VECTORS[:20])
        assert store.nearest(VECTORS[0], k=3) == store.nearest(code=encoders["l2"].encode(VECTORS[:1])[0], k=3)
        with pytest.raises(InputError, match="keeps no vectors"):
            store.nearest(QUERIES[0], recall=0.9)
        with pytest.raises(InputError, match="keeps no vectors"):
            store.tune()
    with stores.create("other", encoder=encoders["l2"]) as store:
        store.put_rows(range(20), inputs=VECTORS[:20])
        code = encoders["l2"].encode(VECTORS[:1])[0]
        assert len(store.nearest(code=code, k=4)) == 4
        with pytest.raises(InputError, match="code"):
            store.nearest(code=code, recall=0.9)


def test_what_is_kept_is_chosen(stores, encoders):
    with stores.create(encoder=encoders["l2"], embeddings=Embeddings(32, "int8", "cosine")) as store:
        assert store.vectors is None
    with stores.create("dots", encoder=encoders["l2"], vectors="dot") as store:
        assert store.vectors == "dot"
        assert store.substrings == encoders["l2"].substrings == 2
    with pytest.raises(InputError, match="no encoder of vectors"):
        stores.create("none", n_bits=64, vectors="l2")
    with pytest.raises(InputError, match="both"):
        stores.create("both", encoder=encoders["l2"], vectors="l2", embeddings=Embeddings(32))
    with pytest.raises(InputError, match="metric"):
        stores.create("unknown", encoder=encoders["l2"], vectors="manhattan")


def test_whole_numbers_are_kept_exactly(stores, encoders):
    numbers = np.random.default_rng(5).integers(0, 256, (200, 12), dtype=np.uint8)
    with stores.create(encoder=encoders["l2"]) as store:
        store.put_rows(range(200), inputs=numbers)
        hits = store.nearest(numbers[0], k=200)
        distances = naive_distances(numbers[:1], numbers, "l2")[0]
        assert [hit.embedding_distance for hit in hits] == pytest.approx(sorted(distances.tolist()), rel=1e-6)


def test_a_backup_has_the_tuning(folder_stores, encoders, few_are_many, tmp_path):
    with folder_stores.create(encoder=encoders["l2"]) as store:
        store.put_rows(range(300), inputs=VECTORS[:300])
        tuning = store.tune()
        store.backup(tmp_path / "copy")
        assert store.verify().ok
    from hamtarget.store import Store

    with Store.open(tmp_path / "copy", read_only=True) as copy:
        assert copy.tunings == {10: tuning}


def test_a_tuning_is_its_text():
    tuning = Tuning(10, 20_000, 500, (Point(250, 22, 0.5, 11.0), Point(500, 60, 0.97, 20.0)), 900.0)
    assert tuning_of(tuning.as_text()) == tuning
    assert tuning.point_for(0.4) == tuning.points[0]
    assert tuning.point_for(0.9) == tuning.points[1]
    assert tuning.point_for(0.98) is None
    slow = Tuning(10, 20_000, 500, (Point(250, 22, 0.5, 901.0),), 900.0)
    assert slow.point_for(0.4) is None


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"tuning": 3, "checksum": 1}', '{"tuning": "{}", "checksum": 1}', "9" * 5000]
)
def test_a_damaged_tuning_is_refused(text):
    with pytest.raises(CorruptFileError, match="tune"):
        tuning_of(text)
