"""Exact neighbours are those of a naive loop: every tie by number, every rounding harmless."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hamtarget.errors import DtypeError, InputError, NotFiniteError, ShapeError
from hamtarget.evaluation import exact_neighbors, ground_truth
from hamtarget.evaluation.ground_truth import _Plan


def naive_neighbors(queries, base, k):
    """Whole numbers without rounding (Python's own), others from differences in float64; sorted by (distance, id)."""
    result = []
    for query in queries.tolist():
        distances = [sum((a - b) ** 2 for a, b in zip(query, row, strict=True)) for row in base.tolist()]
        result.append(sorted(range(len(base)), key=lambda row: (distances[row], row))[:k])  # noqa: B023
    return np.array(result)


@pytest.fixture(params=["one block", "many blocks"])
def blocks(request, monkeypatch):
    if request.param == "many blocks":
        monkeypatch.setattr(ground_truth, "_QUERIES_AT_A_TIME", 3)
        monkeypatch.setattr(ground_truth, "_ROWS_AT_A_TIME", 7)
        monkeypatch.setattr(ground_truth, "_ELEMENTS_AT_A_TIME", 10)


@pytest.mark.parametrize(("dtype", "low", "high"), [("u1", 0, 4), ("u1", 0, 256), ("i8", -9, 9), ("f4", -3, 3)])
@pytest.mark.parametrize("k", [1, 5, 40])
@pytest.mark.usefixtures("blocks")
def test_whole_numbers_with_many_ties(dtype, low, high, k):
    random = np.random.default_rng(k)
    queries = random.integers(low, high, (10, 3)).astype(dtype)
    base = random.integers(low, high, (40, 3)).astype(dtype)
    assert np.array_equal(exact_neighbors(queries, base, k), naive_neighbors(queries, base, k))


@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 60), st.integers(1, 20)),
    offset=st.sampled_from([0.0, 1.0, 1e3, 1e6]),
    dtype=st.sampled_from(["f2", "f4", "f8"]),
    share=st.floats(0.01, 1),
)
@settings(max_examples=100, deadline=None)
def test_floats_far_from_zero_and_with_duplicates(seed, shape, offset, dtype, share):
    n_queries, n_rows, columns = shape
    random = np.random.default_rng(seed)
    # Half of the rows are there twice, and some are the queries themselves.
    base = (random.standard_normal((n_rows, columns)) + min(offset, 1e4 if dtype == "f2" else offset)).astype(dtype)
    base[n_rows // 2 :] = base[: n_rows - n_rows // 2]
    queries = base[random.integers(0, n_rows, n_queries)] + random.integers(0, 2, (n_queries, 1)).astype(dtype)
    k = max(1, int(share * n_rows))
    found, wanted = exact_neighbors(queries, base, k), naive_neighbors(queries, base, k)
    # Sums of float64 in another order may differ in their last digits: only then may the two.
    left, right = queries.astype(float)[:, None], base.astype(float)
    distances = ((left - right) ** 2).sum(2)
    for query in np.flatnonzero((found != wanted).any(axis=1)):
        np.testing.assert_allclose(distances[query, found[query]], distances[query, wanted[query]], rtol=1e-12)
    for query in range(n_queries):
        assert len(set(found[query].tolist())) == k


@pytest.mark.usefixtures("blocks")
def test_rows_closer_than_float32_can_tell():
    """In float32 products all these rows are equally far; the differences tell them apart."""
    random = np.random.default_rng(0)
    centre = random.standard_normal(16) * 1000
    steps = random.permutation(50)
    base = np.stack([centre + step * 1e-7 for step in steps] + [-centre])
    assert np.array_equal(exact_neighbors(centre[None], base, 50)[0], np.argsort(steps))


def test_one_far_row_does_not_hide_the_near_ones():
    random = np.random.default_rng(0)
    base = random.standard_normal((300, 8)).astype(np.float32)
    base[5] = 1e12
    queries = random.standard_normal((4, 8)).astype(np.float32)
    assert np.array_equal(exact_neighbors(queries, base, 7), naive_neighbors(queries, base, 7))


@pytest.mark.parametrize("scale", [1e-40, 1e-23, 1e-22, 1e-16, 1e-14, 1e14, 1e16, 1e18, 1e36])
def test_numbers_whose_squares_leave_the_range_of_float32(scale):
    random = np.random.default_rng(0)
    base, queries = (random.standard_normal((n, 16)).astype(np.float32) * np.float32(scale) for n in (3000, 20))
    distances = ((queries.astype(float)[:, None] - base) ** 2).sum(2)
    wanted = np.argsort(distances, axis=1, kind="stable")[:, :10]
    assert np.array_equal(exact_neighbors(queries, base, 10), wanted)


def test_equal_rows_by_number():
    assert exact_neighbors(np.zeros((2, 3)), np.full((5000, 3), 0.1), 4).tolist() == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize(
    ("dtype", "columns", "top", "element", "exact"),
    [
        ("u1", 128, 255, np.float32, True),
        ("u1", 341, 255, np.float32, True),
        ("u1", 342, 255, np.float64, True),
        ("f4", 128, 218, np.float32, True),
        ("i4", 4, 2**24, np.float64, True),
        ("i4", 4, 2**25, np.float64, False),
        ("f4", 128, 0.5, np.float32, False),
        ("f8", 128, 0.5, np.float64, False),
        ("f4", 128, 1e20, np.float64, False),
    ],
)
def test_products_are_computed_where_nothing_is_lost(dtype, columns, top, element, exact):
    base = np.zeros((2, columns), dtype=dtype)
    base[1] = top
    plan = _Plan.of(base, base)
    assert (plan.element, plan.exact) == (element, exact)
    if exact:
        # The largest score there can be is a whole number that the element still tells from the next.
        largest = 3 * columns * float(np.abs(plan.prepare(base)).max()) ** 2
        assert element(largest) - element(largest - 1) == 1


def test_progress_counts_queries(monkeypatch):
    monkeypatch.setattr(ground_truth, "_QUERIES_AT_A_TIME", 4)
    seen = []
    exact_neighbors(np.zeros((10, 2)), np.zeros((3, 2)), 1, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(4, 10), (8, 10), (10, 10)]


@pytest.mark.parametrize(
    ("queries", "base", "k", "error", "message"),
    [
        (np.zeros((1, 2)), np.zeros((1, 3)), 1, ShapeError, "queries have 2 columns and base 3"),
        (np.zeros(2), np.zeros((1, 2)), 1, ShapeError, "queries has shape"),
        (np.zeros((1, 2)), np.zeros((4, 2)), 5, InputError, "k is 5; expected 1 to 4"),
        (np.zeros((1, 2)), np.zeros((4, 2)), 0, InputError, "k is 0"),
        (np.zeros((1, 2)), np.zeros((4, 2)), 1.5, DtypeError, "k is 1.5"),
        (np.zeros((1, 2)), np.array([[0, 0], [0, np.nan]]), 1, NotFiniteError, "base: row 1"),
        (np.zeros((1, 2)), np.full((1, 2), 1e200), 1, InputError, "numbers reach 1e.200"),
    ],
)
def test_input_is_checked(queries, base, k, error, message):
    with pytest.raises(error, match=message):
        exact_neighbors(queries, base, k)
