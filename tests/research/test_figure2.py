"""Figure 2: the mean distance is n theta / pi, the variance a little below the binomial's."""

from __future__ import annotations

import json
import math
import sys

import numpy as np
import pytest
from scipy import stats

from hamtarget.errors import InputError, MissingExtraError
from research.paper import figure2
from research.paper.figure2 import binomial_pmf, distance_distribution, draw, main

TRIALS = 20_000


@pytest.mark.parametrize(("n_bits", "angle"), [(16, 15), (64, 15), (64, 90), (128, 150)])
def test_mean_is_exact(n_bits, angle):
    result = distance_distribution(n_bits, angle_degrees=angle, trials=TRIALS)
    expected = n_bits * angle / 180
    assert result.binomial_mean == pytest.approx(expected)
    assert abs(result.empirical_mean - expected) < 4 * math.sqrt(result.empirical_variance / TRIALS)


@pytest.mark.parametrize("angle", [15, 90])
def test_variance_is_below_the_binomial_by_the_known_share(angle):
    n_bits, p, theta = 256, angle / 180, math.radians(angle)
    result = distance_distribution(n_bits, angle_degrees=angle, trials=TRIALS)
    limit = n_bits * (p * (1 - p) - (math.sin(theta) / math.pi) ** 2)
    # The standard error of a variance is about variance * sqrt(2 / trials), 1%; the share itself is 8.9% and 41%.
    assert result.empirical_variance == pytest.approx(limit, rel=0.04)
    assert result.empirical_variance < 0.95 * result.binomial_variance
    assert result.binomial_variance == pytest.approx(n_bits * p * (1 - p))


@pytest.mark.parametrize("n_bits", [16, 64])
def test_binomial_is_close(n_bits):
    result = distance_distribution(n_bits, trials=TRIALS)
    assert result.empirical.shape == result.binomial.shape == (n_bits + 1,)
    assert result.empirical.sum() == pytest.approx(1, abs=1e-12)
    assert result.binomial.sum() == pytest.approx(1, abs=1e-12)
    assert result.total_variation == pytest.approx(
        sum(abs(a - b) for a, b in zip(result.empirical, result.binomial, strict=True)) / 2
    )
    assert 0.01 < result.total_variation < 0.05


def test_distances_are_those_of_a_naive_loop():
    """One vector pair at a time, in float64: same distribution, by a two-sample chi-squared test."""
    random, angle = np.random.default_rng(1), math.radians(15)
    counts = np.zeros(17)
    for _ in range(TRIALS):
        u, v = random.standard_normal((2, 16))
        u /= math.sqrt(u @ u)
        v -= (u @ v) * u
        w = math.cos(angle) * u + math.sin(angle) * v / math.sqrt(v @ v)
        counts[np.count_nonzero(np.sign(u) != np.sign(w))] += 1
    ours = distance_distribution(16, trials=TRIALS).empirical * TRIALS
    seen = np.minimum(counts, ours) >= 20
    table = np.array([[*row[seen], row[~seen].sum()] for row in (counts, ours)])
    assert seen.sum() >= 5
    assert stats.chi2_contingency(table).pvalue > 1e-3


@pytest.mark.parametrize(("n_bits", "probability"), [(16, 1 / 12), (64, 1 / 12), (1024, 1e-3), (1024, 0.9)])
def test_binomial_pmf(n_bits, probability):
    expected = stats.binom.pmf(np.arange(n_bits + 1), n_bits, probability)
    np.testing.assert_allclose(binomial_pmf(n_bits, probability), expected, rtol=1e-9, atol=1e-300)


def test_seed_alone_decides():
    first = distance_distribution(16, trials=TRIALS, seed=4)
    np.testing.assert_array_equal(distance_distribution(16, trials=TRIALS, seed=4).empirical, first.empirical)
    assert np.any(distance_distribution(16, trials=TRIALS, seed=5).empirical != first.empirical)


@pytest.mark.parametrize("trials", [1, 7, 8, 9, 23])
def test_every_trial_is_counted(monkeypatch, trials):
    monkeypatch.setattr(figure2, "_CELLS_AT_A_TIME", 16 * 8)
    counts = distance_distribution(16, trials=trials).empirical * trials
    assert counts.sum() == pytest.approx(trials)
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"trials": 0}, "trials is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"angle_degrees": 0.0}, "angle_degrees is 0"),
        ({"angle_degrees": 180.0}, "angle_degrees is 180"),
        ({"n_bits": 12}, "n_bits is 12"),
    ],
)
def test_refuses(arguments, text):
    with pytest.raises(InputError, match=text):
        distance_distribution(**{"n_bits": 16, "trials": 10, **arguments})


def test_main_writes_numbers_figure_and_table(tmp_path, capsys):
    main(["--out", str(tmp_path / "new"), "--trials", str(TRIALS), "--seed", "2"])
    result = json.loads((tmp_path / "new" / "figure2.json").read_text())
    assert [each["n_bits"] for each in result["distributions"]] == [16, 64]
    for each in result["distributions"]:
        again = distance_distribution(each["n_bits"], trials=TRIALS, seed=2)
        assert each["empirical"] == again.empirical.tolist()
        assert each["total_variation"] == again.total_variation
    assert result["provenance"]["seed"] == 2
    assert result["provenance"]["command"] == (f"python -m research.paper.figure2 --out new --trials {TRIALS} --seed 2")
    png = (tmp_path / "new" / "figure2.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    width, height = (int.from_bytes(png[start : start + 4], "big") for start in (16, 20))
    assert width > 1000
    assert height > 400
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["bits", "16", "64"]


def test_main_says_what_is_wrong(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--out", str(tmp_path), "--trials", "0"])
    assert "trials is 0; expected at least 1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "python -m research.paper.figure2 --out results/figure2" in capsys.readouterr().out


def test_without_matplotlib_the_error_names_the_fix(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'hamtarget\[plot\]'"):
        draw([distance_distribution(16, trials=100)], tmp_path / "figure2.png")
