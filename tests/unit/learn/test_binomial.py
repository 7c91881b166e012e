import math

import mpmath
import numpy as np
import pytest
import torch

from hamtarget.errors import InputError
from hamtarget.learn.losses.binomial import FLOOR, constants, log_cdf, log_sf, log_tails, log_tails_continued

SIZES = [(16, 0), (32, 1), (64, 2), (128, 3), (256, 15), (512, 31)]
EDGES = [(1, 0), (8, 7), (64, 63), (21, 0), (1024, 0), (1024, 511)]


def probabilities(n_bits, radius):
    """float32 points over the whole range, dense at both ends and around the crossover."""
    near_crossover = [constants(n_bits, radius).crossover * (1 + d) for d in (-1e-3, -1e-6, 0, 1e-6, 1e-3)]
    steps = np.geomspace(1e-6, 0.99, 40)
    points = np.concatenate([steps, 1 - steps, np.linspace(0.002, 0.998, 41), near_crossover]).astype(np.float32)
    return np.unique(points[(points >= 1e-6) & (points <= 1 - 1e-6)])


def exact(n_bits, radius, p):
    """log F, log SF and their slopes at 50 digits, by summing every term."""
    with mpmath.workdps(50):
        p = mpmath.mpf(float(p))
        q = 1 - p
        terms = [mpmath.binomial(n_bits, k) * p**k * q ** (n_bits - k) for k in range(n_bits + 1)]
        within, outside = mpmath.fsum(terms[: radius + 1]), mpmath.fsum(terms[radius + 1 :])
        density = (n_bits - radius) * mpmath.binomial(n_bits, radius) * p**radius * q ** (n_bits - radius - 1)
        return [mpmath.log(within), mpmath.log(outside), -density / within, density / outside]


@pytest.mark.slow
@pytest.mark.parametrize(("n_bits", "radius"), SIZES + EDGES)
def test_float32_agrees_with_50_digits(n_bits, radius):
    points = probabilities(n_bits, radius)
    if n_bits > 512:
        points = points[::5]
    found = log_tails(torch.from_numpy(points), n_bits, radius)
    for index, p in enumerate(points):
        for tail, reference in zip(found, exact(n_bits, radius, p), strict=True):
            error = abs(mpmath.mpf(float(tail[index])) - reference) / max(1, abs(reference))
            # What the documentation says; 1e-5 is what training needs.
            assert error < 2e-6, (float(p), float(tail[index]), float(reference))


@pytest.mark.parametrize(("n_bits", "radius"), [(16, 0), (64, 2), (64, 63), (512, 31)])
@pytest.mark.parametrize("function", [log_cdf, log_sf])
def test_gradient_is_the_slope(function, n_bits, radius):
    p = torch.linspace(0.003, 0.997, 50, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: function(x, n_bits, radius), [p], eps=1e-7, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("function", [log_cdf, log_sf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finite_everywhere(function, dtype):
    p = torch.tensor([-1.0, -1e-3, 0.0, 1e-30, FLOOR, 0.5, 1 - FLOOR, 1.0, 1.001, 2.0], dtype=dtype, requires_grad=True)
    for n_bits, radius in SIZES + EDGES:
        value = function(p, n_bits, radius)
        (gradient,) = torch.autograd.grad(value.sum(), p)
        assert torch.isfinite(value).all()
        assert torch.isfinite(gradient).all()


def test_beyond_the_floor_both_logs_are_tangents():
    n_bits, radius, floor = 64, 2, 1e-3
    edges = torch.tensor([floor, 1 - floor], dtype=torch.float64)
    beyond = torch.tensor([-0.02, 1.03], dtype=torch.float64)
    at_edge = log_tails(edges, n_bits, radius)
    outside = log_tails_continued(beyond, n_bits, radius, floor=floor)
    for value, slope in ((0, 2), (1, 3)):
        torch.testing.assert_close(outside[value], at_edge[value] + at_edge[slope] * (beyond - edges))
        torch.testing.assert_close(outside[slope], at_edge[slope])


def test_near_zero_the_slope_is_the_papers_approximation():
    (_, _, _, slope) = log_tails_continued(torch.tensor([0.0]), 64, 2)
    assert float(slope) == pytest.approx((2 + 1) / FLOOR, rel=1e-3)


def test_the_two_tails_add_up_to_one():
    p = torch.linspace(0.001, 0.999, 99, dtype=torch.float64)
    for n_bits, radius in SIZES:
        within, outside, _, _ = log_tails(p, n_bits, radius)
        torch.testing.assert_close(within.exp() + outside.exp(), torch.ones_like(p))


def test_the_paper_prints_the_other_tail():
    # F(2; 64, .03) is .69867; the beta function as the paper prints it gives 7e-92.
    assert math.exp(float(log_cdf(torch.tensor(0.03, dtype=torch.float64), 64, 2))) == pytest.approx(0.69867, abs=1e-5)


def test_only_the_slope_is_kept_for_the_backward_pass():
    p = torch.rand(100, 100, requires_grad=True)
    value = log_sf(p, 64, 2)
    (saved,) = value.grad_fn.saved_tensors
    assert saved.shape == p.shape


def test_any_shape_keeps_its_shape():
    p = torch.rand(2, 3, 4).clamp(0.01, 0.99).transpose(0, 2)
    for tail in log_tails(p, 64, 2):
        assert tail.shape == p.shape
    torch.testing.assert_close(log_cdf(p, 64, 2)[1, 2, 0], log_cdf(p[1, 2, 0], 64, 2))


@pytest.mark.parametrize(("n_bits", "radius"), [(64, 64), (64, -1), (0, 0)])
def test_a_radius_outside_the_code_is_refused(n_bits, radius):
    with pytest.raises(InputError, match=f"radius is {radius} and n_bits {n_bits}"):
        log_cdf(torch.tensor(0.5), n_bits, radius)
