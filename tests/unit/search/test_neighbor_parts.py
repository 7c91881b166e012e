"""Parts of NeighborIndex against naive twins: scans, cells, sketches, recall, the choice of settings."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from naive_neighbor_core import NaiveNeighborCore

from hamtarget.query import Work
from hamtarget.search.neighbors import cells
from hamtarget.search.neighbors.scan import ScannedRows, approximate_nearest
from hamtarget.search.neighbors.space import EUCLIDEAN, PRODUCT, VectorSpace, metric_of
from hamtarget.search.neighbors.training import (
    ENTRIES,
    grouped_nearest,
    in_parts,
    nearest_centre,
    nearest_entries,
    train_centres,
    train_codebooks,
)
from hamtarget.search.neighbors.tuning import CostModel, Curve, Setting, Truth

COMPARISONS = {"l2": EUCLIDEAN, "dot": PRODUCT}


def normal(n_rows, n_dims, seed=0):
    return np.random.default_rng(seed).standard_normal((n_rows, n_dims)).astype(np.float32)


def scores_of(queries, rows, metric):
    return -queries @ rows.T + (0.5 * (rows**2).sum(axis=1) if metric == "l2" else 0)


@pytest.mark.parametrize("metric", ["l2", "dot"])
@pytest.mark.parametrize("kind", ["heavy tails", "sizes", "far from zero", "ties"])
def test_an_exact_scan_of_rows_of_any_length_is_exact(metric, kind):
    rng = np.random.default_rng(7)

    def made(n):
        if kind == "heavy tails":
            return rng.standard_t(1, size=(n, 12)).astype(np.float32)
        if kind == "ties":
            return rng.integers(0, 3, (n, 12)).astype(np.float32)
        sizes = 10.0 ** rng.integers(-8, 9, (n, 1)) if kind == "sizes" else 1
        return (rng.normal(size=(n, 12)) * sizes + 1000 * (kind == "far from zero")).astype(np.float32)

    rows, queries = made(20_000), made(40)
    queries[:15] = rows[:15]
    gone = rng.choice(len(rows), 500, replace=False)
    scanned = ScannedRows.of(np.arange(len(rows)), rows, COMPARISONS[metric]).without(gone)
    ids, found, _ = scanned.find(queries, 20, Setting(20, 20, 1.0), Work())
    wide = np.delete(rows, gone, axis=0).astype(np.float64)
    for query, mine, distances in zip(queries.astype(np.float64), ids, found, strict=True):
        exact = np.sqrt(((query - wide) ** 2).sum(axis=1)) if metric == "l2" else -wide @ query
        assert distances == pytest.approx(np.sort(exact)[:20], rel=1e-12, abs=1e-12 * float(np.abs(exact).max()))
        assert len(set(mine.tolist()) - set(gone.tolist())) == 20


@pytest.mark.parametrize("metric", ["l2", "dot"])
@pytest.mark.parametrize("skips", [False, True])
def test_a_scan_in_blocks(metric, skips):
    rows, queries = normal(9000, 4), normal(530, 4, seed=1)
    skip = np.arange(530) * 3 if skips else None
    numbers, scores = approximate_nearest(
        queries, [rows[:8500], rows[8500:8501], rows[8501:]], 5, COMPARISONS[metric], skip=skip
    )
    expected = scores_of(queries, rows, metric)
    if skips:
        expected[np.arange(530), skip] = np.inf
    assert numbers.tolist() == np.argsort(expected, axis=1, kind="stable")[:, :5].tolist()
    np.testing.assert_allclose(scores, np.sort(expected, axis=1)[:, :5], rtol=1e-4, atol=1e-4)


def test_nearest_centres():
    rows, centres = normal(3000, 6), normal(50, 6, seed=1)
    away = ((rows[:, None] - centres[None]) ** 2).sum(axis=2)
    np.testing.assert_array_equal(nearest_centre(rows, centres), away.argmin(axis=1))
    groups, group_of = normal(7, 6, seed=2), np.arange(50) % 7
    np.testing.assert_array_equal(
        grouped_nearest(rows, centres, groups, group_of, 7, lambda _: None), away.argmin(axis=1)
    )
    # Of two groups, only their centres.
    near = np.argsort(((rows[:, None] - groups[None]) ** 2).sum(axis=2), axis=1)[:, :2]
    away[~(group_of[None, :, None] == near[:, None, :]).any(axis=2)] = np.inf
    np.testing.assert_array_equal(
        grouped_nearest(rows, centres, groups, group_of, 2, lambda _: None), away.argmin(axis=1)
    )


@pytest.mark.parametrize("n_cells", [40, 1000])
def test_centres_are_better_than_random_rows(n_cells):
    rows = normal(8000, 6)
    done = []
    centres = train_centres(rows, n_cells, np.random.default_rng(0), done.append)
    assert 0.9 * n_cells <= len(centres) <= n_cells

    def error(centres):
        return ((rows - centres[nearest_centre(rows, centres)]) ** 2).sum()

    assert error(centres) < 0.85 * error(rows[:n_cells])
    assert np.bincount(nearest_centre(rows, centres)).min() >= 1
    assert done == sorted(done)
    assert done[-1] == pytest.approx(1.0)


def test_equal_rows_give_fewer_centres():
    rows = np.repeat(normal(3, 4), 500, axis=0)
    # A mean of equal rows may differ from them in its last bit.
    assert len(train_centres(rows, 64, np.random.default_rng(0), lambda _: None)) <= 6


def test_codebooks():
    rows = normal(4000, 7)
    books = train_codebooks(rows, 3, np.random.default_rng(0), lambda _: None)
    assert books.shape == (3, ENTRIES, 3)
    parts = in_parts(rows, 3)
    np.testing.assert_array_equal(parts[1, :, 0], rows[:, 3])
    assert not parts[2, :, 1:].any()
    chosen = nearest_entries(parts, books)
    away = ((parts[:, :, None] - books[:, None]) ** 2).sum(axis=3)
    np.testing.assert_array_equal(chosen, away.argmin(axis=2))
    # The error of the best 16 entries for two or three normal numbers is well below their variance.
    assert away.min(axis=2).mean() < 0.45 * (parts**2).sum(axis=2).mean()


def naive_share(found, itself, truth_scores, all_scores, k):
    """The share of the first k found, without itself, that are at most as far as the k-th true neighbour."""
    first = [number for number in found if number not in (itself, -1)][:k]
    return sum(all_scores[number] <= truth_scores[k - 1] + 1e-4 for number in first) / k


@pytest.mark.parametrize("copies", [1, 4])
def test_shares_found(copies):
    rows = np.repeat(normal(300 // copies, 3), copies, axis=0)
    itself = np.arange(0, len(rows), 7)
    queries = rows[itself]
    numbers, scores = approximate_nearest(queries, [rows], 20, EUCLIDEAN, skip=itself)
    found = np.random.default_rng(1).permuted(np.argsort(scores_of(queries, rows, "l2"), axis=1)[:, :14], axis=1)[:, :6]
    found[:5, -1] = -1
    shares = Truth(queries, numbers, scores, itself, lambda each: rows[each], EUCLIDEAN).shares_found(found, 5)
    all_scores = scores_of(queries, rows, "l2")
    expected = [naive_share(*each, 5) for each in zip(found, itself, scores, all_scores, strict=True)]
    np.testing.assert_allclose(shares, expected)
    assert 0 < shares.mean() < 1


def test_the_ceiling_of_rounded_rows():
    rows, queries = normal(2000, 8), normal(100, 8, seed=1)
    truth = Truth(queries, *approximate_nearest(queries, [rows], 60, PRODUCT), None, lambda each: rows[each], PRODUCT)

    def rounded(some):
        return np.rint(some * 4) / 4

    expected = [
        len(set(coarse) & set(fine)) / 10
        for coarse, fine in zip(
            np.argsort(scores_of(queries, rounded(rows), "dot"), axis=1)[:, :10].tolist(),
            truth.rows[:, :10].tolist(),
            strict=True,
        )
    ]
    assert truth.ceiling(10, rounded) == pytest.approx(np.mean(expected), abs=0.02)
    assert truth.ceiling(10, lambda some: some) == 1.0


def test_the_setting_of_least_work():
    budgets, comparisons = np.array([100, 200, 400]), np.array([10, 20])
    recall = np.array([[0.5, 0.6], [0.7, 0.8], [0.72, np.nan]])
    zeros = np.zeros_like(recall)
    candidates = np.repeat(budgets[:, None], 2, axis=1).astype(float)
    compared = np.repeat(comparisons[None], 3, axis=0).astype(float)
    curve = Curve(
        10, budgets, comparisons, recall, zeros, candidates, compared, zeros + 1e-5, 0.99, 5000, CostModel(0, 1, 1)
    )
    # 0.6: 100 candidates and 20 comparisons, or half-way from 100 to 200 candidates, by their logarithms, and 10.
    assert curve.setting(0.6)[:2] == (100, 20)
    assert curve.setting(0.65)[:2] == (119, 20)
    assert curve.setting(0.7)[:2] == (142, 20)
    assert curve.setting(0.9)[:2] == (5000, 5000)
    assert curve.setting(0.995) is None
    assert curve.seconds_at(curve.setting(0.6)) == pytest.approx(1e-5)
    assert np.isnan(curve.seconds_at(curve.setting(0.9)))
    nothing = replace(curve, seconds=np.full_like(recall, np.nan))
    assert np.isnan(nothing.seconds_at(curve.setting(0.6)))
    assert [point[:3] for point in curve.frontier()] == [(0.5, 100, 10), (0.6, 100, 20), (0.7, 200, 10), (0.8, 200, 20)]


@pytest.mark.parametrize("metric", ["cosine", "l2", "dot"])
def test_the_naive_core_gives_the_same_curve(metric, monkeypatch):
    vectors = np.repeat(normal(60, 12, seed=3), 20, axis=0) + 0.7 * normal(1200, 12)
    space = VectorSpace.of(vectors, metric_of(metric))

    def built():
        builder = cells.Builder(vectors, space, recall=0.9, k=5, seed=0, threads=1)
        return builder.build(np.arange(1200), None, Work())

    monkeypatch.setattr(cells, "N_QUERIES", 80)
    native = built().tuned.curves[5]
    monkeypatch.setattr(cells, "_native", SimpleNamespace(NeighborCore=NaiveNeighborCore))
    naive = built().tuned.curves[5]
    setting = naive.setting(0.9)
    assert native.setting(0.9).budget == pytest.approx(setting.budget, rel=0.35)
    rows = min(len(native.budgets), len(naive.budgets))
    difference = native.recall[:rows] - naive.recall[:rows]
    # The native core sums sketches in bytes, so that a few rows are chosen differently.
    assert np.nanmax(np.abs(difference)) < 0.08
    assert abs(np.nanmean(difference)) < 0.02
