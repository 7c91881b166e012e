"""Metrics: known values, edges, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hamtarget.codes import pack
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.evaluation import metrics

QUERY = np.zeros((1, 1), dtype=np.uint8)
# Distances 0, 1, 1, 8 of the query.
DATABASE = np.array([[0], [1], [2], [255]], dtype=np.uint8)


def average_precision(relevant, **options):
    return metrics.average_precision(QUERY, DATABASE, np.array([relevant], dtype=bool), n_bits=8, **options)[0]


def test_ap_without_ties_that_matter():
    assert average_precision([1, 0, 0, 1]) == pytest.approx((1 + 2 / 4) / 2)


def test_ap_of_a_tie_is_the_mean_of_its_two_orders():
    # Rank 2 or 3, with equal chance.
    assert average_precision([0, 1, 0, 0]) == pytest.approx((1 / 2 + 1 / 3) / 2)
    assert average_precision([0, 0, 1, 0]) == pytest.approx((1 / 2 + 1 / 3) / 2)


def test_ap_in_database_order_depends_on_the_database():
    assert average_precision([0, 1, 0, 0], ties="database_order") == pytest.approx(1 / 2)
    assert average_precision([0, 0, 1, 0], ties="database_order") == pytest.approx(1 / 3)


def test_ap_with_a_tie_across_k():
    # k = 2 keeps one of the two tied rows: 1/2 if it is the relevant one; else nothing relevant, 0.
    assert average_precision([0, 1, 0, 0], k=2) == pytest.approx(1 / 4)
    # With row 0 relevant the denominator changes as well: (1 + 2/2) / 2 or 1 / 1.
    assert average_precision([1, 1, 0, 0], k=2) == pytest.approx(1)
    # k ends exactly where the group does.
    assert average_precision([0, 1, 0, 1], k=3) == pytest.approx((1 / 2 + 1 / 3) / 2)


@pytest.mark.parametrize("ties", ["expected", "database_order"])
def test_ap_divides_by_the_relevant_rows_within_k_only(ties):
    assert average_precision([1, 0, 0, 1], k=1, ties=ties) == pytest.approx(1)


@pytest.mark.parametrize("ties", ["expected", "database_order"])
def test_a_query_without_relevant_rows_within_k_scores_0(ties):
    assert average_precision([0, 0, 0, 0], ties=ties) == 0
    assert average_precision([0, 0, 0, 1], k=3, ties=ties) == 0


@pytest.mark.parametrize("ties", ["expected", "database_order"])
def test_all_relevant_scores_1_also_when_all_codes_are_equal(ties):
    database = np.zeros((500, 1), dtype=np.uint8)
    relevant = np.ones((1, 500), dtype=bool)
    for k in (1, 499, 500, 501):
        assert metrics.average_precision(QUERY, database, relevant, n_bits=8, k=k, ties=ties) == pytest.approx([1])


def test_k_defaults_to_1000():
    # The one relevant row is the 1001st.
    far = np.arange(1001) == 1000
    database = np.where(far, 255, 0).astype(np.uint8)[:, None]
    assert metrics.mean_average_precision(QUERY, database, far[None], n_bits=8) == 0
    assert metrics.mean_average_precision(QUERY, database, far[None], n_bits=8, k=1001) == pytest.approx(1 / 1001)


def test_map_by_label_equals_map_by_matrix():
    rng = np.random.default_rng(0)
    queries, database = (rng.integers(0, 256, (n, 2), dtype=np.uint8) for n in (9, 60))
    query_labels, database_labels = rng.integers(0, 3, 9), rng.integers(0, 3, 60)
    matrix = query_labels[:, None] == database_labels
    by_label = metrics.mean_average_precision(
        queries, database, metrics.by_label(query_labels, database_labels), n_bits=16, k=20
    )
    assert by_label == metrics.mean_average_precision(queries, database, matrix, n_bits=16, k=20)
    assert 0.2 < by_label < 0.8


class Recorded:
    """A relevance that notes how many queries it was asked for at a time."""

    def __init__(self, matrix):
        self.matrix = matrix
        self.shape = matrix.shape
        self.asked = []

    def rows(self, start, stop):
        self.asked.append((start, stop))
        return self.matrix[start:stop]


def test_relevance_is_asked_for_a_few_queries_at_a_time(monkeypatch):
    monkeypatch.setattr(metrics, "_CELLS_AT_A_TIME", 9)
    relevance = Recorded(np.ones((5, 4), dtype=bool))
    metrics.mean_average_precision(np.zeros((5, 1), dtype=np.uint8), DATABASE, relevance, n_bits=8)
    assert relevance.asked == [(0, 2), (2, 4), (4, 5)]


def test_a_relevance_with_a_database_larger_than_a_chunk_is_asked_query_by_query(monkeypatch):
    monkeypatch.setattr(metrics, "_CELLS_AT_A_TIME", 3)
    relevance = Recorded(np.ones((2, 4), dtype=bool))
    metrics.precision_recall_by_radius(np.zeros((2, 1), dtype=np.uint8), DATABASE, relevance, n_bits=8)
    assert relevance.asked == [(0, 1), (1, 2)]


both_ap = pytest.mark.parametrize("metric", [metrics.average_precision, metrics.mean_average_precision])
with_relevant = pytest.mark.parametrize(
    "metric", [metrics.average_precision, metrics.mean_average_precision, metrics.precision_recall_by_radius]
)


@with_relevant
@pytest.mark.parametrize("shape", [(4, 1), (2, 4), (1, 5)])
def test_relevant_of_another_shape(metric, shape):
    with pytest.raises(ShapeError, match=rf"relevant has shape \({shape[0]}, {shape[1]}\); expected \(1, 4\)"):
        metric(QUERY, DATABASE, np.zeros(shape, dtype=bool), n_bits=8)


@with_relevant
def test_relevant_of_another_kind(metric):
    with pytest.raises(ShapeError, match="relevant has 1 dimensions"):
        metric(QUERY, DATABASE, np.zeros(4, dtype=bool), n_bits=8)
    with pytest.raises(DtypeError, match="relevant has dtype int64; expected a boolean.*by_label"):
        metric(QUERY, DATABASE, np.zeros((1, 4), dtype=np.int64), n_bits=8)
    with pytest.raises(ShapeError, match=r"relevant has shape \(1, 3\)"):
        metric(QUERY, DATABASE, metrics.by_label([1], [1, 2, 3]), n_bits=8)


@with_relevant
def test_a_relevance_that_breaks_its_promise(metric):
    short = Recorded(np.ones((1, 4), dtype=bool))
    short.matrix = short.matrix[:, :3]
    with pytest.raises(ShapeError, match=r"relevant.rows\(0, 1\) have shape \(1, 3\); expected \(1, 4\)"):
        metric(QUERY, DATABASE, short, n_bits=8)
    with pytest.raises(DtypeError, match=r"relevant.rows\(0, 1\) have dtype float64; expected bool"):
        metric(QUERY, DATABASE, Recorded(np.ones((1, 4))), n_bits=8)


@with_relevant
def test_codes_that_are_no_codes(metric):
    relevant = np.zeros((1, 4), dtype=bool)
    with pytest.raises(DtypeError, match="query_codes have dtype int64"):
        metric(QUERY.astype(np.int64), DATABASE, relevant, n_bits=8)
    with pytest.raises(ShapeError, match="database_codes have 1 bytes a row; 16 bits take 2"):
        metric(np.zeros((1, 2), dtype=np.uint8), DATABASE, relevant, n_bits=16)
    with pytest.raises(InputError, match="n_bits is 7"):
        metric(QUERY, DATABASE, relevant, n_bits=7)
    with pytest.raises(ShapeError, match="query_codes have 0 rows"):
        metric(QUERY[:0], DATABASE, relevant[:0], n_bits=8)
    with pytest.raises(ShapeError, match="database_codes have 0 rows"):
        metric(QUERY, DATABASE[:0], relevant[:, :0], n_bits=8)


@both_ap
def test_options_of_ap(metric):
    relevant = np.zeros((1, 4), dtype=bool)
    for k in (0, -1):
        with pytest.raises(InputError, match=f"k is {k}; expected 1 or more"):
            metric(QUERY, DATABASE, relevant, n_bits=8, k=k)
    for k in (2.0, True, "2"):
        with pytest.raises(DtypeError, match="expected an integer"):
            metric(QUERY, DATABASE, relevant, n_bits=8, k=k)
    with pytest.raises(InputError, match='ties is \'best\'; expected "expected" or "database_order"'):
        metric(QUERY, DATABASE, relevant, n_bits=8, ties="best")


def test_radius_curve():
    relevant = np.array([[True, False, True, False], [False, False, False, True]])
    queries = np.array([[0], [240]], dtype=np.uint8)  # the second is at distances 4, 5, 5, 4
    curve = metrics.precision_recall_by_radius(queries, DATABASE, relevant, n_bits=8, max_radius=4)
    assert curve.hits.tolist() == [0.5, 1.5, 1.5, 1.5, 2.5]
    assert curve.precision == pytest.approx([1, 2 / 3, 2 / 3, 2 / 3, 3 / 5])
    assert curve.precision_per_query == pytest.approx([1 / 2, 1 / 3, 1 / 3, 1 / 3, (2 / 3 + 1 / 2) / 2])
    assert curve.recall == pytest.approx([1 / 3, 2 / 3, 2 / 3, 2 / 3, 1])
    with pytest.raises(dataclasses.FrozenInstanceError):
        curve.hits = curve.recall


def test_radius_curve_has_zeros_where_nothing_is_hit_or_relevant():
    nothing = np.zeros((1, 1), dtype=bool)
    curve = metrics.precision_recall_by_radius(QUERY, DATABASE[3:], nothing, n_bits=8)
    assert curve.hits.tolist() == [0] * 8 + [1]
    for zeros in (curve.precision, curve.precision_per_query, curve.recall):
        assert zeros.tolist() == [0] * 9


@pytest.mark.parametrize("max_radius", [-1, 9])
def test_max_radius_out_of_range(max_radius):
    with pytest.raises(InputError, match=f"max_radius is {max_radius}; expected 0 to n_bits"):
        metrics.precision_recall_by_radius(
            QUERY, DATABASE, np.zeros((1, 4), dtype=bool), n_bits=8, max_radius=max_radius
        )


@pytest.mark.parametrize("max_radius", [1.0, True])
def test_max_radius_that_is_no_integer(max_radius):
    with pytest.raises(DtypeError, match="max_radius is .*; expected an integer"):
        metrics.precision_recall_by_radius(
            QUERY, DATABASE, np.zeros((1, 4), dtype=bool), n_bits=8, max_radius=max_radius
        )


def test_by_label_accepts_integers_of_different_sizes():
    assert metrics.by_label(np.uint8([1]), np.int64([1, 257, -255])).rows(0, 1).tolist() == [[True, False, False]]


@pytest.mark.parametrize(
    ("query_labels", "database_labels", "error", "message"),
    [
        ([1], [[1]], ShapeError, "query_labels have 1 dimensions and database_labels 2"),
        (1, 1, ShapeError, "query_labels have 0 dimensions"),
        ([[[1]]], [[[1]]], ShapeError, "query_labels have 3 dimensions"),
        ([[1, 0]], [[1, 0, 0]], ShapeError, "query_labels have 2 columns and database_labels 3"),
        ([1.0], [1], DtypeError, "query_labels have dtype float64; expected integers or text"),
        ([1], [None], DtypeError, "database_labels have dtype object"),
        (["1"], [1], DtypeError, "expected the same kind"),
        (np.uint64([1]), np.int64([1]), DtypeError, "query_labels have dtype uint64 and database_labels int64"),
        ([["1"]], [["1"]], DtypeError, "expected 0 and 1"),
        ([[0, 1]], [[0, 2]], InputError, "database_labels hold 2 in a 2-D array.*1-D array"),
        ([[0, np.nan]], [[0, 1]], InputError, "query_labels hold nan"),
    ],
)
def test_labels_that_are_refused(query_labels, database_labels, error, message):
    with pytest.raises(error, match=message):
        metrics.by_label(query_labels, database_labels)


def test_recall():
    found = [[5, 1, 2], [3, 4, 5], [6, -1, -1]]
    assert metrics.recall_at_k(found, [2, 3, 7], 3) == pytest.approx(2 / 3)
    assert metrics.recall_at_k(found, [2, 3, 7], 2) == pytest.approx(1 / 3)
    assert metrics.recall_at_k(found, [2, 3, 7], k=1) == pytest.approx(1 / 3)


def test_recall_never_matches_the_filling():
    assert metrics.recall_at_k([[-1, 1]], [-1], 2) == 0
    # -1 as uint64 is another number.
    assert metrics.recall_at_k([[-1]], np.uint64([2**64 - 1]), 1) == 0


@pytest.mark.parametrize(
    ("found", "true", "k", "error", "message"),
    [
        ([[1, 2]], [1], 0, InputError, "k is 0"),
        ([[1, 2]], [1], 1.0, DtypeError, "k is 1.0"),
        ([[1, 2]], [1], 3, ShapeError, "found_ids have 2 columns; recall at 3 needs 3"),
        ([1, 2], [1], 1, ShapeError, r"found_ids have shape \(2,\)"),
        (np.zeros((0, 3), dtype=int), np.zeros(0, dtype=int), 1, ShapeError, "at least one query"),
        ([[1, 2]], [1, 2], 1, ShapeError, r"true_ids have shape \(2,\); expected \(1,\)"),
        ([[1, 2]], [[1, 2]], 1, ShapeError, "pass its column 0"),
        ([[1.0, 2.0]], [1], 1, DtypeError, "found_ids have dtype float64"),
        ([[1, 2]], [1.0], 1, DtypeError, "true_ids have dtype float64"),
    ],
)
def test_ids_that_are_refused(found, true, k, error, message):
    with pytest.raises(error, match=message):
        metrics.recall_at_k(found, true, k)


def test_balance():
    codes = np.array([[0b0001], [0b0011], [0b0000], [0b1001]], dtype=np.uint8)
    assert metrics.bit_balance(codes, 8).tolist() == [0.75, 0.25, 0, 0.25, 0, 0, 0, 0]


def test_correlation_of_independent_bits_is_0():
    all_codes = np.arange(256, dtype=np.uint8)[:, None]
    assert metrics.bit_correlation(all_codes, 8) == 0


def test_correlation_of_copies_and_of_opposites_is_1():
    bit = np.arange(10)[:, None] < 3
    assert metrics.bit_correlation(pack(bit ^ (np.arange(8) % 2 == 0)), 8) == 1


def test_constant_bits_count_as_correlation_1():
    assert metrics.bit_correlation(np.zeros((5, 1), dtype=np.uint8), 8) == 1
    assert metrics.bit_correlation(np.uint8([[3]]), 8) == 1
    # Seven independent bits and one constant: 14 of the 56 ordered pairs hold the constant one.
    assert metrics.bit_correlation(np.arange(128, dtype=np.uint8)[:, None], 8) == pytest.approx(14 / 56)


@pytest.mark.parametrize("metric", [metrics.bit_balance, metrics.bit_correlation])
def test_bits_of_what_is_no_codes(metric):
    with pytest.raises(ShapeError, match="codes have 0 rows"):
        metric(np.zeros((0, 1), dtype=np.uint8), 8)
    with pytest.raises(ShapeError, match="codes have 1 bytes a row; 16 bits take 2"):
        metric(DATABASE, 16)
    with pytest.raises(DtypeError, match="expected packed uint8"):
        metric(DATABASE.astype(float), 8)
    with pytest.raises(InputError, match="n_bits is 12"):
        metric(DATABASE, 12)
