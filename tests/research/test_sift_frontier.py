"""The frontier on SIFT: models trained together are those trained alone, and scores are what a loop counts."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from hamtarget.errors import InputError
from hamtarget.learn import HammingTargetLoss, HashModel, Neighbors, TrainingOptions, train
from hamtarget.learn.networks.builder import DenseNet
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors
from research.trials import frontier_report, sift_frontier
from research.trials.frontier_ensemble import N_BITS, RADIUS, Setting, StackedLoss, StackedModels, train_together
from research.trials.frontier_scores import FrontierData, frontier_scores

SETTINGS = (
    Setting("angle", "per_kind", 100.0),
    Setting("angle", "all_pairs", 300.0),
    Setting("soft_bits", "per_kind", 30.0),
)
OPTIONS = TrainingOptions(steps=6, batch_size=32, group_size=4, seed=3, stop_on_collapse=False)


@pytest.fixture(scope="module")
def inputs():
    generator = torch.Generator().manual_seed(1)
    centres = 40 * torch.rand(20, 8, generator=generator)
    return (centres.repeat(10, 1) + 4 * torch.rand(200, 8, generator=generator)).to(torch.uint8)


@pytest.fixture(scope="module")
def neighbors(inputs):
    return nearest_neighbors(inputs, 5)


@pytest.fixture(scope="module")
def together(inputs, neighbors):
    return train_together(SETTINGS, inputs, neighbors, OPTIONS)


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_a_model_is_the_one_that_is_trained_alone(inputs, neighbors, together, number):
    setting = SETTINGS[number]
    torch.manual_seed(OPTIONS.seed)
    alone = HashModel(DenseNet(8), N_BITS)
    alone.backbone.standardize.fit(inputs)
    loss = HammingTargetLoss(
        N_BITS,
        RADIUS,
        dissimilar_weight=setting.dissimilar_weight,
        probability=setting.probability,
        pair_average=setting.pair_average,
    )
    before = alone.head.linear.weight.clone()
    train(alone, loss, inputs, Neighbors(neighbors), OPTIONS)
    with torch.inference_mode():
        expected = alone.eval()(inputs)
        found = together.models(inputs)[number]
        assert torch.allclose(found, expected, atol=2e-2)
        assert torch.allclose(together.models.model(number)(inputs), found, atol=1e-4)
    assert not torch.allclose(alone.head.linear.weight, before, atol=1e-4)


def test_losses_are_those_of_the_library(inputs, neighbors):
    items = torch.arange(40)
    similar = Neighbors(neighbors).matrix(items)
    logits = torch.randn(len(SETTINGS), 40, N_BITS, generator=torch.Generator().manual_seed(2), requires_grad=True)
    losses = StackedLoss(SETTINGS, torch.device("cpu"))(logits, similar)
    losses.sum().backward()
    for number, setting in enumerate(SETTINGS):
        one = logits.detach()[number].clone().requires_grad_()
        loss = HammingTargetLoss(
            N_BITS,
            RADIUS,
            dissimilar_weight=setting.dissimilar_weight,
            probability=setting.probability,
            pair_average=setting.pair_average,
        )
        total = loss(one, similar).total
        total.backward()
        assert losses[number].item() == pytest.approx(total.item(), rel=1e-5)
        assert torch.allclose(logits.grad[number], one.grad, rtol=1e-4, atol=1e-7)


def test_the_term_against_correlation_counts_pairs_of_different_bits():
    logits = torch.randn(1, 50, N_BITS, generator=torch.Generator().manual_seed(4))
    logits = (logits - logits.mean(1, keepdim=True)) / logits.std(1, correction=0, keepdim=True)
    similar = torch.zeros(50, 50, dtype=torch.bool)
    device = torch.device("cpu")
    without = StackedLoss([Setting("angle", "per_kind", 1.0)], device)(logits, similar)
    added = StackedLoss([Setting("angle", "per_kind", 1.0, 7.0)], device)(logits, similar) - without
    correlation = np.corrcoef(logits[0].numpy().T)
    expected = np.mean([correlation[a, b] ** 2 for a in range(N_BITS) for b in range(N_BITS) if a != b])
    assert added.item() == pytest.approx(7 * expected, rel=1e-4)


def test_scores_are_what_a_loop_counts():
    random = np.random.default_rng(5)
    centres = random.normal(size=(6, N_BITS))
    rows = centres[random.integers(6, size=300)] + 0.15 * random.normal(size=(300, N_BITS))
    queries = centres[random.integers(6, size=20)] + 0.15 * random.normal(size=(20, N_BITS))
    truth = [int(np.argmax(rows @ query)) for query in queries]
    tensors = [torch.from_numpy(array).float() for array in (queries, rows[truth], rows)]
    # Every row stands for 4 of the base, so 25 rows ahead make 100.
    found = frontier_scores(*tensors, "angle", base_rows=1200)

    def cosine(a, b):
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    compared = read = near = first = 0
    for query, own in zip(queries, truth, strict=True):
        differs = (rows > 0) != (query > 0)
        within = differs.sum(1) <= RADIUS
        compared += within.sum()
        read += sum((~differs[:, a:b].any(1)).sum() for a, b in ((0, 22), (22, 43), (43, 64)))
        ahead = sum(cosine(query, row) > cosine(query, rows[own]) for row in rows[within])
        near += within[own]
        first += within[own] and 4 * ahead < 100
    assert 0 < near < 20
    assert found["comparisons"] == pytest.approx(4 * compared / 20)
    assert found["candidates"] == pytest.approx(4 * read / 20)
    assert (found["nearest_within"], found["recall_at_100"]) == (near / 20, first / 20)
    correlation = np.corrcoef(np.where(rows > 0, 1.0, -1.0).T)
    off_diagonal = np.abs(correlation[~np.eye(N_BITS, dtype=bool)]).mean()
    assert found["bit_correlation"] == pytest.approx(off_diagonal, rel=1e-3)
    assert found["independent_bits"] == pytest.approx(N_BITS**2 / (correlation**2).sum(), rel=1e-3)


def test_independent_normal_logits_are_foreseen():
    generator = torch.Generator().manual_seed(6)
    rows = torch.randn(2000, N_BITS, generator=generator)
    queries = rows[:100] + 0.05 * torch.randn(100, N_BITS, generator=generator)
    found = frontier_scores(queries, rows[:100], rows, "angle", base_rows=2000)
    assert found["predicted_distance"] == pytest.approx(found["distance"], rel=0.01)
    assert found["spread"] == pytest.approx(0.6, abs=0.05)
    assert found["predicted_nearest_within"] == pytest.approx(found["nearest_within"], abs=0.1)
    assert found["independent_bits"] > 55


def test_training_goes_on_where_it_ended(tmp_path, inputs, monkeypatch):
    data = FrontierData(inputs, inputs[:5], inputs[5:10], inputs[:50], base_rows=400)
    data.save(tmp_path / "data.npz")
    data = FrontierData.load(tmp_path / "data.npz", torch.device("cpu"))
    monkeypatch.setattr(sift_frontier, "SIMILAR", 5)
    monkeypatch.setattr(sift_frontier, "groups", lambda: [sift_frontier.Group(2, seed, SETTINGS) for seed in (0, 1)])
    arguments = {"minutes": 5.0, "steps": None, "batch_size": 16}
    sift_frontier.train_all(data, tmp_path, most=1, **arguments)
    sift_frontier.train_all(data, tmp_path, most=None, **arguments)
    told = json.loads((tmp_path / "runs.json").read_text())
    assert [(run["seed"], run["probability"]) for run in told["runs"]] == [
        (0, "angle"),
        (1, "angle"),
        (0, "angle"),
        (0, "soft_bits"),
        (1, "angle"),
        (1, "soft_bits"),
    ]
    sift_frontier.train_all(data, tmp_path, most=None, **{**arguments, "minutes": 0.0})
    assert json.loads((tmp_path / "runs.json").read_text()) == told
    # Runs that a report holds are not done again elsewhere.
    report, elsewhere = tmp_path / "frontier.json", tmp_path / "elsewhere"
    first = [run for run in told["runs"] if run["seed"] == 0]
    report.write_text(json.dumps({"trained": told["provenance"][:2], "runs": first}))
    elsewhere.mkdir()
    sift_frontier.train_all(data, elsewhere, most=None, known=report, **arguments)
    again = json.loads((elsewhere / "runs.json").read_text())
    assert again["runs"][: len(first)] == first
    assert {run["seed"] for run in again["runs"][len(first) :]} == {1}
    assert len(again["provenance"]) == 3


def test_a_kept_model_encodes_like_the_trained_one(tmp_path, inputs, together):
    group = sift_frontier.Group(6, 0, SETTINGS)
    sift_frontier._keep(together.models, group, tmp_path)
    encoder = sift_frontier.KeptEncoder(tmp_path / "models-6-seed0.npz", "soft_bits, per_kind, lambda 30")
    with torch.inference_mode():
        expected = together.models(inputs)[2].numpy()
    np.testing.assert_allclose(encoder.logits(inputs.numpy()), expected, atol=0.05)
    assert isinstance(together.models, StackedModels)
    # A group of other settings, with the same steps and seed, is added to the file.
    other = replace(SETTINGS[2], dissimilar_weight=31.0)
    sift_frontier._keep(together.models, sift_frontier.Group(6, 0, (*SETTINGS[:2], other)), tmp_path)
    for weight in (30, 31):
        kept = sift_frontier.KeptEncoder(tmp_path / "models-6-seed0.npz", f"soft_bits, per_kind, lambda {weight}")
        np.testing.assert_array_equal(kept.logits(inputs.numpy()), encoder.logits(inputs.numpy()))


def test_the_report_sums_up_over_seeds(tmp_path):
    def run(seed, weight, recall, comparisons):
        scores = dict.fromkeys(frontier_report._SCORES, 1.0) | {"recall_at_100": recall, "comparisons": comparisons}
        return {**asdict(Setting("angle", "per_kind", weight)), "steps": 4000, "seed": seed, **scores}

    runs = [run(0, 100.0, 0.7, 1e5), run(1, 100.0, 0.5, 1e5), run(0, 300.0, 0.2, 1e3)]
    (tmp_path / "runs.json").write_text(json.dumps({"runs": runs, "provenance": []}))
    frontier_report.write_report(tmp_path, None, tmp_path / "out", minutes=1.0)
    told = json.loads((tmp_path / "out" / "frontier.json").read_text())
    curve = told["summary"]["angle, per_kind, 4000 steps"]
    assert curve["lambda 100"]["recall_at_100"] == pytest.approx(0.6)
    assert curve["lambda 100"]["recall_at_100_deviation"] == pytest.approx(0.02**0.5)
    assert (curve["lambda 100"]["seeds"], curve["lambda 300"]["seeds"]) == (2, 1)
    at = told["at_paper_comparisons"]["angle, per_kind, 4000 steps, ranked by logits"]
    share = np.log(4105 / 1e3) / np.log(1e5 / 1e3)
    assert at["lambda 1000"] == pytest.approx(0.2 + share * 0.4)
    assert at["lambda 30000"] is None
    assert told["at_paper_comparisons"]["angle, per_kind, 4000 steps, ranked by vectors"]["lambda 1000"] == 1
    assert (tmp_path / "out" / "frontier.png").stat().st_size > 0


def test_a_report_without_runs_is_refused(tmp_path):
    with pytest.raises(InputError, match="verb train"):
        frontier_report.write_report(tmp_path, None, tmp_path, minutes=1.0)
