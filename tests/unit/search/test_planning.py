"""Planning: the cost model against counting, known values, and what is refused."""

from __future__ import annotations

import dataclasses
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hamtarget.codes import distances, pack, substring_bounds, unpack
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.search import planning

# Every code of 8 bits once: codes that are exactly uniform.
ALL_8_BIT_CODES = np.arange(256, dtype=np.uint8)[:, None]


@pytest.mark.parametrize(
    ("n_rows", "n_bits", "radius"),
    [(1_000_000, 64, 2), (128_503, 64, 3), (128_503, 32, 1), (128_503, 16, 0), (10**9, 128, 3), (10**6, 8, 0)],
)
def test_recommended_radius(n_rows, n_bits, radius):
    assert planning.recommended_radius(n_rows, n_bits) == radius


@given(st.integers(1, 10**12), st.integers(1, 128).map(lambda n_bytes: 8 * n_bytes))
@settings(max_examples=200, deadline=None)
def test_no_other_radius_has_substrings_nearer_to_log2_of_the_rows(n_rows, n_bits):
    found = planning.recommended_radius(n_rows, n_bits)
    best = min(abs(n_bits / (radius + 1) - log2(n_rows)) for radius in range(n_bits))
    assert abs(n_bits / (found + 1) - log2(n_rows)) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("radius", range(8))
def test_expected_numbers_are_those_of_all_codes(radius):
    # 256 uniform rows, each code once: expectation and count are the same number.
    measured = planning.measured_candidates(ALL_8_BIT_CODES, ALL_8_BIT_CODES, n_bits=8, radius=radius)
    plan = planning.plan(256, 8, radius)
    assert (measured.rows_read == plan.expected_candidates).all()
    assert (measured.hits == plan.expected_hits).all()
    assert plan.expected_candidates == planning.expected_candidates(256, 8, radius)


def test_expected_candidates_is_the_papers_cost():
    assert planning.expected_candidates(1_000_000, 64, 3) == 4 * 1_000_000 / 2 ** (64 / 4)
    # 64 = 22 + 21 + 21
    assert planning.expected_candidates(1_000_000, 64, 2) == 1_000_000 * (2**-22 + 2 * 2**-21)


def test_expected_candidates_of_the_longest_codes():
    assert planning.plan(10, 1024, 1023).expected_hits == pytest.approx(10)
    assert planning.expected_candidates(2**30, 1024, 0) == 2.0**-994


def naive_measured(queries, database, n_bits, radius):
    query_bits, row_bits = unpack(queries, n_bits), unpack(database, n_bits)
    read, candidates, hits = [], [], []
    for query in query_bits:
        buckets = [
            {i for i, row in enumerate(row_bits) if (row[start:stop] == query[start:stop]).all()}
            for start, stop in substring_bounds(n_bits, radius + 1)
        ]
        read.append(sum(map(len, buckets)))
        candidates.append(len(set().union(*buckets)))
        hits.append(sum(int((row != query).sum()) <= radius for row in row_bits))
    return read, candidates, hits


@given(
    st.sampled_from([8, 16, 24, 64, 72, 1024]),
    st.integers(0, 12),
    st.sampled_from([0.02, 0.1, 0.5]),
    st.integers(0, 2**32 - 1),
)
@settings(max_examples=80, deadline=None)
def test_measured_candidates_are_counted(n_bits, radius, noise, seed):
    radius = min(radius, n_bits - 1)
    rng = np.random.default_rng(seed)
    # Noisy copies of two codes, so that buckets hold rows whatever their length.
    centres = rng.random((2, n_bits)) < 0.5
    queries = pack(centres[rng.integers(0, 2, 4)] ^ (rng.random((4, n_bits)) < noise))
    database = pack(centres[rng.integers(0, 2, 25)] ^ (rng.random((25, n_bits)) < noise))
    found = planning.measured_candidates(queries, database, n_bits=n_bits, radius=radius)
    read, candidates, hits = naive_measured(queries, database, n_bits, radius)
    assert found.rows_read.tolist() == read
    assert found.candidates.tolist() == candidates
    assert found.hits.tolist() == hits


def test_measured_candidates_of_many_rows():
    rng = np.random.default_rng(2)
    database = rng.integers(0, 256, (20_000, 4), dtype=np.uint8)
    queries = database[:50] ^ np.uint8([1, 0, 128, 0])
    found = planning.measured_candidates(queries, database, n_bits=32, radius=2)
    assert found.hits.tolist() == (distances(queries, database, 32) <= 2).sum(axis=1).tolist()
    assert (found.hits >= 1).all()
    assert (found.rows_read >= found.candidates).all()
    assert found.rows_read.mean() == pytest.approx(planning.expected_candidates(20_000, 32, 2), rel=0.1)


def test_equal_rows_are_read_once_for_every_table_and_are_one_candidate_each():
    database = np.full((3, 2), 7, dtype=np.uint8)
    found = planning.measured_candidates(database[0], database, n_bits=16, radius=3)
    assert (found.rows_read.tolist(), found.candidates.tolist(), found.hits.tolist()) == ([12], [3], [3])


@pytest.mark.parametrize(("n_queries", "n_rows"), [(0, 3), (2, 0), (0, 0)])
def test_measured_candidates_of_nothing(n_queries, n_rows):
    queries, database = (np.zeros((n, 1), dtype=np.uint8) for n in (n_queries, n_rows))
    found = planning.measured_candidates(queries, database, n_bits=8, radius=1)
    for counts in (found.rows_read, found.candidates, found.hits):
        assert counts.tolist() == [0] * n_queries


def test_plan():
    plan = planning.plan(1_000_000, 64)
    assert (plan.n_rows, plan.n_bits, plan.radius, plan.substrings) == (1_000_000, 64, 2, 3)
    assert plan.substring_lengths == (22, 21, 21)
    assert plan.expected_candidates == planning.expected_candidates(1_000_000, 64, 2)
    assert plan.share_read == pytest.approx(plan.expected_candidates / 1_000_000)
    assert plan.expected_hits == pytest.approx(1_000_000 * (1 + 64 + 2016) / 2**64)
    assert plan.reason == (
        "Radius 2 splits 64 bits into 3 substrings of 21 or 22 bits, nearest to log2 of the rows (19.9): "
        "a query reads about 1.2 of 1,000,000 rows (0.00012%)."
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.radius = 3


def test_plan_of_the_recommended_radius_given_is_the_same():
    assert planning.plan(1_000_000, 64, 2) == planning.plan(1_000_000, 64)


def test_plan_says_when_the_radius_is_too_large():
    reason = planning.plan(1_000_000, 64, 7).reason
    assert "8 substrings of 8 bits, shorter than log2 of the rows (19.9), so buckets are crowded" in reason
    assert "31,250 of 1,000,000 rows (3.1%)" in reason
    assert "Radius 2 or longer codes would read less" in reason
    assert "linear scan" not in reason


def test_plan_says_when_a_larger_radius_costs_little():
    reason = planning.plan(1_000_000, 64, 0).reason
    assert "1 substring of 64 bits, longer than log2 of the rows (19.9)" in reason
    assert "Any radius up to 2 is about as cheap" in reason
    assert "linear scan" not in reason


@pytest.mark.parametrize(("n_rows", "n_bits", "radius"), [(1, 64, None), (1_000_000, 64, 30), (10, 64, None)])
def test_plan_says_when_a_linear_scan_is_as_cheap(n_rows, n_bits, radius):
    plan = planning.plan(n_rows, n_bits, radius)
    assert plan.expected_candidates + plan.substrings >= n_rows
    assert plan.reason.endswith("A linear scan would be as cheap.")


def test_a_linear_scan_is_as_cheap_from_the_row_that_buckets_and_rows_read_make_up():
    # Radius 7 of 8 bits: 8 buckets of half the rows each, always dearer. Radius 0 of 64 bits: 1 bucket, cheaper from
    # the second row on.
    assert "linear scan" in planning.plan(10**9, 8, 7).reason
    assert "linear scan" in planning.plan(1, 64, 0).reason
    assert "linear scan" not in planning.plan(2, 64, 0).reason


every_plan = pytest.mark.parametrize(
    "function",
    [
        lambda n_rows, n_bits: planning.recommended_radius(n_rows, n_bits),
        lambda n_rows, n_bits: planning.expected_candidates(n_rows, n_bits, 2),
        lambda n_rows, n_bits: planning.plan(n_rows, n_bits),
    ],
    ids=["recommended_radius", "expected_candidates", "plan"],
)


@every_plan
def test_rows_and_bits_that_are_refused(function):
    with pytest.raises(InputError, match="n_rows is 0; expected at least 1"):
        function(0, 64)
    with pytest.raises(DtypeError, match="n_rows is 1000000.0; expected an integer"):
        function(1e6, 64)
    with pytest.raises(DtypeError, match="n_rows is True; expected an integer"):
        function(True, 64)
    with pytest.raises(InputError, match="n_bits is 60; expected a multiple of 8"):
        function(100, 60)


@pytest.mark.parametrize("radius", [-1, 64])
def test_radius_out_of_range(radius):
    codes = np.zeros((1, 8), dtype=np.uint8)
    for call in (
        lambda: planning.expected_candidates(100, 64, radius),
        lambda: planning.plan(100, 64, radius),
        lambda: planning.measured_candidates(codes, codes, n_bits=64, radius=radius),
    ):
        with pytest.raises(InputError, match=f"radius is {radius}; expected 0 to 63"):
            call()


def test_measured_candidates_of_what_is_no_codes():
    codes = np.zeros((1, 8), dtype=np.uint8)
    with pytest.raises(ShapeError, match="query_codes have 4 bytes a row; 64 bits take 8"):
        planning.measured_candidates(codes[:, :4], codes, n_bits=64, radius=2)
    with pytest.raises(DtypeError, match="database_codes have dtype float64"):
        planning.measured_candidates(codes, codes.astype(float), n_bits=64, radius=2)
    with pytest.raises(InputError, match="n_bits is 4"):
        planning.measured_candidates(codes, codes, n_bits=4, radius=2)
