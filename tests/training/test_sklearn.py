"""HashTransformer keeps scikit-learn's rules, and learns."""

import sys

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from hamtarget import codes
from hamtarget.errors import InputError, MissingExtraError
from hamtarget.integrations.sklearn import HashTransformer
from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions

# Two steps do not tell much apart in 8 bits.
pytestmark = pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")

SMALL = {
    "n_bits": 8,
    "network": NetworkOptions(width=4),
    "training": TrainingOptions(steps=2, batch_size=8, group_size=2),
    "device": "cpu",
}
IN_FOURS = {**SMALL, "training": TrainingOptions(steps=2, batch_size=8, group_size=4)}


@parametrize_with_checks([HashTransformer(**SMALL), HashTransformer(**SMALL, loss="radius", packed=True)])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(300, 10, centers=4, cluster_std=2.0, random_state=0)


def test_labels_are_learned(blobs):
    rows, labels = blobs
    transformer = HashTransformer(
        loss=HammingTargetLoss(16, 2, dissimilar_weight=10),
        network=NetworkOptions(width=16),
        training=TrainingOptions(steps=60, batch_size=64),
        device="cpu",
    )
    model = make_pipeline(transformer, KNeighborsClassifier(5, metric="hamming"))
    model.fit(rows[:200], labels[:200])
    assert model.score(rows[200:], labels[200:]) > 0.9


def test_bits_and_bytes_are_the_same_codes(blobs):
    rows, labels = blobs
    transformer = HashTransformer(**SMALL).fit(rows, labels)
    bits = transformer.transform(rows)
    assert (bits.dtype, bits.shape) == (np.uint8, (300, 8))
    packed = clone(transformer).set_params(packed=True).fit(rows, labels)
    np.testing.assert_array_equal(codes.pack(bits), packed.transform(rows))
    assert transformer.get_feature_names_out().tolist() == [f"hashtransformer{bit}" for bit in range(8)]
    assert packed.get_feature_names_out().tolist() == ["hashtransformer0"]


def test_the_defaults_are_those_of_the_encoder(blobs):
    rows, labels = blobs
    small = {name: SMALL[name] for name in ("network", "training", "device")}
    for similar in (labels, None):
        transformer = HashTransformer(packed=True, **small).fit(rows, similar)
        encoder = HashEncoder(**small).fit(rows.astype(np.float32), similar)
        np.testing.assert_array_equal(transformer.transform(rows), encoder.encode(rows))


def test_labels_may_be_text_or_whole_floats(blobs):
    rows, labels = blobs
    wanted = HashTransformer(**SMALL).fit(rows, labels).transform(rows)
    for same in (labels.astype(float), labels.astype(str), labels.astype(str).astype(object)):
        np.testing.assert_array_equal(HashTransformer(**SMALL).fit(rows, same).transform(rows), wanted)


def test_a_rare_label_is_no_obstacle(blobs):
    rows, labels = blobs
    rare = labels.copy()
    rare[0] = 99
    HashTransformer(**IN_FOURS).fit(rows, rare)
    few = np.arange(300) // 2
    HashTransformer(**IN_FOURS).fit(rows, few)


def test_labels_that_say_nothing_are_refused(blobs):
    rows, _ = blobs
    for wrong, text in (
        (np.arange(300), "no two inputs have the same label"),
        (np.zeros(299), "shape"),
        (np.full(300, 0.5), "fractions"),
    ):
        with pytest.raises(InputError, match=text):
            HashTransformer(**SMALL).fit(rows, wrong)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "hamtarget.integrations.sklearn")
    with pytest.raises(MissingExtraError, match=r"hamtarget\[sklearn\]"):
        import hamtarget.integrations.sklearn  # noqa: F401
