"""What `HashEncoder.fit` decides by itself, what it leaves alone, and what it refuses."""

import copy
import warnings

import numpy as np
import pytest
import torch
from torch import nn

from hamtarget.datasets import fashion_sample
from hamtarget.errors import (
    CrowdedCodesWarning,
    InputError,
    InputRangeWarning,
    ShapeError,
    TrainingError,
)
from hamtarget.learn import (
    ClassCodes,
    HammingTargetLoss,
    HashEncoder,
    HashModel,
    Labels,
    MultiLabels,
    Neighbors,
    NetworkOptions,
    ProbingLoss,
    SimilarPairs,
    TrainingOptions,
)
from hamtarget.learn.fitting.objectives import loss_by_word
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.losses.keep_neighbors import KeepNeighbors
from hamtarget.learn.losses.proxies import ProxyLoss
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors

# Three steps do not tell much apart.
pytestmark = pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")

SMALL = {"network": NetworkOptions(width=8), "device": "cpu"}
SHORT = TrainingOptions(steps=3, batch_size=16)


def clusters(n=120, classes=6, columns=8, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = np.random.default_rng(7).normal(size=(classes, columns)) * 3
    return (centres[labels] + random.normal(size=(n, columns)) * 0.3).astype(np.float32), labels


def state_of(module):
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def assert_same_state(module, state):
    found = module.state_dict()
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        assert torch.equal(found[name], tensor), name


# Defaults


@pytest.mark.parametrize(
    ("similar", "n_bits", "radius", "weight"),
    [
        (None, 64, None, None),
        (Labels(np.arange(120) % 6), 32, 2, 30.0),
        (np.arange(120) % 6, 32, 2, 30.0),
        (np.eye(6, dtype=int)[np.arange(120) % 6], 32, 2, 30.0),
        (Neighbors(nearest_neighbors(clusters()[0], 10)), 64, 2, 300.0),
        (SimilarPairs(np.arange(120).reshape(-1, 2), 120), 64, 2, 300.0),
        (lambda rows, columns: rows[:, None] % 6 == columns % 6, 64, 2, 300.0),
    ],
    ids=["nothing", "Labels", "labels", "multi-labels", "neighbours", "pairs", "function"],
)
def test_bits_radius_and_weight_depend_on_what_is_similar(similar, n_bits, radius, weight):
    encoder = HashEncoder(training=SHORT, **SMALL).fit(clusters()[0], similar)
    assert (encoder.n_bits, encoder.radius) == (n_bits, radius)
    loss = encoder._fitted.loss
    if weight == 30.0:
        assert type(loss) is KeepNeighbors
        loss = loss.loss
    assert type(loss) is (ProbingLoss if radius is None else HammingTargetLoss)
    if weight is not None:
        assert loss.dissimilar_weight == weight


@pytest.mark.parametrize(
    ("word", "similar", "expected"),
    [
        ("auto", None, "ProbingLoss"),
        ("auto", np.arange(60) % 3, "KeepNeighbors"),
        ("radius", np.arange(60) % 3, "HammingTargetLoss"),
        (KeepNeighbors(ProbingLoss(16)), None, "KeepNeighbors"),
        ("probing", np.arange(60) % 3, "ProbingLoss"),
        ("radius", None, "HammingTargetLoss"),
        ("classes", np.arange(60) % 3, "GuidedLoss"),
        (ProbingLoss(16), np.arange(60) % 3, "ProbingLoss"),
        (HammingTargetLoss(16, (1, 3)), None, "HammingTargetLoss"),
        (ClassCodes(64), np.arange(60) % 3, "ProxyLoss"),
    ],
)
def test_the_loss_is_chosen_by_a_word_or_given(word, similar, expected, monkeypatch):
    from hamtarget.learn.fitting import arrays

    seen = []

    def no_training(model, loss, *_, **__):
        seen.append(type(loss).__name__)

    monkeypatch.setattr(arrays, "train", no_training)
    monkeypatch.setattr(arrays, "warn_if_crowded", lambda *_: None)
    HashEncoder(loss=word, **SMALL).fit(np.random.default_rng(0).normal(size=(60, 4)), similar)
    assert seen == [expected]


def test_a_word_with_settings():
    labels = Labels(np.arange(8) % 2)
    assert loss_by_word("auto", None, radius=3).radius == 3
    assert loss_by_word("auto", None, of_vectors=True, radius=3).radius == 3
    kept = loss_by_word("auto", labels, of_vectors=True, n_bits=16, radius=1, dissimilar_weight=7)
    assert isinstance(kept, KeepNeighbors)
    assert (kept.n_bits, kept.radius, kept.loss.dissimilar_weight) == (16, 1, 7)
    assert loss_by_word("auto", labels, n_bits=16, radius=(1, 2)).settings()["radius"] == [1, 2]
    assert loss_by_word("radius", labels, dissimilar_weight=7).dissimilar_weight == 7
    assert loss_by_word("classes", labels, n_bits=16, radius=1) == ClassCodes(16, 1, 30.0)
    with pytest.raises(InputError, match="dissimilar_weight is 5, but codes for probing have none"):
        loss_by_word("auto", None, dissimilar_weight=5)
    with pytest.raises(InputError, match="radius is 2, but codes for probing have none"):
        loss_by_word("probing", labels, radius=2)


@pytest.mark.parametrize(("rows", "steps"), [(100, 300), (25_600, 1500), (10**6, 4000)])
def test_steps_follow_the_number_of_inputs(rows, steps):
    assert TrainingOptions().steps_for(rows) == steps
    assert TrainingOptions(steps=7).steps_for(rows) == 7


def test_a_group_is_no_larger_than_the_largest_class():
    rows, _ = clusters()
    # The largest class has 3 inputs, many have 1 or 2: only the 3 are markers.
    labels = np.arange(120)
    labels[:3], labels[3:5] = 0, 1
    encoder = HashEncoder(training=TrainingOptions(steps=3, batch_size=16), **SMALL).fit(rows, labels)
    training = encoder._fitted.training
    assert (training.group_size, training.batch_size, training.steps) == (3, 15, 3)


def test_a_few_rows_have_few_neighbours():
    rows, _ = clusters(3, classes=3)
    encoder = HashEncoder(training=TrainingOptions(steps=2, batch_size=8), **SMALL).fit(rows)
    assert encoder._fitted.training.group_size == 3


def test_finding_neighbours_is_reported():
    told = []
    rows, _ = clusters()
    encoder = HashEncoder(training=SHORT, **SMALL)
    encoder.fit(rows, neighbors_progress=lambda done, total: told.append((done, total)))
    assert told[-1] == (120, 120)


# What is the caller's stays as it is


def own_network():
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(8, 12), nn.BatchNorm1d(12), nn.ReLU())
    network.out_features = 12
    return network


def test_a_network_and_a_loss_are_copied():
    rows, labels = clusters()
    networks = [own_network(), HashModel(own_network(), 16, center="median")]
    losses = [HammingTargetLoss(16, 2), ProxyLoss(HammingTargetLoss(16, 2), 6)]
    for network in networks:
        for loss in losses:
            network_before, loss_before = state_of(network), state_of(loss)
            encoder = HashEncoder(loss=loss, network=network, training=SHORT, device="cpu")
            first = encoder.fit(rows, labels).logits(rows)
            second = encoder.fit(rows, labels).logits(rows)
            third = HashEncoder(**encoder.get_params()).fit(rows, labels).logits(rows)
            np.testing.assert_array_equal(first, second)
            np.testing.assert_array_equal(first, third)
            assert_same_state(network, network_before)
            assert_same_state(loss, loss_before)
            assert network.training
            assert encoder.network is network


def test_a_loaded_network_is_copied_too(tmp_path):
    rows, labels = clusters()
    for network in (own_network(), HashModel(own_network(), 32, center="median")):
        encoder = HashEncoder(network=network, training=SHORT, device="cpu").fit(rows, labels)
        encoder.save(tmp_path)
        before = state_of(network)
        loaded = HashEncoder.load(tmp_path, network=network, device="cpu")
        np.testing.assert_array_equal(loaded.logits(rows), encoder.logits(rows))
        assert_same_state(network, before)


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("error", [Interrupted, TrainingError, KeyboardInterrupt])
def test_a_call_that_fails_changes_nothing(error):
    rows, labels = clusters()
    network, loss = own_network(), ProxyLoss(HammingTargetLoss(16, 2), 6)
    training = TrainingOptions(steps=40, batch_size=16, log_every=10)
    encoder = HashEncoder(loss=loss, network=network, training=training, device="cpu")

    def fail(progress):
        if progress.step == 20:
            raise error("stopped")

    before = state_of(network), state_of(loss)
    with pytest.raises(error):
        encoder.fit(rows, labels, progress=fail)
    assert "not fitted" in repr(encoder)
    codes = encoder.fit(rows, labels).encode(rows)
    with pytest.raises(error):
        encoder.fit(rows[::-1].copy(), labels, progress=fail)
    np.testing.assert_array_equal(encoder.encode(rows), codes)
    assert_same_state(network, before[0])
    assert_same_state(loss, before[1])
    # The failed calls leave nothing behind by which another one would differ.
    np.testing.assert_array_equal(encoder.fit(rows, labels).encode(rows), codes)


def test_inputs_and_random_numbers_are_left_alone():
    rows, labels = clusters()
    images = np.random.default_rng(0).integers(0, 256, (24, 12, 12, 3), dtype=np.uint8)
    before, state = copy.deepcopy((rows, labels, images)), torch.get_rng_state()
    HashEncoder(training=SHORT, **SMALL).fit(rows, labels)
    HashEncoder(16, training=SHORT, **SMALL).fit(images, labels[:24])
    for one, other in zip(before, (rows, labels, images), strict=True):
        np.testing.assert_array_equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


class MeanLoss(BatchLoss):
    """A loss of someone else's."""

    def __init__(self, n_bits):
        super().__init__(n_bits, gather=False)

    def target(self, similarity, items):
        return similarity.matrix(items)

    def _check_target(self, target, n_rows):
        pass

    def _terms(self, logits, target):
        return self._report(((logits @ logits.T) * torch.where(target, -1.0, 0.1)).mean(), logits, target)


def test_a_loss_of_ones_own_is_known_by_its_name_after_loading(tmp_path):
    rows, labels = clusters()
    encoder = HashEncoder(loss=MeanLoss(16), training=SHORT, **SMALL).fit(rows, labels)
    assert (encoder.n_bits, encoder.radius) == (16, None)
    encoder.save(tmp_path)
    loaded = HashEncoder.load(tmp_path, device="cpu")
    np.testing.assert_array_equal(loaded.encode(rows), encoder.encode(rows))
    assert loaded.loss == "MeanLoss"
    with pytest.raises(InputError, match="loss is 'MeanLoss'; expected a loss object"):
        loaded.fit(rows, labels)


# Images


def test_channels_may_come_last():
    random = np.random.default_rng(0)
    for channels in (1, 3):
        images = random.integers(0, 256, (40, channels, 16, 12), dtype=np.uint8)
        last = np.ascontiguousarray(np.moveaxis(images, 1, -1))
        encoders = [HashEncoder(16, training=SHORT, **SMALL).fit(some, np.arange(40) % 4) for some in (images, last)]
        assert {encoder.input_shape for encoder in encoders} == {(16, 12) if channels == 1 else (3, 16, 12)}
        codes = [encoder.encode(some) for encoder in encoders for some in (images, last, torch.from_numpy(last))]
        for other in codes[1:]:
            np.testing.assert_array_equal(codes[0], other)


@pytest.mark.parametrize("shape", [(3, 16, 3), (16, 5, 3), (5, 16, 1), (3, 16, 1), (16, 16, 4), (16, 12, 2)])
def test_shapes_that_could_mean_two_things_are_refused(shape):
    images = np.zeros((8, *shape), dtype=np.uint8)
    with pytest.raises(ShapeError, match=r"np\.moveaxis\(inputs, -1, 1\)"):
        HashEncoder(16, training=SHORT, **SMALL).fit(images, np.arange(8) % 2)


@pytest.mark.parametrize("shape", [(64, 3, 3), (12, 1, 1), (7, 4, 4), (5, 16, 16), (4, 9, 9), (2, 3)])
def test_feature_maps_keep_their_channels(shape):
    maps = np.random.default_rng(0).normal(size=(24, *shape))
    encoder = HashEncoder(16, training=SHORT, **SMALL).fit(maps, np.arange(24) % 3)
    assert encoder.input_shape == shape


def test_an_own_network_gets_inputs_as_they_are():
    class Points(nn.Module):
        out_features = 3

        def forward(self, points):
            return points.mean(dim=(1, 2))

    points = np.random.default_rng(0).normal(size=(24, 10, 20, 3)).astype(np.float32)
    encoder = HashEncoder(16, network=Points(), training=SHORT, device="cpu").fit(points, np.arange(24) % 3)
    assert encoder.input_shape == (10, 20, 3)


@pytest.fixture(scope="module")
def of_bytes():
    images = np.random.default_rng(0).integers(0, 256, (40, 10, 10), dtype=np.uint8)
    return HashEncoder(16, training=SHORT, **SMALL).fit(images, np.arange(40) % 4), images


def test_another_scale_is_warned_of(of_bytes, tmp_path):
    encoder, images = of_bytes
    encoder.save(tmp_path)
    for each in (encoder, HashEncoder.load(tmp_path, device="cpu")):
        for small in (images / 255, torch.from_numpy(images) / 255):
            with pytest.warns(
                InputRangeWarning, match="between 0 and 1, but this encoder learned.*multiply them by 255"
            ):
                each.encode(small)
    fractions = HashEncoder(16, training=SHORT, **SMALL).fit(images / 255, np.arange(40) % 4)
    with pytest.warns(InputRangeWarning, match="learned from inputs between 0 and 1;.*divide them by 255"):
        fractions.encode(images)


def test_the_same_scale_is_not(of_bytes):
    encoder, images = of_bytes
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # Black images, dark bytes, and floats on the right scale.
        for fine in (images * 0, images // 200, images.astype(np.float32), images[:0], images / 1.0 - 5, images * 0.5):
            encoder.encode(fine)
        rows, labels = clusters()
        HashEncoder(training=SHORT, **SMALL).fit(rows, labels).encode(rows / 100)


# Similarities


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor, np.float32])
def test_lists_of_neighbours_are_not_taken_for_labels(kind):
    rows, _ = clusters()
    lists = nearest_neighbors(rows, 10)
    with pytest.raises(InputError, match=r"other numbers than 0 and 1;.*pass Neighbors\(similar\)"):
        HashEncoder(training=SHORT, **SMALL).fit(rows, kind(lists))
    HashEncoder(training=SHORT, **SMALL).fit(rows, Neighbors(lists))


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.float32])
def test_several_labels_may_have_any_type(dtype):
    rows, labels = clusters()
    several = np.eye(6)[labels].astype(dtype)
    codes = HashEncoder(training=SHORT, **SMALL).fit(rows, several).encode(rows)
    np.testing.assert_array_equal(
        codes, HashEncoder(training=SHORT, **SMALL).fit(rows, MultiLabels(several)).encode(rows)
    )


# Neighbourhoods


def unlike_classes():
    """Return vectors of 12 classes that differ in 12 columns, and their labels."""
    random = np.random.default_rng(5)
    labels = np.arange(480) % 12
    return (4 * np.eye(12)[labels] + random.normal(size=(480, 12))).astype(np.float32), labels


def share_of_own_class(encoder, rows, labels):
    """Return the share of the ten nearest codes of each row that are of its class."""
    logits = np.where(encoder.logits(rows) > 0, 1, -1)
    near = np.argsort(-(logits @ logits.T) + 1000 * np.eye(len(rows)), axis=1)[:, :10]
    return float((labels[near] == labels[:, None]).mean())


def test_classes_without_labels_are_told_apart_better_than_by_labels_alone():
    rows, labels = unlike_classes()
    unknown = labels >= 4
    training = TrainingOptions(steps=150, batch_size=64)
    settings = {"training": training, "network": NetworkOptions(width=32), "device": "cpu"}
    alone = HashEncoder(32, "radius", **settings).fit(rows[~unknown], labels[~unknown])
    kept = HashEncoder(32, **settings).fit(rows[~unknown], labels[~unknown])
    some = HashEncoder(32, **settings).fit(rows, [None if label >= 4 else label for label in labels.tolist()])
    by_labels, by_both, by_all = (share_of_own_class(e, rows[unknown], labels[unknown]) for e in (alone, kept, some))
    assert by_labels < by_both
    assert by_labels + 0.1 < by_all
    assert share_of_own_class(some, rows[~unknown], labels[~unknown]) > 0.9


def test_neighbourhoods_are_those_of_vectors():
    images = np.random.default_rng(0).random((12, 8, 8)).astype(np.float32)
    with pytest.raises(InputError, match=r"KeepNeighbors keeps neighbourhoods of vectors.*HammingTargetLoss, alone"):
        HashEncoder(loss=KeepNeighbors(HammingTargetLoss(16, 2)), **SMALL).fit(images, np.arange(12) % 2)


def test_a_loss_that_keeps_neighbourhoods_is_saved_with_what_it_holds(tmp_path):
    rows, labels = clusters()
    encoder = HashEncoder(16, training=SHORT, **SMALL).fit(rows, labels)
    encoder.save(tmp_path)
    loaded = HashEncoder.load(tmp_path)
    assert loaded.loss.extra_repr() == encoder._fitted.loss.extra_repr()
    assert loaded.loss.loss.dissimilar_weight == 30
    np.testing.assert_array_equal(loaded.encode(rows), encoder.encode(rows))


# Collapse


@pytest.fixture(scope="module")
def photos():
    sample = fashion_sample()
    return sample.images[:1000].reshape(1000, -1)[:, ::4], sample.labels[:1000]


def test_a_collapse_stops_the_training(photos):
    """The paper's loss by angles takes long codes of one bit for independent bits."""
    told = []
    encoder = HashEncoder(
        loss=HammingTargetLoss(64, 2, probability="angle", dissimilar_weight=1),
        network=NetworkOptions(width=16),
        training=TrainingOptions(steps=400, batch_size=64),
        device="cpu",
    )
    with pytest.raises(TrainingError, match="codes have collapsed.*dissimilar_weight.*center='median'.*train longer"):
        encoder.fit(*photos, progress=told.append)
    assert 100 <= told[-1].step < 400
    assert "not fitted" in repr(encoder)


def test_a_collapse_can_be_let_through(photos):
    encoder = HashEncoder(
        loss=HammingTargetLoss(64, 2, probability="angle", dissimilar_weight=1),
        network=NetworkOptions(width=16),
        training=TrainingOptions(steps=120, batch_size=64, stop_on_collapse=False),
        device="cpu",
    )
    with pytest.warns(CrowdedCodesWarning, match=r"% of the dissimilar pairs lie within the radius \(2\)"):
        encoder.fit(*photos)
    assert encoder.n_bits == 64


@pytest.mark.filterwarnings("error::hamtarget.errors.CrowdedCodesWarning")
@pytest.mark.parametrize("loss", ["radius", "probing", "classes", HammingTargetLoss(64, 2, dissimilar_weight=30)])
def test_codes_that_learn_well_are_not_stopped(photos, loss):
    encoder = HashEncoder(
        loss=loss, network=NetworkOptions(width=16), training=TrainingOptions(steps=150, batch_size=64), device="cpu"
    )
    encoder.fit(*photos)


def test_a_radius_that_random_codes_reach_is_not_a_collapse():
    rows, labels = clusters()
    loss = HammingTargetLoss(8, 6, dissimilar_weight=0.001)
    with pytest.warns(CrowdedCodesWarning, match="use more bits or a smaller radius"):
        HashEncoder(loss=loss, training=TrainingOptions(steps=150, batch_size=16), **SMALL).fit(rows, labels)


def test_a_checkpoint_of_other_settings_is_refused_before_neighbours_are_sought(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    checkpoint, network = tmp_path / "checkpoint.safetensors", NetworkOptions(width=4)

    def fit(seed, progress=None):
        encoder = HashEncoder(
            16, network=network, training=TrainingOptions(steps=3, batch_size=32), seed=seed, device="cpu"
        )
        return encoder.fit(vectors, checkpoint=checkpoint, neighbors_progress=progress)

    sought = []
    whole = fit(0, lambda done, total: sought.append(done)).logits(vectors)
    assert sought
    # The same settings are taken, as few as the neighbours are.
    np.testing.assert_array_equal(fit(0).logits(vectors), whole)
    sought.clear()
    with pytest.raises(InputError, match="is of a run with seed=0; this run has 1"):
        fit(1, lambda done, total: sought.append(done))
    assert sought == []
