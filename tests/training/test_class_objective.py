"""HashEncoder(objective="classes"): codes drawn to those of the classes that were learned from."""

import numpy as np
import pytest
import torch

from hamtarget.encoders import open_encoder
from hamtarget.errors import InputError
from hamtarget.evaluation.metrics import by_label, precision_recall_by_radius
from hamtarget.learn import GuidedLoss, HashEncoder, Labels, MultiLabels, ProxyLoss, ProxyPull

QUICK = {"batch_size": 64, "group_size": 4, "width": 32, "device": "cpu"}
N_CLASSES = 60


def blurred_classes(n, seed):
    """Vectors of many classes that lie close to each other."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % N_CLASSES
    centres = np.random.default_rng(7).normal(size=(N_CLASSES, 24))
    return (centres[labels] + 0.7 * random.normal(size=(n, 24))).astype(np.float32), labels


@pytest.fixture(scope="module")
def fitted():
    return HashEncoder(16, 2, objective="classes", steps=150, **QUICK).fit(*blurred_classes(1800, 0))


def within_radius(encoder, n_bits):
    (rows, labels), (queries, query_labels) = blurred_classes(1800, 0), blurred_classes(600, 1)
    relevant = by_label(query_labels, labels)
    found = precision_recall_by_radius(
        encoder.encode(queries), encoder.encode(rows), relevant, n_bits=n_bits, max_radius=2
    )
    return found.precision[2], found.recall[2]


def test_more_of_many_classes_is_found_and_more_surely(fitted):
    plain = HashEncoder(16, 2, steps=150, **QUICK).fit(*blurred_classes(1800, 0))
    (precision, recall), (plain_precision, plain_recall) = within_radius(fitted, 16), within_radius(plain, 16)
    assert recall > plain_recall + 0.1
    assert precision > plain_precision


def test_short_codes_have_a_guide_that_is_not_stored(fitted):
    assert isinstance(fitted.model, ProxyPull)
    assert fitted.model.model.n_bits == 16 + 64
    assert fitted.encode(np.zeros((3, 24), dtype=np.float32)).shape == (3, 2)
    for n_bits, kind in ((32, GuidedLoss), (64, ProxyLoss), (128, ProxyLoss)):
        encoder = HashEncoder(n_bits, (1, 3), objective="classes", steps=1, **QUICK).fit(*blurred_classes(240, 0))
        loss = encoder._loss(Labels(np.arange(240) % N_CLASSES))
        assert type(loss) is kind
        assert encoder.model.model.n_bits == loss.n_bits
    guide = HashEncoder(16, (1, 2), objective="classes")._loss(Labels(np.arange(240) % N_CLASSES)).guide.pair_loss
    assert "radius=[4, 8]" in guide.extra_repr()


def test_it_is_saved_and_loaded_whole(fitted, tmp_path):
    fitted.save(tmp_path)
    again = HashEncoder.load(tmp_path, device="cpu")
    rows, _ = blurred_classes(100, 2)
    assert np.array_equal(again.logits(rows), fitted.logits(rows))
    assert again.get_params() == {**fitted.get_params(), "device": "cpu"}
    plain = HashEncoder(16, 2, steps=1, **QUICK).fit(*blurred_classes(240, 0))
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
    encoder = HashEncoder(16, 2, objective="classes", steps=40, held_out=0.3, **QUICK).fit(inputs, labels)
    assert encoder.model.proxies.shape == (N_CLASSES, 80)
    assert torch.isfinite(encoder.model.proxies).all()


@pytest.mark.parametrize(
    ("similar", "found"), [(None, "none"), (MultiLabels(np.eye(240)), "MultiLabels"), (np.eye(240, dtype=int), "Multi")]
)
def test_it_needs_one_label_for_each_input(similar, found):
    with pytest.raises(InputError, match=f"objective is 'classes', and similar is {found}.*; expected one label"):
        HashEncoder(16, objective="classes", steps=1, **QUICK).fit(blurred_classes(240, 0)[0], similar)
