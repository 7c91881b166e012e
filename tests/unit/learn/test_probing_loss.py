import math

import numpy as np
import pytest
import torch

from hamtarget.codes import substring_bounds
from hamtarget.errors import InputError, ShapeError
from hamtarget.learn import Labels, ProbingLoss

N_BITS = 16


def batch(rows=9, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, N_BITS, generator=generator, dtype=torch.float64)
    similar = torch.rand(rows, rows, generator=generator) < 0.3
    return logits, similar


def naive(logits, similar, substrings, temperature, sharpness):
    """Every query, every similar row, every rival, one after the other."""
    rows = len(logits)
    bits = np.tanh(sharpness * logits)

    def closeness(i, j):
        return sum(
            math.exp(-sum((abs(logits[i, k]) - logits[i, k] * bits[j, k]) / 2 for k in range(a, b)) / temperature)
            for a, b in substring_bounds(N_BITS, substrings)
        )

    losses = []
    for i in range(rows):
        rivals = sum(closeness(i, k) for k in range(rows) if k != i and not similar[i, k])
        for j in range(rows):
            if j != i and similar[i, j]:
                losses.append(-math.log(closeness(i, j) / (closeness(i, j) + rivals)))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("substrings", [1, 2, 5])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_equals_its_definition(substrings, temperature):
    logits, similar = batch()
    loss = ProbingLoss(N_BITS, substrings=substrings, temperature=temperature, sharpness=2.0, choosing_weight=0)
    expected = naive(logits.numpy(), similar.numpy(), substrings, temperature, 2.0)
    assert float(loss(logits, similar).total) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("weight", [0.5, 3.0])
def test_choosing_adds_the_cost_over_whole_codes(weight):
    logits, similar = batch()
    loss = ProbingLoss(N_BITS, substrings=2, sharpness=2.0, choosing_weight=weight, choosing_temperature=0.7)
    read = naive(logits.numpy(), similar.numpy(), 2, 0.3, 2.0)
    chosen = naive(logits.numpy(), similar.numpy(), 1, 0.7, 2.0)
    assert float(loss(logits, similar).total) == pytest.approx(read + weight * chosen, rel=1e-9)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_slopes_are_those_of_differences(weight):
    logits, similar = batch(rows=6)
    loss = ProbingLoss(N_BITS, substrings=2, choosing_weight=weight)
    assert torch.autograd.gradcheck(lambda y: loss(y, similar).total, logits.requires_grad_())


def test_the_diagonal_is_not_looked_at():
    logits, similar = batch()
    loss = ProbingLoss(N_BITS)
    changed = similar.clone()
    changed.fill_diagonal_(not bool(similar[0, 0]))
    assert float(loss(logits, similar).total) == float(loss(logits, changed).total)


@pytest.mark.parametrize("value", [False, True])
def test_a_batch_of_one_kind_costs_nothing_and_has_finite_slopes(value):
    logits, similar = batch()
    logits.requires_grad_()
    total = ProbingLoss(N_BITS)(logits, torch.full_like(similar, value)).total
    total.backward()
    assert float(total.detach()) == pytest.approx(0.0, abs=1e-12)
    assert torch.isfinite(logits.grad).all()


def test_far_logits_stay_finite():
    logits, similar = batch()
    logits = (logits.float() * 1000).requires_grad_()
    total = ProbingLoss(N_BITS, temperature=0.05)(logits, similar).total
    total.backward()
    assert torch.isfinite(total)
    assert torch.isfinite(logits.grad).all()


def test_reading_similar_rows_first_costs_less():
    signs = torch.tensor([[1.0] * N_BITS, [1.0] * N_BITS, [-1.0] * N_BITS, [-1.0] * N_BITS])
    together = torch.tensor([0, 0, 1, 1])
    apart = torch.tensor([0, 1, 0, 1])
    loss = ProbingLoss(N_BITS)
    good, bad = (float(loss(signs, Labels(labels).matrix(torch.arange(4))).total) for labels in (together, apart))
    assert good < 1e-3
    assert bad > 5


def test_default_substrings():
    assert [ProbingLoss(n).substrings for n in (8, 16, 32, 64, 128)] == [1, 1, 2, 4, 8]


@pytest.mark.parametrize("setting", [{"temperature": 0.0}, {"sharpness": -1.0}, {"temperature": math.inf}])
def test_bad_settings_are_named(setting):
    with pytest.raises(InputError, match=f"{next(iter(setting))} is .*expected a number above 0"):
        ProbingLoss(N_BITS, **setting)


def test_logits_of_another_width_are_refused():
    with pytest.raises(ShapeError, match=r"expected \(rows, 16\)"):
        ProbingLoss(N_BITS)(torch.zeros(3, 8), torch.eye(3, dtype=torch.bool))


def test_diagnostics_tell_of_the_bits():
    logits, similar = batch()
    found = ProbingLoss(N_BITS)(logits, similar).diagnostics()
    assert set(found) == {"bit_balance", "bit_correlation"}
