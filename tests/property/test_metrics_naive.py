"""Every metric equals a naive version of itself, on any input."""

from __future__ import annotations

from fractions import Fraction
from itertools import chain, permutations, product
from math import comb, fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hamtarget.codes import pack
from hamtarget.evaluation import metrics

N_BITS = 16


def codes_at(distances):
    """Codes at the given distances of the code 0."""
    return pack(np.arange(N_BITS) < np.asarray(distances)[:, None])


QUERY = codes_at([0])


def naive_ap(ranking, k):
    """AP@k of one ranking of relevant and other rows."""
    good, total = 0, Fraction(0)
    for rank, relevant in enumerate(ranking[:k], start=1):
        if relevant:
            good += 1
            total += Fraction(good, rank)
    return total / good if good else Fraction(0)


def naive_expected_ap(distances, relevant, k):
    """Mean of AP@k over every order of the rows that agrees with their distances."""
    groups = [
        [good for far, good in zip(distances, relevant, strict=True) if far == distance]
        for distance in sorted(set(distances))
    ]
    orders = list(product(*(list(permutations(group)) for group in groups)))
    return sum(naive_ap(list(chain(*order)), k) for order in orders) / len(orders)


def naive_distances(queries, database):
    return [[sum((int(a) ^ int(b)).bit_count() for a, b in zip(q, d, strict=True)) for d in database] for q in queries]


few_rows = st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6)


@given(few_rows, st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_expected_ap_is_the_mean_over_all_orders_of_ties(rows, k):
    far, relevant = zip(*rows, strict=True)
    found = metrics.average_precision(QUERY, codes_at(far), np.array([relevant]), n_bits=N_BITS, k=k)
    assert found == pytest.approx([float(naive_expected_ap(far, relevant, k))], abs=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("n_relevant", [0, 1, 2, 3, 4, 5])
def test_expected_ap_of_one_group_that_every_k_cuts(k, n_relevant):
    # Rows 1..5 tie behind one relevant row: every number of relevant rows before every cut.
    far = [0] + [2] * 5
    relevant = [True] + [i < n_relevant for i in range(5)]
    found = metrics.average_precision(QUERY, codes_at(far), np.array([relevant]), n_bits=N_BITS, k=k)
    assert found == pytest.approx([float(naive_expected_ap(far, relevant, k))], abs=1e-12)


def test_expected_ap_is_the_mean_of_many_shuffled_databases():
    rng = np.random.default_rng(1)
    far = rng.integers(0, 6, 200)
    relevant = rng.random((2, 200)) < np.where(far < 3, 0.6, 0.2)
    queries, database = np.repeat(QUERY, 2, axis=0), codes_at(far)
    expected = metrics.average_precision(queries, database, relevant, n_bits=N_BITS, k=70)
    seen = []
    for _ in range(3000):
        order = rng.permutation(200)
        seen.append(
            metrics.average_precision(
                queries, database[order], relevant[:, order], n_bits=N_BITS, k=70, ties="database_order"
            )
        )
    error = np.std(seen, axis=0) / np.sqrt(len(seen))
    assert (error > 0).all()
    assert (error < 0.01).all()
    assert np.abs(np.mean(seen, axis=0) - expected).max() < 5 * error.max()


def test_expected_ap_of_large_groups_keeps_its_digits():
    # 700 rows, 90 relevant, then 50,000 rows, 3,000 relevant, of which k = 1000 takes 300; in exact arithmetic.
    sizes, goods, k = (700, 50_000), (90, 3_000), 1000
    relevant = np.concatenate([np.arange(n) < r for n, r in zip(sizes, goods, strict=True)])
    database = codes_at(np.repeat([1, 4], sizes))
    found = metrics.average_precision(QUERY, database, relevant[None], n_bits=N_BITS, k=k)

    def shuffled(size, good, before, good_before):
        return fsum(
            good / size * (good_before + 1 + (i - 1) * (good - 1) / (size - 1)) / (before + i)
            for i in range(1, size + 1)
        )

    whole = shuffled(700, 90, 0, 0)
    naive = fsum(
        float(Fraction(comb(3_000, h) * comb(47_000, 300 - h), comb(50_000, 300)))
        * (whole + shuffled(300, h, 700, 90))
        / (90 + h)
        for h in range(301)
    )
    assert found == pytest.approx([naive], rel=1e-10)


@given(few_rows, st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_database_order_is_a_stable_sort(rows, k):
    far, relevant = zip(*rows, strict=True)
    ranking = [good for _, good in sorted(rows, key=lambda row: row[0])]
    found = metrics.average_precision(
        QUERY, codes_at(far), np.array([relevant]), n_bits=N_BITS, k=k, ties="database_order"
    )
    assert found == pytest.approx([float(naive_ap(ranking, k))], abs=1e-12)


def test_database_order_is_a_stable_sort_of_many_rows():
    # Sorts are stable by accident below a few dozen rows.
    rng = np.random.default_rng(3)
    far, relevant = rng.integers(0, 3, 500), rng.random(500) < 0.3
    ranking = [good for _, good in sorted(zip(far, relevant, strict=True), key=lambda row: row[0])]
    found = metrics.average_precision(QUERY, codes_at(far), relevant[None], n_bits=N_BITS, k=100, ties="database_order")
    assert found == pytest.approx([float(naive_ap(ranking, 100))])


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=2, max_size=4), st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_queries_whose_ties_hold_different_numbers_of_relevant_rows(relevant, k):
    far = [0, 1, 1, 1, 1, 1]
    found = metrics.average_precision(
        np.repeat(QUERY, len(relevant), axis=0), codes_at(far), np.array(relevant), n_bits=N_BITS, k=k
    )
    assert found == pytest.approx([float(naive_expected_ap(far, row, k)) for row in relevant], abs=1e-12)


@st.composite
def searches(draw):
    """Queries, a database and what is relevant: few distinct codes, so that there are ties and equal codes."""
    n_queries, n_rows = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    n_bytes = draw(st.sampled_from([1, 2, 3, 8]))
    pool = rng.integers(0, 256, (draw(st.integers(1, 8)), n_bytes), dtype=np.uint8)
    queries = pool[rng.integers(0, len(pool), n_queries)]
    database = pool[rng.integers(0, len(pool), n_rows)]
    relevant = rng.random((n_queries, n_rows)) < draw(st.sampled_from([0.0, 0.3, 0.9]))
    return queries, database, relevant, 8 * n_bytes


@given(searches(), st.integers(1, 14), st.sampled_from(["expected", "database_order"]))
@settings(max_examples=60, deadline=None)
def test_map_is_the_mean_over_queries_however_they_are_chunked(search, k, ties):
    queries, database, relevant, n_bits = search
    alone = [
        metrics.average_precision(queries[i], database, relevant[i : i + 1], n_bits=n_bits, k=k, ties=ties)[0]
        for i in range(len(queries))
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_CELLS_AT_A_TIME", 2 * len(database))
        found = metrics.average_precision(queries, database, relevant, n_bits=n_bits, k=k, ties=ties)
        mean = metrics.mean_average_precision(queries, database, relevant, n_bits=n_bits, k=k, ties=ties)
    assert found == pytest.approx(alone, abs=1e-12)
    assert mean == pytest.approx(sum(alone) / len(alone), abs=1e-12)


@given(searches(), st.integers(1, 14), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_expected_ap_does_not_know_the_order_of_the_database(search, k, random):
    queries, database, relevant, n_bits = search
    order = random.sample(range(len(database)), len(database))
    one = metrics.average_precision(queries, database, relevant, n_bits=n_bits, k=k)
    other = metrics.average_precision(queries, database[order], relevant[:, order], n_bits=n_bits, k=k)
    assert one == pytest.approx(other, abs=1e-12)


@given(searches(), st.data())
@settings(max_examples=60, deadline=None)
def test_radius_curve_counts_hits(search, data):
    queries, database, relevant, n_bits = search
    max_radius = data.draw(st.one_of(st.none(), st.integers(0, n_bits)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_CELLS_AT_A_TIME", 2 * len(database))
        curve = metrics.precision_recall_by_radius(queries, database, relevant, n_bits=n_bits, max_radius=max_radius)
    far = naive_distances(queries, database)
    radii = range((n_bits if max_radius is None else max_radius) + 1)
    assert len(curve.precision) == len(curve.precision_per_query) == len(curve.recall) == len(curve.hits) == len(radii)
    for radius in radii:
        hits = [[j for j, distance in enumerate(row) if distance <= radius] for row in far]
        good = [sum(relevant[i][j] for j in row) for i, row in enumerate(hits)]
        n_hits = sum(map(len, hits))
        own = [g / len(row) if row else 0.0 for g, row in zip(good, hits, strict=True)]
        assert curve.hits[radius] == pytest.approx(n_hits / len(queries))
        assert curve.precision[radius] == pytest.approx(sum(good) / n_hits if n_hits else 0.0)
        assert curve.precision_per_query[radius] == pytest.approx(sum(own) / len(queries))
        assert curve.recall[radius] == pytest.approx(sum(good) / relevant.sum() if relevant.any() else 0.0)


@given(
    st.lists(st.sampled_from([0, 1, 7, -3]), min_size=1, max_size=6),
    st.lists(st.sampled_from([0, 1, 7, 9]), min_size=1, max_size=6),
    st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_by_label_is_equality(query_labels, database_labels, text):
    if text:
        query_labels, database_labels = list(map(str, query_labels)), list(map(str, database_labels))
    relevance = metrics.by_label(query_labels, database_labels)
    naive = [[q == d for d in database_labels] for q in query_labels]
    assert relevance.shape == (len(query_labels), len(database_labels))
    assert relevance.rows(0, len(query_labels)).tolist() == naive
    assert relevance.rows(1, len(query_labels)).tolist() == naive[1:]


@given(st.integers(1, 6), st.integers(1, 6), st.integers(1, 4), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_by_label_of_matrices_is_a_label_in_common(n_queries, n_rows, n_labels, seed):
    rng = np.random.default_rng(seed)
    queries, database = rng.integers(0, 2, (n_queries, n_labels)), rng.integers(0, 2, (n_rows, n_labels))
    naive = [[any(a and b for a, b in zip(q, d, strict=True)) for d in database] for q in queries]
    assert metrics.by_label(queries, database.astype(float)).rows(0, n_queries).tolist() == naive


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 2**32 - 1), st.data())
@settings(max_examples=60, deadline=None)
def test_recall_counts_queries(n_queries, n_columns, seed, data):
    rng = np.random.default_rng(seed)
    found, true = rng.integers(-1, 6, (n_queries, n_columns)), rng.integers(0, 6, n_queries)
    k = data.draw(st.integers(1, n_columns))
    naive = sum(true[i] in found[i, :k].tolist() for i in range(n_queries)) / n_queries
    assert metrics.recall_at_k(found, true, k) == pytest.approx(naive)


@given(st.integers(2, 40), st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_balance_and_correlation_of_bits(n_rows, seed):
    rng = np.random.default_rng(seed)
    bits = rng.random((n_rows, N_BITS)) < rng.random(N_BITS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_ROWS_AT_A_TIME", 7)
        balance = metrics.bit_balance(pack(bits), N_BITS)
        correlation = metrics.bit_correlation(pack(bits), N_BITS)
    assert balance == pytest.approx(bits.mean(axis=0))
    constant = bits.all(axis=0) | ~bits.any(axis=0)
    pairs = [
        1.0 if constant[a] or constant[b] else abs(np.corrcoef(bits[:, a], bits[:, b])[0, 1])
        for a in range(N_BITS)
        for b in range(N_BITS)
        if a != b
    ]
    assert correlation == pytest.approx(np.mean(pairs))
