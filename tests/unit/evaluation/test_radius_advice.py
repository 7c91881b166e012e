"""Advice on the radius: against truth that is known, and against a naive count of all pairs."""

from itertools import combinations
from math import comb
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hamtarget.codes import pack
from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.evaluation import advise_radius
from hamtarget.evaluation.distance_tail import assumed_tail, fit_tail, pair_distances
from hamtarget.evaluation.radius_advice import label_distances


def naive_pairs(codes):
    """Count the pairs of codes at each distance, one by one."""
    counts = [0] * (8 * codes.shape[1] + 1)
    for a, b in combinations(codes.tolist(), 2):
        counts[sum((x ^ y).bit_count() for x, y in zip(a, b, strict=True))] += 1
    return counts


def uniform(rows, n_bits, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (rows, n_bits // 8), dtype=np.uint8)


def binomial_shares(n_bits):
    return np.cumsum([comb(n_bits, k) / 2**n_bits for k in range(n_bits + 1)])


def independent_shares(ones):
    """Return the exact shares for independent bits that are 1 with the given probabilities."""
    share = np.ones(1)
    for p in ones:
        differs = 2 * p * (1 - p)
        share = np.convolve(share, [1 - differs, differs])
    return np.cumsum(share)


def skewed(rows, ones, seed=0):
    return pack(np.random.default_rng(seed).random((rows, len(ones))) < ones)


def repeated(rows, free, times, seed=0):
    """Return codes of `free` independent bits, each written `times` times."""
    return pack(np.repeat(np.random.default_rng(seed).integers(0, 2, (rows, free)), times, axis=1))


def with_copies(codes, share, flips, seed=1):
    """Return the codes with copies of some of them appended, each with up to `flips` bits changed."""
    rng = np.random.default_rng(seed)
    n_bits = 8 * codes.shape[1]
    bits = np.unpackbits(codes[rng.choice(len(codes), int(share * len(codes)))], axis=1, bitorder="little")
    for row in bits:
        row[rng.choice(n_bits, rng.integers(0, flips + 1), replace=False)] ^= 1
    return np.concatenate([codes, np.packbits(bits, axis=1, bitorder="little")])


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 40), st.sampled_from([1, 2, 3, 8, 16, 128]), st.integers(0, 2**32 - 1))
def test_all_pairs_are_counted_once(rows, n_bytes, seed):
    codes = np.random.default_rng(seed).integers(0, 4, (rows, n_bytes), dtype=np.uint8)
    assert pair_distances(codes).tolist() == naive_pairs(codes)


def test_all_pairs_of_several_blocks():
    codes = uniform(3000, 16)
    counts = pair_distances(codes)
    assert counts.sum() == 3000 * 2999 // 2
    bits = np.unpackbits(codes, axis=1).astype(np.float32)
    products = bits @ (1 - bits.T)
    far = (products + products.T)[np.triu_indices(3000, 1)].astype(int)
    assert counts.tolist() == np.bincount(far, minlength=17).tolist()


CASES = {
    "uniform": (lambda rows: uniform(rows, 64), binomial_shares(64)),
    "skewed": (
        lambda rows: skewed(rows, np.linspace(0.05, 0.5, 64)),
        independent_shares(np.linspace(0.05, 0.5, 64)),
    ),
    "few free bits": (
        lambda rows: repeated(rows, 32, 2),
        np.repeat(binomial_shares(32), 2)[:65],
    ),
    "256 bits": (lambda rows: uniform(rows, 256), binomial_shares(256)),
}


@pytest.mark.parametrize("copies", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("name", CASES)
def test_shares_against_the_truth(name, copies):
    """From 3,000 codes, shares far below what can be counted are about right, or several times too large."""
    make, truth = CASES[name]
    codes = with_copies(make(3000), copies, 4 * truth.size // 65)
    tail = fit_tail(pair_distances(codes), len(codes))
    for share, least, most in (
        (1e-2, 0.75, 1.1),
        (1e-3, 0.7, 1.1),
        (1e-4, 0.65, 1.3),
        (1e-6, 0.6, 2.5),
        (1e-8, 0.6, 8),
    ):
        radius = int(np.searchsorted(truth, share))
        assert least < tail.shares[radius] / truth[radius] < most, (share, radius)
    assert (np.diff(tail.shares) >= 0).all()
    assert tail.shares[-1] == pytest.approx(1)


def test_groups_of_many_copies_do_not_count_as_false():
    codes = with_copies(uniform(400, 64), 10, 3)
    radius = int(np.searchsorted(binomial_shares(64), 1e-5))
    share = fit_tail(pair_distances(codes), len(codes)).shares[radius]
    assert 0.3 < share / binomial_shares(64)[radius] < 4


def test_more_than_copies_can_be_is_counted_as_false():
    """A third of the rows resemble each other: that is what these codes are like."""
    rng = np.random.default_rng(2)
    alike = pack(np.concatenate([rng.random((1000, 16)) < 0.5, np.zeros((1000, 48))], axis=1))
    codes = np.concatenate([uniform(2000, 64), alike])
    tail = fit_tail(pair_distances(codes), len(codes))
    within = np.cumsum(pair_distances(codes))
    assert tail.shares[8] == pytest.approx(within[8] / within[-1], rel=0.2)


def test_codes_with_as_many_ones_as_zeros_get_an_even_radius():
    rng = np.random.default_rng(3)
    codes = pack(np.argsort(rng.random((3000, 64)), axis=1) < 32)
    advice = advise_radius(codes, n_rows=50_000)
    assert advice.radius % 2 == 0
    rows = advice.table
    assert rows[advice.radius].expected_false_pairs == rows[advice.radius + 1].expected_false_pairs
    assert rows[advice.radius + 2].expected_false_pairs > 50 >= rows[advice.radius].expected_false_pairs


def test_the_largest_radius_with_few_false_pairs():
    truth = binomial_shares(64) * 100_000 * 99_999 / 2
    best = int(np.searchsorted(truth, 100, side="right")) - 1
    advice = advise_radius(uniform(3000, 64), n_rows=100_000)
    # Extrapolated with the last slope, a bit may be lost, never won.
    assert best - 1 <= advice.radius <= best
    assert advice.n_rows == 100_000
    assert advice.n_codes == advice.compared == 3000
    assert f"Within radius {advice.radius}, about " in advice.reason
    assert "more than the 100 allowed" in advice.reason
    assert [row.radius for row in advice.table] == list(range(len(advice.table)))
    stricter = advise_radius(uniform(3000, 64), n_rows=100_000, false_pairs=0.01)
    assert stricter.radius < advice.radius
    assert stricter.table[stricter.radius].expected_false_pairs <= 0.01


def test_more_rows_never_get_a_larger_radius():
    codes = uniform(2000, 64)
    radii = [advise_radius(codes, n_rows=rows).radius for rows in (1, 2, 10, 1000, 10_000, 10**6, 10**9, 10**12)]
    assert radii == sorted(radii, reverse=True)


def test_pairs_found_are_those_of_the_codes():
    codes = with_copies(uniform(500, 64), 0.2, 3)
    within = np.cumsum(naive_pairs(codes))
    advice = advise_radius(codes, n_rows=10**6)
    assert [row.pairs_found for row in advice.table] == within[: len(advice.table)].tolist()


def test_a_sample_of_many_codes(monkeypatch):
    monkeypatch.setattr("hamtarget.evaluation.radius_advice._WORDS", 1e7)
    codes = with_copies(uniform(20_000, 64), 0.5, 0)
    advice = advise_radius(codes)
    assert advice.compared < 4000
    assert advice == advise_radius(codes)
    assert advice.table[0].pairs_found == pytest.approx(12_500, rel=0.3)
    assert advice.radius == pytest.approx(advise_radius(codes, seed=1).radius, abs=1)


def test_hot_codes_are_told_of_and_hide_nothing():
    blank = np.zeros((300, 8), dtype=np.uint8)
    advice = advise_radius(np.concatenate([uniform(2700, 64), blank]), n_rows=3000)
    assert "300 of 3,000 rows have one code" in advice.reason
    assert advice.most_equal == 300
    assert advice.radius == pytest.approx(advise_radius(uniform(2700, 64), n_rows=3000).radius, abs=1)
    assert advice.table[0].pairs_found == 300 * 299 / 2


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 300),
    st.sampled_from([1, 2, 8, 32]),
    st.integers(1, 256),
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(1, 10**12)),
    st.integers(0, 2**32 - 1),
)
def test_whatever_the_codes_are_the_advice_is_sound(rows, n_bytes, values, repeats, n_rows, seed):
    """Few values, or many equal rows: distances that follow no distribution."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, values, (rows, n_bytes), dtype=np.uint8)
    codes = np.concatenate([codes, *[codes[: rows // 2]] * repeats])
    advice = advise_radius(codes, n_rows=n_rows)
    expected = [row.expected_false_pairs for row in advice.table]
    found = [row.pairs_found for row in advice.table]
    assert 0 <= advice.radius < 8 * n_bytes
    assert expected == sorted(expected)
    assert found == sorted(found)
    assert np.isfinite(expected).all()
    pairs = advice.n_rows * (advice.n_rows - 1) / 2
    assert expected[-1] <= pairs
    if advice.radius > 0:
        assert expected[advice.radius] <= max(advice.n_rows / 1000, 1e-9)


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64])
@pytest.mark.parametrize("n_bits", [8, 16, 64, 1024])
def test_few_codes(rows, n_bits):
    advice = advise_radius(uniform(rows, n_bits))
    assert 0 <= advice.radius < n_bits
    assert advice.n_codes == rows
    assert (advice.counted_from is None) == (rows < 64)
    if n_bits == 64:
        assert 4 <= advice.radius <= 14
    assert advice.radius < len(advice.table) <= n_bits


@pytest.mark.parametrize(("photos", "copies"), [(5, 14), (10, 8), (30, 5)])
@pytest.mark.parametrize("seed", range(3))
def test_copies_of_few_things(photos, copies, seed):
    """A folder to try with: few pictures, many copies of each."""
    rng = np.random.default_rng(seed)
    bits = np.repeat(rng.integers(0, 2, (photos, 64)), copies, axis=0) ^ (rng.random((photos * copies, 64)) < 0.02)
    advice = advise_radius(pack(bits))
    assert advice.radius == 8
    assert f"Codes of {photos} different things say little" in advice.reason


def test_all_codes_equal():
    advice = advise_radius(np.full((5000, 8), 7, dtype=np.uint8))
    assert 0 < advice.radius < 10
    assert advice.most_equal == 5000
    assert "Codes of 1 different thing say little" in advice.reason


def test_two_codes_many_times():
    codes = np.repeat(np.array([[0, 0], [255, 255]], dtype=np.uint8), 500, axis=0)
    assert 0 <= advise_radius(codes).radius < 16


def test_codes_that_are_too_short():
    advice = advise_radius(uniform(3000, 8))
    assert advice.radius == 0
    assert "do not tell so many things apart" in advice.reason
    assert advice.table[0].expected_false_pairs == pytest.approx(3000 * 2999 / 2 / 256, rel=0.05)


def test_fewer_rows_than_codes():
    codes = uniform(3000, 64)
    assert advise_radius(codes, n_rows=1).radius >= advise_radius(codes).radius
    assert advise_radius(codes, n_rows=1).table[5].expected_false_pairs == 0


def test_recall_ends_the_search_for_a_larger_radius():
    codes = uniform(2000, 64)
    free = advise_radius(codes)
    advice = advise_radius(codes, copy_distances=np.array([0] * 600 + [2] * 300 + [3] * 99 + [40]))
    assert advice.radius == 3 < free.radius
    assert [row.recall for row in advice.table[:5]] == [0.6, 0.6, 0.9, 0.999, 0.999]
    assert f"{free.radius} is allowed, too, but finds hardly more copies" in advice.reason
    assert "99.9% of known copies are found" in advice.reason
    assert all(row.recall is None for row in free.table)
    assert advise_radius(codes, copy_distances=np.zeros(0, dtype=int)).table == free.table


def test_the_record_of_an_encoder():
    shares = np.minimum(1, assumed_tail(64) * 1000)
    encoder = SimpleNamespace(recorded={"share_within": shares.tolist(), "recall_within": [0.5, 0.7, 0.8, 0.8]})
    few = advise_radius(uniform(300, 64), n_rows=10_000, encoder=encoder)
    assert few.table[2].expected_false_pairs == pytest.approx(shares[2] * 10_000 * 9999 / 2)
    assert few.table[1].recall == 0.7
    assert "record" in few.reason
    many = advise_radius(uniform(3000, 64), n_rows=10_000, encoder=encoder)
    assert many.table[2].expected_false_pairs < few.table[2].expected_false_pairs / 100
    assert many.radius == 2
    alone = advise_radius(uniform(1, 64), n_rows=10_000, encoder=encoder)
    assert alone.table[1].expected_false_pairs == pytest.approx(shares[1] * 10_000 * 9999 / 2)
    # A record that met no pair below radius 6 does not say that there are none.
    counted = SimpleNamespace(recorded={"share_within": [0.0] * 6 + [1e-6, 1e-5, 1e-3]})
    alone = advise_radius(uniform(1, 64), n_rows=10_000, encoder=counted)
    assert [row.expected_false_pairs for row in alone.table[3:7]] == pytest.approx([6.25, 12.5, 25, 50], rel=1e-3)
    assert alone.radius == 3
    kinds = SimpleNamespace(recorded={"recall_within": {"crop": [0.0, 0.5], "flip": [0.5, 1.0]}})
    assert [row.recall for row in advise_radius(uniform(99, 64), encoder=kinds).table[:3]] == [0.25, 0.75, 0.75]


@pytest.mark.parametrize(
    "recorded",
    [
        None,
        7,
        {},
        {"share_within": None},
        {"share_within": []},
        {"share_within": [0, 0]},
        {"share_within": {"a": [1], "b": [1, 2]}},
    ],
)
def test_a_record_that_says_nothing(recorded):
    codes = uniform(100, 64)
    assert advise_radius(codes, encoder=SimpleNamespace(recorded=recorded)) == advise_radius(codes)


def test_label_distances_are_those_of_all_pairs_with_one_label():
    codes = uniform(60, 64)
    labels = [None if row % 7 == 0 else row % 11 for row in range(60)]
    naive = [
        sum((x ^ y).bit_count() for x, y in zip(codes[a].tolist(), codes[b].tolist(), strict=True))
        for a, b in combinations(range(60), 2)
        if labels[a] is not None and labels[a] == labels[b]
    ]
    assert sorted(label_distances(codes, labels).tolist()) == sorted(naive)
    assert len(label_distances(codes, list(range(60)))) == 0
    assert len(label_distances(codes, ["same"] * 60, most=100)) < 200
    assert 0 < len(label_distances(np.repeat(codes, 10, axis=0), ["same"] * 600, most=100)) < 200


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"codes": np.zeros(8, dtype=np.uint8)}, ShapeError, "1 dimensions"),
        ({"codes": np.zeros((3, 8))}, DtypeError, "float64"),
        ({"codes": np.zeros((3, 0), dtype=np.uint8)}, InputError, "n_bits is 0"),
        ({"codes": np.zeros((3, 513), dtype=np.uint8)}, InputError, "n_bits is 4104"),
        ({"n_rows": 0}, InputError, "n_rows is 0"),
        ({"n_rows": 1.5}, DtypeError, "n_rows is 1.5"),
        ({"n_rows": True}, DtypeError, "n_rows is True"),
        ({"false_pairs": 0}, InputError, "false_pairs is 0"),
        ({"false_pairs": float("nan")}, InputError, "false_pairs is nan"),
        ({"copy_distances": [0.5]}, DtypeError, "float64"),
        ({"copy_distances": [-1]}, InputError, "expected 0 to 64"),
        ({"copy_distances": [65]}, InputError, "expected 0 to 64"),
    ],
)
def test_wrong_arguments(arguments, error, text):
    with pytest.raises(error, match=text):
        advise_radius(**{"codes": uniform(3, 64), **arguments})


def test_wrong_labels():
    with pytest.raises(ShapeError, match="2 labels"):
        label_distances(uniform(3, 64), [1, 2])
