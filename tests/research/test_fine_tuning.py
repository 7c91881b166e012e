import numpy as np
import pytest
import torch

from hamtarget.codes import from_logits
from hamtarget.errors import DtypeError, ShapeError
from hamtarget.learn import TrainingOptions
from hamtarget.learn.networks.builder import SmallResNet
from hamtarget.learn.networks.standardize import Standardize
from research.comparators import CSQLoss, FineTuner

OPTIONS = TrainingOptions(steps=6, batch_size=20, group_size=4, log_every=2)
LABELS = np.arange(100) % 5


def images():
    random = np.random.default_rng(0)
    return random.integers(0, 256, (120, 10, 12), dtype=np.uint8)


def fitted(tuner, seed=0):
    options = TrainingOptions(**{**vars(OPTIONS), "seed": seed})
    return tuner.fit(np.arange(100), LABELS, CSQLoss(16, 5), options, normalize=False)


def test_every_model_starts_from_the_same_backbone_and_leaves_it_as_it_was():
    backbone = SmallResNet((1, 10, 12), width=4)
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    tuner = FineTuner(images(), backbone)
    first, again, other = fitted(tuner), fitted(tuner), fitted(tuner, seed=1)
    rows = np.arange(100, 120)
    codes = tuner.codes(first.model, rows)
    assert codes.shape == (20, 2)
    assert np.array_equal(codes, tuner.codes(again.model, rows))
    assert not np.array_equal(codes, tuner.codes(other.model, rows))
    for name, value in backbone.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert first.seconds > 0
    assert first.images_per_second > 0


def test_codes_are_the_signs_of_the_models_logits_after_resizing():
    def upside_down(batch):
        return batch.flip(2)

    tuner = FineTuner(images(), SmallResNet((1, 10, 12), width=4), resize=upside_down)
    model = fitted(tuner).model
    rows = np.array([7, 3, 110])
    with torch.no_grad():
        logits = model(torch.from_numpy(images()[rows][:, None, ::-1].copy()))
    assert np.array_equal(tuner.codes(model, rows), from_logits(logits.numpy()))


def test_training_images_are_augmented():
    seen = []

    def augment(batch):
        seen.append(batch.shape)
        return batch

    fitted(FineTuner(images(), SmallResNet((1, 10, 12), width=4), augment=augment))
    assert seen == [(20, 1, 10, 12)] * 6


def test_features_can_be_learned_from_directly():
    vectors = np.random.default_rng(0).normal(size=(120, 8)).astype(np.float32)
    tuner = FineTuner(vectors, Standardize((8,)))
    assert np.array_equal(tuner.features(np.array([3, 5])), vectors[[3, 5]])
    assert tuner.codes(fitted(tuner).model, np.arange(7)).shape == (7, 2)


def test_one_report_says_nothing_about_speed():
    tuner = FineTuner(images(), SmallResNet((1, 10, 12), width=4))
    options = TrainingOptions(steps=2, batch_size=20, log_every=2)
    tuned = tuner.fit(np.arange(100), LABELS, CSQLoss(16, 5), options, normalize=False)
    assert tuned.images_per_second == 0


def test_what_is_no_image_is_refused():
    with pytest.raises(ShapeError, match=r"images have shape \(5,\)"):
        FineTuner(np.zeros(5, dtype=np.uint8), SmallResNet((1, 10, 12)))
    with pytest.raises(DtypeError, match="images have dtype float64"):
        FineTuner(np.zeros((5, 4, 4)), SmallResNet((1, 10, 12)))


def test_a_network_for_larger_images_standardizes_what_it_sees():
    def larger(batch):
        return batch.repeat_interleave(2, dim=2)

    tuner = FineTuner(images(), SmallResNet((1, 20, 12), width=4), augment=larger, resize=larger)
    model = fitted(tuner).model
    standardize = next(module for module in model.modules() if isinstance(module, Standardize))
    seen = images()[:100].astype(np.float64).repeat(2, axis=1)[:, None]
    np.testing.assert_allclose(standardize.mean.numpy(), seen.mean(0), rtol=1e-5)
    assert tuner.codes(model, np.arange(3)).shape == (3, 2)
