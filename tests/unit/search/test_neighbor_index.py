"""NeighborIndex: what it answers, what it refuses, and what it keeps."""

import io
import re
import threading
import zipfile

import numpy as np
import pytest

from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    HamtargetError,
    InputError,
    LimitError,
    NotFiniteError,
    NotFittedError,
    ShapeError,
    UnsupportedFileError,
)
from hamtarget.query import Bounds, Work
from hamtarget.search import NeighborIndex
from hamtarget.search import neighbor_index as module
from hamtarget.search.neighbors import cells as cells_module
from hamtarget.search.neighbors import space, tuning

METRICS = ["cosine", "l2", "dot"]


def naive(vectors, queries, metric):
    """Distances of all queries to all vectors, in float64."""
    vectors, queries = np.asarray(vectors, dtype=np.float64), np.asarray(queries, dtype=np.float64)
    if metric == "l2":
        return np.sqrt(((queries[:, None] - vectors[None]) ** 2).sum(axis=2))
    if metric == "cosine":
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        queries = queries / np.linalg.norm(queries, axis=1, keepdims=True)
    return (metric == "cosine") - queries @ vectors.T


def clustered(n_rows, n_dims, seed=0, n_groups=200):
    random = np.random.default_rng(seed)
    groups = np.random.default_rng(99).standard_normal((n_groups, n_dims))
    return (groups[random.integers(n_groups, size=n_rows)] + 0.6 * random.standard_normal((n_rows, n_dims))).astype(
        np.float32
    )


def in_cells(vectors, metric="l2", *, ids=None, queries=None, work=None, **options):
    """An index that has cells, whatever the clock says, and is tuned on few rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST_ROWS_OF_CELLS", 100)
        patch.setattr(module, "_why_slower", lambda *_: None)
        patch.setattr(cells_module, "N_QUERIES", 200)
        return NeighborIndex(metric, **options).fit(vectors, ids, queries=queries, work=work)


@pytest.fixture(scope="module")
def cells():
    """An index in cells of 3,000 vectors."""
    return in_cells(clustered(3000, 16), k=10)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.uint8, np.int8])
def test_a_scan_is_exact(metric, dtype):
    random = np.random.default_rng(1)
    vectors = (random.standard_normal((700, 12)) * 30 + 60).clip(-100, 120)
    vectors = vectors.clip(0).astype(dtype) if dtype == np.uint8 else vectors.astype(dtype)
    queries = vectors[:40]
    index = NeighborIndex(metric).fit(vectors)
    ids, distances, _ = index.nearest_batch(queries, k=7)
    expected = naive(vectors, queries, metric)
    assert (ids.dtype, distances.dtype, ids.shape) == (np.int64, np.float32, (40, 7))
    np.testing.assert_allclose(distances, np.sort(expected, axis=1)[:, :7], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(expected, ids, axis=1), distances, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("metric", METRICS)
def test_ties_are_in_the_order_of_ids(metric):
    vectors = np.repeat(np.random.default_rng(0).standard_normal((5, 8)), 30, axis=0)
    ids = np.random.default_rng(1).permutation(150)
    found, distances, _ = NeighborIndex(metric).fit(vectors, ids).nearest_batch(vectors[:1], k=30)
    assert found[0].tolist() == sorted(ids[:30].tolist())
    if metric != "dot":
        np.testing.assert_allclose(distances, 0, atol=1e-6)


@pytest.mark.parametrize("offset", [0.0, 1000.0])
@pytest.mark.parametrize("scale", [1e-25, 1.0, 1e25])
def test_numbers_far_from_zero_and_of_any_size(scale, offset):
    vectors = (np.random.default_rng(0).standard_normal((300, 8)) + offset) * scale
    ids, distances, _ = NeighborIndex("l2").fit(vectors).nearest_batch(vectors[:20], k=5)
    expected = naive(vectors / scale, vectors[:20] / scale, "l2")
    assert ids.tolist() == np.argsort(expected, axis=1, kind="stable")[:, :5].tolist()
    np.testing.assert_allclose(distances / scale, np.sort(expected, axis=1)[:, :5], rtol=1e-3, atol=1e-3)


def test_all_rows_equal():
    index = in_cells(np.ones((2000, 8), dtype=np.float32))
    ids, distances, _ = index.nearest_batch(np.ones((3, 8)), k=5)
    assert len(set(ids[0].tolist())) == 5
    np.testing.assert_allclose(distances, 0, atol=1e-3)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [np.float32, np.uint8])
def test_cells_reach_the_recall(metric, dtype):
    data = clustered(4000, 16)
    if dtype == np.uint8:
        data = (data * 20 + 128).clip(1, 255).astype(np.uint8)
    vectors, queries = data[:3000], data[3000:]
    index = in_cells(vectors, metric)
    assert "cells" in repr(index)
    ids, distances, _ = index.nearest_batch(queries, k=10)
    away = naive(vectors, queries, metric)
    nearest = np.argsort(away, axis=1)[:, :10]
    shares = (ids[:, :, None] == nearest[:, None]).any(axis=2).mean(axis=1)
    # Tuning has seen 200 queries.
    assert shares.mean() > 0.95 - 3 * shares.std() / np.sqrt(200)
    np.testing.assert_allclose(distances, np.take_along_axis(away, ids, axis=1), rtol=0.05, atol=0.05)
    assert (np.diff(distances, axis=1) >= 0).all()


def test_a_higher_recall_reads_more(cells):
    queries = clustered(500, 16, seed=5)
    low = cells.nearest_batch(queries, recall=0.6).ids
    high = cells.nearest_batch(queries, recall=0.98).ids
    exact = cells.nearest_batch(queries, budget=3000, comparisons=3000).ids
    share = [(found[:, :, None] == exact[:, None]).any(axis=2).mean() for found in (low, high)]
    assert share[0] < share[1]
    assert share[1] > 0.95


def test_a_recall_that_kept_vectors_cannot_give_is_refused(cells):
    assert cells.explain().row_type == "int8"
    with pytest.raises(InputError, match=r"vectors kept as int8 give at most .* fit an index with recall=1"):
        cells.nearest_batch(clustered(3, 16), recall=1.0)


def test_a_high_recall_keeps_floats():
    index = in_cells(clustered(1000, 16), recall=0.9999)
    assert index.explain().row_type in ("float16", "float32")


def test_more_neighbours_than_tuned_need_settings(cells):
    with pytest.raises(InputError, match="searches were tuned for up to"):
        cells.nearest_batch(clustered(3, 16), k=101)
    ids = cells.nearest_batch(clustered(3, 16), k=101, budget=3000, comparisons=500).ids
    assert ids.shape == (3, 101)
    assert (ids >= 0).all()


def test_a_budget_too_small_for_k_rows_is_exceeded(cells):
    ids, distances, _ = cells.nearest_batch(clustered(20, 16), k=60, budget=60, comparisons=60)
    assert (ids >= 0).all()
    assert np.isfinite(distances).all()


def test_one_seed_gives_one_index():
    vectors, queries = clustered(1000, 16), clustered(100, 16, seed=3)
    first, second = (in_cells(vectors, seed=np.int16(4), work=Work(threads=threads)) for threads in (1, 2))
    np.testing.assert_array_equal(first.nearest_batch(queries).ids, second.nearest_batch(queries).ids)
    assert first.explain().settings == second.explain().settings


def test_queries_of_another_kind_are_tuned_on():
    vectors = clustered(3000, 16)
    queries = np.random.default_rng(3).standard_normal((800, 16)).astype(np.float32) * 2
    plain, tuned = in_cells(vectors, recall=0.9), in_cells(vectors, recall=0.9, queries=queries[:400])
    nearest = np.argsort(naive(vectors, queries[400:], "l2"), axis=1)[:, :10]
    shares = [
        (index.nearest_batch(queries[400:]).ids[:, :, None] == nearest[:, None]).any(axis=2).mean()
        for index in (plain, tuned)
    ]
    assert shares[1] > shares[0]
    assert shares[1] > 0.88


def test_explain_tells_of_cells(cells):
    shown = cells.explain()
    text = str(shown)
    assert shown.way == "cells"
    for part in ("recall", "queries/s", "bytes a row", "seconds of fit", "fit again when", "comparisons"):
        assert part in text
    assert repr(shown) == text
    assert sorted(shown.curves) == [1, 10]
    assert shown.settings[10].recall >= 0.95


def test_explain_tells_of_a_scan():
    shown = NeighborIndex().fit(clustered(50, 8)).explain()
    assert shown.way == "scan"
    assert "fewer than 10,000 vectors" in str(shown)
    assert "recall 1 is wanted" in str(NeighborIndex(recall=1).fit(clustered(50, 8)).explain())


def test_a_scan_that_is_as_fast_is_chosen():
    vectors = clustered(1000, 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST_ROWS_OF_CELLS", 100)
        patch.setattr(tuning.Curve, "seconds_at", lambda self, setting: 1e9)
        index = NeighborIndex("l2").fit(vectors)
    assert "an exact scan, because it is as fast" in str(index.explain())
    assert index.nearest_batch(vectors[:5], k=1).ids.ravel().tolist() == [0, 1, 2, 3, 4]


def test_progress_ends_and_never_goes_back():
    calls = []
    in_cells(clustered(1000, 16), work=Work(progress=lambda done, total: calls.append((done, total))))
    assert calls[-1] == (1000, 1000)
    assert [done for done, _ in calls] == sorted(done for done, _ in calls)
    assert len({done for done, _ in calls}) > 20
    calls.clear()
    NeighborIndex().fit(clustered(30, 16), work=Work(progress=lambda done, total: calls.append((done, total))))
    assert calls == [(1000, 1000)]


@pytest.mark.parametrize(
    ("vectors", "error", "text"),
    [
        (np.array([[1.0, np.nan], [1, 2]]), NotFiniteError, "row 0 holds NaN"),
        (np.array([[1.0, 2], [np.inf, 2]]), NotFiniteError, "row 1 holds NaN or infinity"),
        (np.array([[1.0, 2], [0, 0]]), InputError, "row 1 is zero"),
        (np.zeros((0, 4)), ShapeError, "no rows"),
        (np.zeros((3, 0)), ShapeError, "expected 1 to 4,096"),
        (np.zeros((3, 4097)), ShapeError, "expected 1 to 4,096"),
        (np.ones(4), ShapeError, r"vectors\[None\]"),
        (np.ones((2, 2, 2)), ShapeError, "3 dimensions"),
        (np.array([["a", "b"]]), DtypeError, "dtype <U1"),
        (np.array([[object(), None]]), DtypeError, "dtype object"),
        (np.ones((2, 2), dtype=complex), DtypeError, "complex"),
        ([[1.0, 2.0], [1.0]], ShapeError, "all rows of one length"),
        (np.array([[1e300, -1e300], [1, 2]]), None, ""),
    ],
)
def test_bad_vectors(vectors, error, text):
    index = NeighborIndex("cosine")
    if error is None:
        index.fit(vectors)
        return
    with pytest.raises(error, match=text):
        index.fit(vectors)
    assert len(index) == 0


def test_bad_arguments():
    for options, error in [
        ({"metric": "euclid"}, InputError),
        ({"recall": 0}, InputError),
        ({"recall": 1.5}, InputError),
        ({"recall": float("nan")}, InputError),
        ({"recall": "high"}, DtypeError),
        ({"k": 0}, InputError),
        ({"k": 1.5}, DtypeError),
        ({"seed": -1}, InputError),
        ({"seed": None}, DtypeError),
    ]:
        with pytest.raises(error):
            NeighborIndex(**options)


@pytest.mark.parametrize("call", ["nearest", "nearest_batch", "add", "delete", "get", "save", "explain"])
def test_calls_before_fit(call, tmp_path):
    arguments = {
        "nearest": [np.ones(4)],
        "nearest_batch": [np.ones((1, 4))],
        "add": [[1], np.ones((1, 4))],
        "delete": [[1]],
        "get": [[1]],
        "save": [tmp_path / "x"],
    }
    with pytest.raises(NotFittedError, match="call fit"):
        getattr(NeighborIndex(), call)(*arguments.get(call, []))


def test_bad_searches(cells):
    scanned = NeighborIndex("l2").fit(clustered(50, 16))
    for index in (cells, scanned):
        for queries, options, error, text in [
            (np.ones((1, 15)), {}, ShapeError, "15 columns; expected 16"),
            (np.ones(16), {}, ShapeError, "For a single vector, call nearest"),
            (np.full((1, 16), np.nan), {}, NotFiniteError, "queries: row 0"),
            (np.full((1, 16), 1e30), {}, InputError, "too far"),
            (np.ones((1, 16)), {"k": 0}, InputError, "at least 1"),
            (np.ones((1, 16)), {"k": 10_000}, InputError, "10,000 and the index has"),
            (np.ones((1, 16)), {"k": 5, "budget": 4}, InputError, "budget is 4 and k is 5"),
            (np.ones((1, 16)), {"k": 5, "comparisons": 4}, InputError, "comparisons is 4"),
            (np.ones((1, 16)), {"recall": 0}, InputError, "above 0"),
            (np.ones((1, 16)), {"work": 2}, DtypeError, "expected Work"),
        ]:
            with pytest.raises(error, match=text):
                index.nearest_batch(queries, **options)
        assert [each.shape for each in index.nearest_batch(np.ones((0, 16)), k=3)[:2]] == [(0, 3), (0, 3)]


def test_bad_ids():
    vectors = clustered(20, 8)
    for ids, error, text in [
        (np.arange(19), ShapeError, "19 ids and 20 vectors"),
        (np.zeros(20, dtype=np.int64), InputError, "twice"),
        (np.arange(20) - 1, InputError, "negative"),
        (np.arange(20.0), DtypeError, "int64"),
        (np.arange(20)[:, None], ShapeError, "2 dimensions"),
    ]:
        with pytest.raises(error, match=text):
            NeighborIndex().fit(vectors, ids)


def test_uint8_rows_stay_uint8():
    vectors = (clustered(1000, 16) * 20 + 128).clip(0, 255).astype(np.uint8)
    index = in_cells(vectors)
    assert index.explain().row_type == "uint8"
    index.add([5000], vectors[:1].astype(np.float32))
    with pytest.raises(InputError, match="whole numbers from 0 to 255"):
        index.add([5001], vectors[:1] + 0.5)
    with pytest.raises(InputError, match="whole numbers from 0 to 255"):
        index.add([5001], vectors[:1].astype(np.float32) - 300)
    assert index.nearest_batch(vectors[:1] + 0.5, k=1).distances[0, 0] == pytest.approx(2.0)
    # SIFT often comes as float32.
    assert in_cells(vectors.astype(np.float32)).explain().row_type == "uint8"


@pytest.mark.parametrize("n_rows", [60, 1000])
def test_add_delete_and_replace(n_rows):
    vectors = clustered(n_rows, 16)
    index = in_cells(vectors) if n_rows > 100 else NeighborIndex("l2").fit(vectors)
    new = np.full((1, 16), 9.0)
    index.add([10_000], new)
    assert (len(index), index.nearest_batch(new, k=1).ids[0, 0]) == (n_rows + 1, 10_000)
    with pytest.raises(InputError, match="such as 3; delete them first"):
        index.add([20_000, 3], np.ones((2, 16)))
    with pytest.raises(NotFiniteError):
        index.add([20_000, 20_001], np.array([[1.0] * 16, [np.nan] * 16]))
    assert len(index) == n_rows + 1
    for bad, text in (([10_000, 77_777], "id 77777 is not in this index"), ([3, 4, 3], "ids hold 3 more than once")):
        with pytest.raises(InputError, match=text):
            index.delete(bad)
    assert len(index) == n_rows + 1
    index.delete([10_000, 3])
    assert index.nearest_batch(new, k=1).ids[0, 0] != 10_000
    index.add([3], new)
    assert index.nearest_batch(new, k=1).ids[0, 0] == 3
    index.add(np.empty(0, dtype=np.int64), np.empty((0, 16)))
    assert len(index) == n_rows


@pytest.mark.parametrize("n_rows", [60, 1000])
def test_bounds_end_a_search(n_rows):
    vectors = clustered(n_rows, 16)
    index = in_cells(vectors) if n_rows > 100 else NeighborIndex("l2").fit(vectors)
    plenty = Work(Bounds(seconds=600, rows=10**9, hits=2 * n_rows))
    np.testing.assert_array_equal(index.nearest_batch(vectors, 2, work=plenty).ids, index.nearest_batch(vectors, 2).ids)
    for bounds, name in (
        (Bounds(rows=n_rows - 1), "rows"),
        (Bounds(seconds=0), "seconds"),
        (Bounds(hits=2 * n_rows - 1), "hits"),
    ):
        with pytest.raises(LimitError) as error:
            index.nearest_batch(vectors, k=2, work=Work(bounds))
        assert error.value.limit == name
    # Calls share bounds that run.
    running = Work(Bounds(hits=7).start())
    index.nearest(vectors[0], k=5, work=running)
    with pytest.raises(LimitError, match="more than 7 hits"):
        index.nearest(vectors[0], k=5, work=running)


@pytest.mark.parametrize("build", [in_cells, lambda vectors, **rest: NeighborIndex("l2").fit(vectors, **rest)])
def test_bounds_end_a_fit(build):
    vectors = clustered(1000, 16)
    with pytest.raises(LimitError) as error:
        build(vectors, work=Work(Bounds(seconds=0)))
    assert error.value.limit == "seconds"
    running = Bounds(seconds=600).start()
    running.cancel()
    with pytest.raises(LimitError, match="cancelled"):
        build(vectors, work=Work(running))
    assert len(build(vectors, work=Work(Bounds(seconds=600)))) == 1000


def test_a_fit_that_is_cancelled_half_way_leaves_the_index_as_it_was():
    running = Bounds(seconds=600).start()

    def cancel(done, total):
        if done > total / 2:
            running.cancel()

    index = NeighborIndex("l2").fit(clustered(50, 16))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST_ROWS_OF_CELLS", 100)
        with pytest.raises(LimitError, match="cancelled"):
            index.fit(clustered(1000, 16), work=Work(running, progress=cancel))
    assert len(index) == 50


@pytest.mark.parametrize("n_rows", [60, 1000])
def test_one_query_is_a_batch_of_one(n_rows):
    vectors, queries = clustered(n_rows, 16), clustered(5, 16, seed=2)
    index = in_cells(vectors) if n_rows > 100 else NeighborIndex("l2").fit(vectors)
    batch = index.nearest_batch(queries, k=3, work=Work(costs=True))
    assert batch.costs is not None
    assert batch.costs.candidates.shape == batch.costs.comparisons.shape == batch.costs.buckets.shape == (5,)
    assert (batch.costs.candidates >= batch.costs.comparisons).all()
    for place, query in enumerate(queries):
        one = index.nearest(query, k=3, work=Work(costs=True))
        assert (one.ids.shape, one.ids.dtype, one.distances.dtype) == ((3,), np.int64, np.float32)
        np.testing.assert_array_equal(one.ids, batch.ids[place])
        np.testing.assert_array_equal(one.distances, batch.distances[place])
        assert one.costs.candidates == batch.costs.candidates[place]
        assert one.costs.comparisons == batch.costs.comparisons[place]
    assert index.nearest(queries[0]).costs is None
    assert index.nearest_batch(queries).costs is None
    for bad in (queries, queries[0, :3], 5.0, []):
        with pytest.raises(ShapeError, match=r"expected one vector .*call nearest_batch"):
            index.nearest(bad)


@pytest.mark.parametrize("n_rows", [60, 1000])
@pytest.mark.parametrize("metric", METRICS)
def test_ids_and_vectors_are_given_back(n_rows, metric):
    vectors = clustered(n_rows, 16)
    ids = np.random.default_rng(0).permutation(5 * n_rows)[:n_rows]
    build = in_cells if n_rows > 100 else lambda rows, metric, ids: NeighborIndex(metric).fit(rows, ids)
    index = build(vectors, metric, ids=ids)
    assert index.ids().tolist() == list(index) == sorted(ids.tolist())
    assert (ids[0] in index, int(ids[1]) in index, 10**9 in index, -1 in index) == (True, True, False, False)
    assert not any(other in index for other in ("a", None, 2.0, True, 2**70))
    index.delete(ids[::2])
    assert list(index) == sorted(ids[1::2].tolist())
    assert ids[0] not in index
    asked = ids[[5, 1, 5]]
    kept = vectors[[5, 1, 5]]
    if metric == "cosine":
        kept = kept / np.linalg.norm(kept, axis=1, keepdims=True)
    found = index.get(asked)
    assert (found.dtype, found.shape, index.get([]).shape) == (np.float32, (3, 16), (0, 16))
    # By half a percent of the largest number of each row, where rows are int8.
    np.testing.assert_allclose(found, kept, atol=0.006 * np.abs(vectors).max() if n_rows > 100 else 1e-5)
    with pytest.raises(InputError, match=f"id {ids[0]} is not in this index"):
        index.get([ids[1], ids[0]])
    index.delete(ids[1::2])
    assert (len(index), list(index)) == (0, [])
    with pytest.raises(InputError, match="is not in this index"):
        index.get([1])


@pytest.mark.parametrize("n_rows", [300, 1000])
def test_one_entry_is_a_metric(tmp_path, monkeypatch, n_rows):
    def centred(numbers, name, first):
        moved = numbers - numbers.mean(axis=1, keepdims=True)
        return moved / np.linalg.norm(moved, axis=1, keepdims=True)

    entry = space.Metric("correlation", space.PRODUCT, prepare=centred, distance=lambda found: 1 + found)
    monkeypatch.setitem(space.METRICS, "correlation", entry)
    vectors, queries = clustered(n_rows, 16) * 3 + 5, clustered(20, 16, seed=2)
    index = in_cells(vectors, "correlation") if n_rows > 300 else NeighborIndex("correlation").fit(vectors)
    index.save(tmp_path / "x")
    index = NeighborIndex.open(tmp_path / "x")
    index.add([5000], queries[:1] * 7 - 2)
    assert index.nearest(queries[0], k=1).ids.tolist() == [5000]
    index.delete([5000])
    found = index.nearest_batch(queries, k=5, budget=n_rows, comparisons=n_rows)
    away = 1 - np.corrcoef(queries, vectors)[: len(queries), len(queries) :]
    np.testing.assert_allclose(found.distances, np.sort(away, axis=1)[:, :5], atol=0.01)
    np.testing.assert_allclose(found.distances, np.take_along_axis(away, found.ids, axis=1), atol=0.01)
    assert (index.metric, index.explain().metric) == ("correlation", "correlation")
    with pytest.raises(InputError, match="expected one of cosine, l2, dot, correlation"):
        NeighborIndex("hamming")


def test_an_index_without_vectors_holds_nothing():
    index = NeighborIndex()
    assert (len(index), list(index), 1 in index, index.ids().dtype) == (0, [], False, np.int64)


def test_advice_to_fit_again():
    index = in_cells(clustered(1000, 8))
    assert str(index.explain()).endswith("or when vectors of another kind were added")
    index.add(np.arange(1000, 2200), clustered(1200, 8, seed=7))
    assert "fit again: there are 2,200 vectors now" in str(index.explain())


@pytest.mark.parametrize("n_rows", [60, 1000])
def test_a_file_gives_the_same_index(tmp_path, n_rows):
    vectors, queries = clustered(n_rows, 16), clustered(30, 16, seed=2)
    index = in_cells(vectors, recall=0.9, k=7, seed=5) if n_rows > 100 else NeighborIndex("l2", 0.9, k=7).fit(vectors)
    index.delete(np.arange(0, n_rows, 3))
    index.save(tmp_path / "vectors.ham")
    opened = NeighborIndex.open(tmp_path / "vectors.ham")
    assert repr(opened) == repr(index)
    for found, expected in zip(
        opened.nearest_batch(queries, k=7)[:2], index.nearest_batch(queries, k=7)[:2], strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    shown, before = opened.explain(), index.explain()
    assert (shown.why, shown.settings, shown.advice) == (before.why, before.settings, before.advice)
    assert [curve.frontier() for curve in shown.curves.values()] == [c.frontier() for c in before.curves.values()]
    opened.add([0], vectors[:1])
    opened.save(tmp_path / "vectors.ham")
    assert len(NeighborIndex.open(tmp_path / "vectors.ham")) == len(index) + 1
    assert [path.name for path in tmp_path.iterdir()] == ["vectors.ham"]


def test_files_of_one_content_are_equal(tmp_path):
    index = NeighborIndex("l2").fit(clustered(60, 8))
    index.save(tmp_path / "a")
    index.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("n_rows", [30, 1000])
def test_a_damaged_file_is_refused(tmp_path, n_rows):
    index = in_cells(clustered(n_rows, 8)) if n_rows > 100 else NeighborIndex("l2").fit(clustered(n_rows, 8))
    path = tmp_path / "x"
    index.save(path)
    good = path.read_bytes()
    expected = index.nearest_batch(clustered(5, 8))[:2]
    random = np.random.default_rng(0)
    for trial in range(150):
        bad = bytearray(good)
        if trial % 3 == 0:
            bad = bad[: random.integers(len(bad))]
        else:
            for place in random.integers(len(bad), size=1 + trial % 4):
                bad[place] ^= 1 << random.integers(8)
        path.write_bytes(bad)
        try:
            opened = NeighborIndex.open(path)
        except (CorruptFileError, UnsupportedFileError):
            continue
        # A few bytes of a zip mean nothing, such as dates.
        for found, wanted in zip(opened.nearest_batch(clustered(5, 8))[:2], expected, strict=True):
            np.testing.assert_array_equal(found, wanted)


def damaged(good):
    """A small file cut off at each byte, with each byte flipped, and without its beginning or middle."""
    for place in range(len(good)):
        yield good[:place]
        yield good[:place] + bytes([good[place] ^ 255]) + good[place + 1 :]
        if place % 8 == 0:
            yield good[place + 1 :]
            yield good[: place // 2] + good[place + 1 :]


@pytest.mark.parametrize("n_rows", [6, pytest.param(60, marks=pytest.mark.slow)])
def test_every_byte_of_a_file_counts_or_means_nothing(tmp_path, n_rows):
    vectors = np.random.default_rng(0).integers(0, 200, size=(n_rows, 2)).astype(np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEWEST_ROWS_OF_CELLS", 10)
        patch.setattr(module, "_why_slower", lambda *_: None)
        patch.setattr(cells_module, "N_QUERIES", 20)
        index = NeighborIndex("l2", k=1).fit(vectors)
    assert index.explain().way == ("scan" if n_rows < 10 else "cells")
    path = tmp_path / "x"
    index.save(path)
    good = path.read_bytes()
    expected, shown = index.nearest_batch(vectors + 0.5, 1), str(index.explain())
    for content in damaged(good):
        path.write_bytes(content)
        try:
            opened = NeighborIndex.open(path)
        except (CorruptFileError, UnsupportedFileError):
            continue
        assert len(content) >= len(good) - 1
        found = opened.nearest_batch(vectors + 0.5, 1)
        np.testing.assert_array_equal(found.ids, expected.ids)
        np.testing.assert_array_equal(found.distances, expected.distances)
        assert str(opened.explain()) == shown


def forged(good, change):
    """The file with one member changed and all checksums right."""
    before, after = zipfile.ZipFile(io.BytesIO(good)), io.BytesIO()
    with zipfile.ZipFile(after, "w") as archive:
        for name in before.namelist():
            content = change(name, before.read(name))
            if content is not None:
                archive.writestr(name, content)
    return after.getvalue()


@pytest.mark.parametrize("n_rows", [30, 1000])
def test_a_forged_file_is_refused_or_harmless(tmp_path, n_rows):
    index = in_cells(clustered(n_rows, 8)) if n_rows > 100 else NeighborIndex("l2").fit(clustered(n_rows, 8))
    path = tmp_path / "x"
    index.save(path)
    good = path.read_bytes()
    names = zipfile.ZipFile(io.BytesIO(good)).namelist()
    random = np.random.default_rng(0)
    for missing in names:
        path.write_bytes(forged(good, lambda name, content, gone=missing: None if name == gone else content))
        with pytest.raises(CorruptFileError):
            NeighborIndex.open(path)
    for trial in range(200):
        chosen = names[trial % len(names)]

        def change(name, content, chosen=chosen):
            if name != chosen or not content:
                return content
            bad = bytearray(content)
            for place in random.integers(len(bad), size=2):
                bad[place] = random.integers(256)
            return bytes(bad)

        path.write_bytes(forged(good, change))
        try:
            opened = NeighborIndex.open(path)
            ids = opened.nearest_batch(clustered(5, 8)).ids
            assert ids.shape == (5, 10)
        except HamtargetError:
            continue


@pytest.mark.parametrize(
    "other", [b'"recall": "high"', b'"recall": 2', b'"k": 0', b'"k": "x"', b'"seed": -1', b'"metric": "hamming"']
)
def test_a_forged_text_is_refused(tmp_path, other):
    path = tmp_path / "x"
    NeighborIndex("l2").fit(clustered(30, 8)).save(path)
    field = other.split(b":")[0]

    def change(name, content):
        return re.sub(field + rb": [^,]*", other, content) if name == "about.json" else content

    path.write_bytes(forged(path.read_bytes(), change))
    with pytest.raises(CorruptFileError, match="restore it from a copy, or fit again"):
        NeighborIndex.open(path)


def test_a_later_version_and_other_files_are_refused(tmp_path):
    path = tmp_path / "x"
    NeighborIndex("l2").fit(clustered(30, 8)).save(path)
    good = path.read_bytes()
    path.write_bytes(forged(good, lambda name, content: content.replace(b'"version": 1', b'"version": 9')))
    with pytest.raises(UnsupportedFileError, match="install a newer"):
        NeighborIndex.open(path)
    path.write_bytes(b"no zip")
    with pytest.raises(CorruptFileError, match="not a file of NeighborIndex.save"):
        NeighborIndex.open(path)
    np.savez(path, a=np.ones(3))
    with pytest.raises(CorruptFileError):
        NeighborIndex.open(tmp_path / "x.npz")
    with pytest.raises(FileNotFoundError):
        NeighborIndex.open(tmp_path / "absent")


@pytest.mark.parametrize("n_rows", [60, 1000])
def test_searches_during_changes(n_rows):
    vectors = clustered(n_rows, 16)
    index = in_cells(vectors) if n_rows > 100 else NeighborIndex("l2").fit(vectors)
    stop, errors = threading.Event(), []

    def ask():
        try:
            while not stop.is_set():
                ids, distances, _ = index.nearest_batch(vectors[20:30], k=5)
                assert (ids[:, 0] == np.arange(20, 30)).all()
                assert np.isfinite(distances).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for step in range(30):
        new = np.arange(100_000 + 10 * step, 100_010 + 10 * step)
        index.add(new, clustered(10, 16, seed=step) + 20)
        index.delete(new[:5])
    stop.set()
    for thread in threads:
        thread.join()
    assert not errors
    assert len(index) == n_rows + 150


def test_refusals_say_which_id_and_what_to_do():
    index = NeighborIndex()
    vectors = np.eye(4, dtype=np.float32)
    with pytest.raises(InputError, match="id 7 is there twice"):
        index.fit(vectors, [7, 1, 2, 7])
    with pytest.raises(DtypeError, match="number the rows, or use a Store"):
        index.fit(vectors, ["a", "b", "c", "d"])
    with pytest.raises(InputError, match="k is 10 and the index has 4 vectors; expected k of at most 4"):
        index.fit(vectors).nearest_batch(vectors)
