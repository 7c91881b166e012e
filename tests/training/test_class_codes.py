"""HashEncoder(loss=ClassCodes(...)): codes moved toward those of the classes that were learned from."""

import numpy as np
import pytest
import torch

from hamtarget.encoders import open_encoder
from hamtarget.errors import InputError
from hamtarget.evaluation.metrics import by_label, precision_recall_by_radius
from hamtarget.learn import ClassCodes, HammingTargetLoss, HashEncoder, MultiLabels, NetworkOptions, TrainingOptions
from hamtarget.learn.losses.guided import GuidedLoss
from hamtarget.learn.losses.proxies import ProxyLoss
from hamtarget.learn.networks.class_pull import ClassPull

N_CLASSES = 60


def encoder_with(loss, *, steps, **settings):
    """An encoder that is not fitted yet, of a small network."""
    training = TrainingOptions(steps=steps, batch_size=64, group_size=4)
    return HashEncoder(loss=loss, network=NetworkOptions(width=32), training=training, device="cpu", **settings)


def blurred_classes(n, seed):
    """Vectors of many classes that lie close to each other."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % N_CLASSES
    centres = np.random.default_rng(7).normal(size=(N_CLASSES, 24))
    return (centres[labels] + 0.7 * random.normal(size=(n, 24))).astype(np.float32), labels


@pytest.fixture(scope="module")
def fitted():
    return encoder_with(ClassCodes(16, 2, dissimilar_weight=300.0), steps=150).fit(*blurred_classes(1800, 0))


def within_radius(encoder, n_bits):
    (rows, labels), (queries, query_labels) = blurred_classes(1800, 0), blurred_classes(600, 1)
    relevant = by_label(query_labels, labels)
    found = precision_recall_by_radius(
        encoder.encode(queries), encoder.encode(rows), relevant, n_bits=n_bits, max_radius=2
    )
    return found.precision[2], found.recall[2]


def test_more_of_many_classes_is_found_and_more_surely(fitted):
    plain = encoder_with(HammingTargetLoss(16, 2), steps=150).fit(*blurred_classes(1800, 0))
    (precision, recall), (plain_precision, plain_recall) = within_radius(fitted, 16), within_radius(plain, 16)
    assert recall > plain_recall + 0.1
    assert precision > plain_precision


def test_short_codes_have_a_guide_that_is_not_stored(fitted):
    assert isinstance(fitted.model, ClassPull)
    assert fitted.model.model.n_bits == 16 + 64
    assert fitted.encode(np.zeros((3, 24), dtype=np.float32)).shape == (3, 2)
    for n_bits, kind in ((32, GuidedLoss), (64, ProxyLoss), (128, ProxyLoss)):
        recipe = ClassCodes(n_bits, (1, 3))
        encoder = encoder_with(recipe, steps=1).fit(*blurred_classes(240, 0))
        loss = recipe.loss_for(N_CLASSES)
        assert type(loss) is kind
        assert encoder.model.model.n_bits == loss.n_bits
        assert (encoder.n_bits, encoder.radius) == (n_bits, (1, 3))
    guide = ClassCodes(16, (1, 2)).loss_for(N_CLASSES).guide.pair_loss
    assert "radius=[4, 8]" in guide.extra_repr()


def test_it_is_saved_and_loaded_whole(fitted, tmp_path):
    fitted.save(tmp_path)
    again = HashEncoder.load(tmp_path, device="cpu")
    rows, _ = blurred_classes(100, 2)
    assert np.array_equal(again.logits(rows), fitted.logits(rows))
    assert again.loss == fitted.loss
    assert (again.n_bits, again.radius) == (16, 2)
    plain = encoder_with(HammingTargetLoss(16, 2), steps=1).fit(*blurred_classes(240, 0))
    plain.save(tmp_path)
    assert np.array_equal(HashEncoder.load(tmp_path, device="cpu").logits(rows), plain.logits(rows))


def test_it_runs_without_torch(fitted, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    fitted.export_onnx(tmp_path)
    rows, _ = blurred_classes(100, 2)
    logits = fitted.logits(rows)
    exported = open_encoder(tmp_path / "model.onnx").encode(rows)
    sure = (np.abs(logits) > 1e-4).all(axis=1)
    assert sure.sum() > 90
    assert np.array_equal(exported[sure], fitted.encode(rows)[sure])


def test_the_best_weights_come_with_their_proxies():
    inputs, labels = blurred_classes(1200, 0)
    encoder = encoder_with(ClassCodes(16), steps=40, held_out=0.3).fit(inputs, labels)
    assert encoder.model.proxies.shape == (N_CLASSES, 80)
    assert torch.isfinite(encoder.model.proxies).all()


@pytest.mark.parametrize(
    ("similar", "found"),
    [(None, "None"), (MultiLabels(np.eye(240)), "MultiLabels"), (np.eye(240, 9, dtype=int), "Multi")],
)
def test_it_needs_one_label_for_each_input(similar, found):
    for loss in (ClassCodes(16), "classes"):
        with pytest.raises(InputError, match=f"ClassCodes need one label for each input, but similar is {found}"):
            encoder_with(loss, steps=1).fit(blurred_classes(240, 0)[0], similar)


def test_the_word_stands_for_the_recipe():
    rows, labels = blurred_classes(240, 0)
    word, recipe = (encoder_with(loss, steps=2).fit(rows, labels) for loss in ("classes", ClassCodes()))
    assert (word.n_bits, word.radius) == (32, 2)
    np.testing.assert_array_equal(word.logits(rows), recipe.logits(rows))


def test_a_wrong_recipe_is_refused_at_once():
    with pytest.raises(InputError, match="n_bits is 12"):
        ClassCodes(12)
    with pytest.raises(InputError, match="radius is 16"):
        ClassCodes(16, 16)
    with pytest.raises(InputError, match="dissimilar_weight is -1"):
        ClassCodes(16, dissimilar_weight=-1)
