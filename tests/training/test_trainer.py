import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from hamtarget.errors import CorruptFileError, InputError, TrainingError, UnsupportedFileError
from hamtarget.learn import HammingTargetLoss, HashModel, Labels, TrainingOptions, train
from hamtarget.learn.files.weights import write_tensors
from hamtarget.learn.fitting.held_out import HeldOutLoss, split
from hamtarget.learn.networks.builder import DenseNet

N, COLUMNS, N_BITS = 200, 6, 16
OPTIONS = TrainingOptions(
    steps=30, batch_size=32, group_size=4, learning_rate=1e-2, log_every=5, checkpoint_every=10, evaluate_every=10
)


def data():
    random = np.random.default_rng(0)
    labels = np.arange(N) % 10
    centres = random.normal(size=(10, COLUMNS)) * 2
    vectors = centres[labels] + random.normal(size=(N, COLUMNS)) * 0.3
    return torch.from_numpy(vectors.astype(np.float32)), Labels(labels)


def model():
    torch.manual_seed(0)
    backbone = DenseNet(COLUMNS, width=16, layers=2)
    # Dropout draws random numbers: a resumed run must draw the same ones.
    return HashModel(nn.Sequential(backbone, nn.Dropout(0.2)), N_BITS, in_features=backbone.out_features)


def loss():
    return HammingTargetLoss(N_BITS, 2, dissimilar_weight=30.0)


class Interrupted(Exception):
    pass


def interrupt_at(step):
    def progress(state):
        if state.step >= step:
            raise Interrupted

    return progress


def assert_same_weights(one, other):
    for (name, left), right in zip(one.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(left, right), name


@pytest.mark.parametrize("interrupted_at", [10, 15, 25])
@pytest.mark.parametrize("held_out", [False, True])
def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(tmp_path, interrupted_at, held_out):
    inputs, similarity = data()

    def run(trained, progress=None, **files):
        evaluate = HeldOutLoss(inputs[:80], Labels(np.arange(80) % 10), loss(), OPTIONS) if held_out else None
        return train(trained, loss(), inputs, similarity, OPTIONS, evaluate=evaluate, progress=progress, **files)

    whole, resumed = model(), model()
    expected = run(whole, log=tmp_path / "whole.jsonl")
    files = {"checkpoint": tmp_path / "run.safetensors", "log": tmp_path / "resumed.jsonl"}
    with pytest.raises(Interrupted):
        run(resumed, interrupt_at(interrupted_at), **files)
    resumed = model()
    torch.manual_seed(99)
    assert run(resumed, **files) == expected
    assert_same_weights(whole, resumed)

    def records(path):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]

    assert records(tmp_path / "resumed.jsonl") == records(tmp_path / "whole.jsonl")


def test_a_finished_run_is_not_run_again(tmp_path):
    inputs, similarity = data()
    first, second = model(), model()
    train(first, loss(), inputs, similarity, OPTIONS, checkpoint=tmp_path / "run")
    done = train(second, loss(), inputs, similarity, OPTIONS, checkpoint=tmp_path / "run", progress=interrupt_at(0))
    assert done.step == OPTIONS.steps
    assert_same_weights(first, second)


def test_a_checkpoint_of_other_settings_is_refused(tmp_path):
    inputs, similarity = data()
    path = tmp_path / "run"
    train(model(), loss(), inputs, similarity, OPTIONS, checkpoint=path)
    with pytest.raises(InputError, match="run with seed=0; this run has 1"):
        train(model(), loss(), inputs, similarity, replace(OPTIONS, seed=1), checkpoint=path)
    sharper = HammingTargetLoss(N_BITS, 2, dissimilar_weight=30.0, sharpness=5.0)
    with pytest.raises(InputError, match="sharpness=4.0.*sharpness=5.0"):
        train(model(), sharper, inputs, similarity, OPTIONS, checkpoint=path)
    other = HashModel(DenseNet(COLUMNS, width=8), N_BITS)
    with pytest.raises(CorruptFileError, match="is of another model"):
        train(other, loss(), inputs, similarity, OPTIONS, checkpoint=path)
    write_tensors(path, {"a": torch.zeros(1)}, {}, kind="model")
    with pytest.raises(UnsupportedFileError, match="holds a model; expected a checkpoint"):
        train(model(), loss(), inputs, similarity, OPTIONS, checkpoint=path)


def test_training_learns_and_reports(tmp_path):
    inputs, similarity = data()
    seen = []
    log = tmp_path / "logs" / "run.jsonl"
    done = train(
        model(), loss(), inputs, similarity, OPTIONS, progress=lambda p: seen.append((p.step, p.loss)), log=log
    )
    assert [step for step, _ in seen] == [5, 10, 15, 20, 25, 30]
    assert seen[-1][1] < 0.5 * seen[0][1]
    assert done.step == done.steps == 30
    records = [json.loads(line) for line in log.read_text().splitlines()]
    assert [record["step"] for record in records] == [5, 10, 15, 20, 25, 30]
    assert set(records[0]) >= {"loss", "rate", "bit_balance", "bit_correlation", "predicted_within", "actual_within"}


def test_the_same_seed_gives_the_same_weights_and_another_does_not():
    inputs, similarity = data()
    trained = []
    for seed in (0, 0, 1):
        trained.append(model())
        train(trained[-1], loss(), inputs, similarity, replace(OPTIONS, seed=seed))
    assert_same_weights(trained[0], trained[1])
    assert not torch.equal(trained[0].head.linear.weight, trained[2].head.linear.weight)


def test_training_leaves_the_callers_random_numbers_alone():
    inputs, similarity = data()
    trained = model()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    train(trained, loss(), inputs, similarity, OPTIONS)
    assert torch.equal(torch.rand(3), expected)


def test_training_stops_early_and_keeps_the_best_weights():
    inputs, similarity = data()
    costs = iter([3.0, 1.0, 2.0, 2.5, 0.1])
    kept = []

    def evaluate(trained):
        assert not trained.training
        kept.append(trained.head.linear.weight.detach().clone())
        return next(costs)

    trained = model()
    options = replace(OPTIONS, steps=50, evaluate_every=5, patience=2)
    done = train(trained, loss(), inputs, similarity, options, evaluate=evaluate)
    assert (done.step, done.best_step, done.best_cost) == (20, 10, 1.0)
    assert torch.equal(trained.head.linear.weight, kept[1])


def test_a_run_that_stopped_early_stays_stopped(tmp_path):
    inputs, similarity = data()
    options = replace(OPTIONS, steps=50, evaluate_every=5, patience=2)
    first, second = model(), model()
    costs = iter([1.0, 2.0, 3.0])
    stopped = train(
        first, loss(), inputs, similarity, options, evaluate=lambda _: next(costs), checkpoint=tmp_path / "run"
    )
    again = train(
        second, loss(), inputs, similarity, options, evaluate=lambda _: next(costs), checkpoint=tmp_path / "run"
    )
    assert again == stopped
    assert again.step == 15
    assert_same_weights(first, second)


def test_held_out_loss_is_fixed_and_falls_with_training():
    inputs, similarity = data()
    kept, aside = split(N, 0.3, seed=0)
    assert sorted([*kept.tolist(), *aside.tolist()]) == list(range(N))
    evaluate = HeldOutLoss(inputs[aside], similarity.subset(aside), loss(), OPTIONS)
    trained = model().eval()
    before = evaluate(trained)
    assert evaluate(trained) == before
    train(trained, loss(), inputs[kept], similarity.subset(kept), OPTIONS)
    assert evaluate(trained) < before


def test_a_dataset_trains_as_its_tensor_does():
    inputs, similarity = data()

    class Rows(torch.utils.data.Dataset):
        def __len__(self):
            return N

        def __getitem__(self, index):
            return inputs[index]

    backbone = DenseNet(COLUMNS, width=8)
    one, other = HashModel(backbone, N_BITS), HashModel(DenseNet(COLUMNS, width=8), N_BITS)
    other.load_state_dict(one.state_dict())
    train(one, loss(), inputs, similarity, OPTIONS)
    train(other, loss(), Rows(), similarity, OPTIONS)
    assert_same_weights(one, other)


def test_augmentation_sees_every_batch():
    inputs, similarity = data()
    sizes = []

    def augment(batch):
        sizes.append(len(batch))
        return batch + 0.01

    train(model(), loss(), inputs, similarity, OPTIONS, augment=augment)
    assert sizes == [OPTIONS.batch_size] * OPTIONS.steps


def test_bfloat16_trains_too():
    inputs, similarity = data()
    seen = []
    train(
        model(),
        loss(),
        inputs,
        similarity,
        replace(OPTIONS, precision="bfloat16"),
        progress=lambda p: seen.append(p.loss),
    )
    assert seen[-1] < 0.5 * seen[0]


def test_a_loss_that_is_no_number_stops_training():
    class Broken(HammingTargetLoss):
        def forward(self, logits, similar):
            terms = super().forward(logits, similar)
            return replace(terms, total=terms.total * math.nan)

    inputs, similarity = data()
    with pytest.raises(TrainingError, match="the loss is nan at step 1; expected a finite number: lower learning_rate"):
        train(model(), Broken(N_BITS, 2), inputs, similarity, replace(OPTIONS, log_every=1))


def test_the_rate_rises_then_falls_to_nothing():
    options = replace(OPTIONS, steps=100, warmup=0.1, learning_rate=1.0)
    rates = [options.rate(step, 100) for step in range(100)]
    assert rates.index(max(rates)) == 10
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] < 0.001


def test_biases_and_norms_do_not_decay():
    from hamtarget.learn.training.trainer import _optimizer

    trained = model()
    groups = _optimizer(nn.ModuleDict({"model": trained}), replace(OPTIONS, weight_decay=0.5)).param_groups
    decay = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    assert {decay[id(p)] for p in trained.parameters() if p.ndim > 1} == {0.5}
    assert {decay[id(p)] for p in trained.parameters() if p.ndim <= 1} == {0.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"warmup": 1.0}, "warmup 1.0"),
        ({"precision": "float16"}, "precision is 'float16'"),
        ({"log_every": 0}, "log_every is 0"),
    ],
)
def test_wrong_options_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        replace(OPTIONS, **change)


def test_a_frozen_model_is_refused():
    inputs, similarity = data()
    frozen = model().requires_grad_(False)
    with pytest.raises(InputError, match="no parameter that requires a gradient"):
        train(frozen, loss(), inputs, similarity, OPTIONS)


def test_a_share_to_hold_out_is_a_share():
    with pytest.raises(InputError, match="held_out is 1.0"):
        split(10, 1.0, 0)
