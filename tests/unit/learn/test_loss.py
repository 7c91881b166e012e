import itertools
import math

import numpy as np
import pytest
import torch
from scipy.special import xlog1py
from scipy.stats import binom

from hamtarget.codes import substring_bounds
from hamtarget.errors import DtypeError, InputError, NotFiniteError, ShapeError
from hamtarget.learn import HammingTargetLoss
from hamtarget.learn.losses import pair_cost


def naive_loss(logits, similar, loss):
    """The paper's formula, pair by pair, with scipy's binomial."""

    def differing(left, right):
        if loss.probability == "soft_bits":
            return (1 - np.dot(np.tanh(loss.sharpness * left), np.tanh(loss.sharpness * right)) / len(left)) / 2
        cosine = np.dot(left, right) / np.linalg.norm(left) / np.linalg.norm(right)
        return math.acos(cosine) / math.pi

    sums, counts, substring = [0.0, 0.0], [0, 0], 0.0
    for i, j in itertools.permutations(range(len(logits)), 2):
        kind = 0 if similar[i, j] else 1
        p = differing(logits[i], logits[j])
        log_tail = binom.logcdf if kind == 0 else binom.logsf
        sums[kind] -= np.mean([log_tail(r, loss.n_bits, p) for r in loss.radii])
        counts[kind] += 1
        if kind == 1:
            for start, stop in substring_bounds(loss.n_bits, loss.substrings):
                same = xlog1py(stop - start, -differing(logits[i, start:stop], logits[j, start:stop]))
                expected_rows = loss._substring_costs[0].dissimilar == "expected_rows"
                substring += math.exp(same) if expected_rows else -math.log1p(-math.exp(same))
    if loss.pair_average == "all_pairs":
        counts = [sum(counts)] * 2
    near, far = (total / max(1, count) for total, count in zip(sums, counts, strict=True))
    return near + loss.dissimilar_weight * far + loss.substring_weight * substring / max(1, counts[1])


def batch(n_rows=10, n_bits=16, seed=0):
    random = np.random.default_rng(seed)
    # Neither symmetric nor transitive, with a diagonal of both kinds.
    return random.normal(size=(n_rows, n_bits)), random.random((n_rows, n_rows)) < 0.3


OPTIONS = [
    {"radius": radius, "probability": probability, "pair_average": average, **substring}
    for radius in (0, 2, [1, 4, 9])
    for probability in ("soft_bits", "angle")
    for average in ("per_kind", "all_pairs")
    for substring in (
        {},
        {"substring_weight": 7.0},
        {"substring_weight": 7.0, "substrings": 3, "substring_cost": "log_likelihood"},
    )
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_equals_a_double_loop_over_pairs(options):
    logits, similar = batch()
    loss = HammingTargetLoss(16, dissimilar_weight=30.0, sharpness=1.5, **options)
    found = loss(torch.from_numpy(logits), torch.from_numpy(similar)).total
    assert float(found) == pytest.approx(naive_loss(logits, similar, loss), rel=1e-9)


@pytest.mark.parametrize("options", OPTIONS[::3] + OPTIONS[2::6], ids=str)
def test_gradient_equals_finite_differences(options):
    logits, similar = batch(6, 8)
    loss = HammingTargetLoss(8, dissimilar_weight=3.0, sharpness=1.0, **{**options, "radius": [0, 3]})
    leaf = torch.from_numpy(logits).requires_grad_()
    assert torch.autograd.gradcheck(lambda y: loss(y, torch.from_numpy(similar)).total, [leaf], eps=1e-6, atol=1e-6)


def test_blocks_of_rows_change_nothing(monkeypatch):
    logits, similar = batch(37)
    loss = HammingTargetLoss(16, 2, substring_weight=5.0)

    def value_and_gradient():
        leaf = torch.from_numpy(logits).requires_grad_()
        total = loss(leaf, torch.from_numpy(similar)).total
        return total.detach(), torch.autograd.grad(total, leaf)[0]

    whole = value_and_gradient()
    monkeypatch.setattr(pair_cost, "_CPU_CELLS", 37 * 5)
    torch.testing.assert_close(value_and_gradient(), whole)


def test_terms_add_up_to_the_total():
    logits, similar = batch()
    loss = HammingTargetLoss(16, 2, dissimilar_weight=20.0, substring_weight=3.0)
    terms = loss(torch.from_numpy(logits), torch.from_numpy(similar))
    torch.testing.assert_close(terms.total, terms.similar + 20 * terms.dissimilar + 3 * terms.substring)
    assert not terms.similar.requires_grad


def test_the_diagonal_is_not_looked_at():
    logits, similar = batch()
    loss = HammingTargetLoss(16, 2)
    values = []
    for own in (True, False):
        np.fill_diagonal(similar, own)
        leaf = torch.from_numpy(logits).requires_grad_()
        total = loss(leaf, torch.from_numpy(similar)).total
        values.append((total.detach(), torch.autograd.grad(total, leaf)[0]))
    torch.testing.assert_close(values[0], values[1])


def edge_batches():
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(8, 16, generator=generator)
    classes = torch.arange(8) // 2
    pairs = classes[:, None] == classes
    yield "identical inputs", normal[:1].repeat(8, 1), pairs
    yield "identical pairs", normal[classes], pairs
    yield "opposite inputs", torch.cat([normal[:4], -normal[:4]]), pairs
    yield "zero logits", torch.zeros(8, 16), pairs
    yield "huge logits", normal * 1e4, pairs
    yield "tiny logits", normal * 1e-20, pairs
    yield "one class", normal, torch.ones(8, 8, dtype=torch.bool)
    yield "no similar pair", normal, torch.eye(8, dtype=torch.bool)
    yield "no pair similar, not even to itself", normal, torch.zeros(8, 8, dtype=torch.bool)
    yield "two similar rows", normal[:2], torch.ones(2, 2, dtype=torch.bool)
    yield "two dissimilar rows", normal[:2], torch.eye(2, dtype=torch.bool)


@pytest.mark.parametrize("probability", ["soft_bits", "angle"])
@pytest.mark.parametrize("substring_cost", ["expected_rows", "log_likelihood"])
@pytest.mark.parametrize(("name", "logits", "similar"), list(edge_batches()))
def test_edge_batches_stay_finite(name, logits, similar, probability, substring_cost):
    for radius in (0, 2, 15):
        loss = HammingTargetLoss(
            16, radius, probability=probability, substring_weight=10.0, substrings=3, substring_cost=substring_cost
        )
        leaf = logits.clone().requires_grad_()
        terms = loss(leaf, similar)
        terms.total.backward()
        assert math.isfinite(terms.total.item()), name
        assert torch.isfinite(leaf.grad).all(), name


def test_a_step_downhill_brings_similar_rows_together_and_others_apart():
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(32, 32, generator=generator)
    similar = torch.arange(32)[:, None] // 4 == torch.arange(32) // 4
    loss = HammingTargetLoss(32, 2, dissimilar_weight=30.0, sharpness=1.0)
    leaf = logits.clone().requires_grad_()
    optimizer = torch.optim.Adam([leaf], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        loss(leaf, similar).total.backward()
        optimizer.step()

    def distances(y):
        signs = torch.where(y > 0, 1.0, -1.0)
        return (32 - signs @ signs.T) / 2

    near = similar & ~torch.eye(32, dtype=torch.bool)
    after = distances(leaf.detach())
    assert after[near].mean() < 2 < distances(logits)[near].mean()
    assert after[~similar].min() > 2


def test_several_radii_are_the_mean_of_each():
    logits, similar = (torch.from_numpy(a) for a in batch())
    alone = [HammingTargetLoss(16, r)(logits, similar).total for r in (1, 5)]
    torch.testing.assert_close(HammingTargetLoss(16, [5, 1])(logits, similar).total, sum(alone) / 2)


def test_half_precision_under_autocast_is_computed_in_float32():
    logits, similar = batch(64, 64)
    loss = HammingTargetLoss(64, 2)
    rounded = torch.from_numpy(logits).bfloat16()
    expected = loss(rounded.float(), torch.from_numpy(similar)).total
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(rounded, torch.from_numpy(similar)).total
    assert found.dtype == torch.float32
    assert float(found) == float(expected)


@pytest.mark.parametrize("setting", ["medium", "high", "highest"])
def test_reduced_products_are_off_inside_and_back_afterwards(setting, monkeypatch):
    seen = []
    inner = pair_cost.add_block

    def spy(*arguments):
        seen.append((torch.get_float32_matmul_precision(), torch.is_autocast_enabled("cpu")))
        return inner(*arguments)

    monkeypatch.setattr(pair_cost, "add_block", spy)
    logits, similar = batch()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision(setting)
        with torch.autocast("cpu", torch.bfloat16):
            HammingTargetLoss(16, 2)(torch.from_numpy(logits), torch.from_numpy(similar))
        assert torch.get_float32_matmul_precision() == setting
    finally:
        torch.set_float32_matmul_precision(before)
    assert set(seen) == {("highest", False)}


@pytest.mark.slow
def test_diagnostics_see_correlated_bits_where_the_angle_does_not():
    generator = torch.Generator().manual_seed(0)
    similar = torch.eye(512, dtype=torch.bool)
    independent = torch.randn(512, 64, generator=generator)
    # Two opposite caps: every bit shares one sign, and differs from it only by a little.
    shared = torch.randn(512, 1, generator=generator).sign() + 0.3 * torch.randn(512, 64, generator=generator)
    good, bad = (HammingTargetLoss(64, 2, probability="angle")(y, similar).diagnostics() for y in (independent, shared))
    assert good["bit_balance"] > 0.9
    assert good["bit_correlation"] < 0.1
    assert good["actual_within"] == 0
    assert bad["bit_correlation"] > 0.9
    assert bad["actual_within"] > 0.4 > 10 * bad["predicted_within"]
    soft = HammingTargetLoss(64, 2)(shared, similar).diagnostics()
    assert soft["predicted_within"] == pytest.approx(soft["actual_within"], rel=0.3)


def test_constant_bits_have_no_balance():
    diagnostics = HammingTargetLoss(16, 2)(torch.ones(4, 16), torch.eye(4, dtype=torch.bool)).diagnostics()
    assert diagnostics["bit_balance"] == 0
    assert diagnostics["actual_within"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_bits": 12}, "n_bits is 12"),
        ({"n_bits": 64, "radius": 64}, "radius is 64; expected 0 to 63"),
        ({"n_bits": 64, "radius": -1}, "radius is -1"),
        ({"n_bits": 64, "radius": []}, "empty sequence"),
        ({"n_bits": 64, "dissimilar_weight": -1.0}, "dissimilar_weight is -1.0"),
        ({"n_bits": 64, "substring_weight": math.nan}, "substring_weight is nan"),
        ({"n_bits": 64, "sharpness": 0.0}, "sharpness is 0.0"),
        ({"n_bits": 64, "floor": 0.5}, "floor is 0.5"),
        ({"n_bits": 64, "probability": "cosine"}, "probability is 'cosine'; expected one of 'soft_bits', 'angle'"),
        ({"n_bits": 64, "pair_average": "mean"}, "pair_average is 'mean'"),
        ({"n_bits": 64, "substrings": 65}, "substrings is 65"),
        ({"n_bits": 64, "substring_cost": "rows"}, "substring_cost is 'rows'"),
    ],
)
def test_wrong_settings_are_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        HammingTargetLoss(**arguments)


def test_wrong_batches_are_refused():
    loss = HammingTargetLoss(16, 2)
    logits, similar = torch.zeros(4, 16), torch.eye(4, dtype=torch.bool)
    with pytest.raises(ShapeError, match=r"logits have shape \(4, 8\); expected \(rows, 16\)"):
        loss(logits[:, :8], similar)
    with pytest.raises(DtypeError, match="logits have dtype torch.int64"):
        loss(logits.long(), similar)
    with pytest.raises(DtypeError, match="similar has dtype torch.float32; expected torch.bool"):
        loss(logits, similar.float())
    with pytest.raises(ShapeError, match=r"similar has shape \(3, 4\); 4 rows of logits need \(4, 4\)"):
        loss(logits, similar[:3])
    with pytest.raises(ShapeError, match="1 rows; a pair needs at least 2"):
        loss(logits[:1], similar[:1, :1])
    with pytest.raises(NotFiniteError, match="logits hold NaN"):
        loss(torch.full((4, 16), torch.nan), similar)


def test_labels_in_place_of_a_matrix_get_advice():
    with pytest.raises(DtypeError, match=r"make it by labels\[:, None\] == labels"):
        HammingTargetLoss(16, 2)(torch.zeros(4, 16), torch.arange(4))
