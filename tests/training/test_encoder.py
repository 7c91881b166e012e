import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from torch import nn

from hamtarget import Encoder, codes
from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    FileError,
    InputError,
    NotFiniteError,
    NotFittedError,
    ShapeError,
    SimilarityError,
    UnsupportedFileError,
)
from hamtarget.learn import (
    HammingTargetLoss,
    HashEncoder,
    HashModel,
    Labels,
    NetworkOptions,
    SimilarPairs,
    TrainingOptions,
)
from hamtarget.learn.files import weights

TRAINING = TrainingOptions(steps=20, batch_size=32, group_size=4)


def quick(n_bits=16, radius=2, *, network=None, width=16, center="mean", **settings):
    """An encoder that is fitted in a fraction of a second; `settings` are of the encoder or its training."""
    of_encoder = {name: settings.pop(name) for name in ("seed", "held_out") if name in settings}
    return HashEncoder(
        loss=HammingTargetLoss(n_bits, radius),
        network=NetworkOptions(width=width, center=center) if network is None else network,
        training=replace(TRAINING, **settings),
        **of_encoder,
    )


def vectors(n=200, columns=8, seed=0):
    random = np.random.default_rng(seed)
    labels = np.arange(n) % 10
    centres = np.random.default_rng(7).normal(size=(10, columns)) * 2
    return (centres[labels] + random.normal(size=(n, columns)) * 0.3).astype(np.float32), labels


@pytest.fixture(scope="module")
def fitted():
    inputs, labels = vectors()
    return quick().fit(inputs, labels)


def test_codes_are_the_signs_of_logits(fitted):
    inputs, _ = vectors()
    logits = fitted.logits(inputs)
    assert logits.shape == (200, 16)
    assert logits.dtype == np.float32
    np.testing.assert_array_equal(fitted.encode(inputs), codes.from_logits(logits))
    np.testing.assert_allclose(np.linalg.norm(fitted.embedding(inputs), axis=1), 1, rtol=1e-5)
    assert fitted.encode(inputs[:0]).shape == (0, 2)


def test_a_fitted_one_is_an_encoder(fitted):
    assert isinstance(fitted, Encoder)


def test_rows_do_not_depend_on_their_batch(fitted, monkeypatch):
    inputs, _ = vectors()
    whole = fitted.logits(inputs)
    monkeypatch.setattr("hamtarget.learn.fitting.fitted._ENCODED_ROWS", 7)
    np.testing.assert_allclose(fitted.logits(inputs), whole, atol=1e-5)


def test_similar_inputs_get_near_codes(fitted):
    inputs, labels = vectors(seed=1)
    distance = codes.distances(fitted.encode(inputs), fitted.encode(inputs), 16)
    same = labels[:, None] == labels
    assert distance[same].mean() < 2 < 5 < distance[~same].mean()


def test_without_labels_the_ten_nearest_neighbours_are_similar():
    inputs, labels = vectors()
    encoder = quick().fit(inputs)
    distance = codes.distances(encoder.encode(inputs), encoder.encode(inputs), 16)
    same = labels[:, None] == labels
    assert distance[same].mean() < 0.5 * distance[~same].mean()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float64, np.float16])
def test_any_numbers_are_taken(dtype):
    inputs, labels = vectors()
    inputs = (inputs * 10 + 100).astype(dtype)
    assert quick(8, 1).fit(inputs, labels).encode(inputs).shape == (200, 1)


# Two steps do not tell much apart.
@pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")
@pytest.mark.parametrize("shape", [(9, 9), (1, 9, 9), (3, 8, 8)])
def test_images_are_taken(shape):
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (60, *shape), dtype=np.uint8)
    encoder = quick(8, 1, steps=2, width=4).fit(images, np.arange(60) % 5)
    assert encoder.encode(images).shape == (60, 1)


def test_the_same_seed_gives_the_same_codes():
    inputs, labels = vectors()
    first, second, other = (quick(seed=seed).fit(inputs, labels).encode(inputs) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_held_out_inputs_choose_the_weights(tmp_path):
    inputs, labels = vectors()
    for similar in (labels, None):
        log = tmp_path / "log.jsonl"
        quick(held_out=0.3, patience=3).fit(inputs, similar, log=log)
        assert any("held_out" in json.loads(line) for line in log.read_text().splitlines())
    with pytest.raises(ShapeError, match="2 held-out inputs give fewer than 2 groups"):
        quick(held_out=0.01).fit(inputs, labels)


@pytest.mark.parametrize("held_out", [0.0, 0.25])
def test_inputs_similar_to_none_may_be_left_out_as_markers(held_out):
    inputs, labels = vectors()
    few = np.flatnonzero(labels < 3)
    edges = [(i, j) for i in few for j in few if i < j and labels[i] == labels[j]]
    pairs = SimilarPairs(edges, 200)
    encoder = quick(8, 1, held_out=held_out, batch_size=16)
    with pytest.raises(InputError, match="markers hold item numbers outside 0 to 199"):
        encoder.fit(inputs, pairs, markers=[200])
    markers = pairs.markers(4)
    assert markers.tolist() == few.tolist()
    codes_of_all = encoder.fit(inputs, pairs, markers=markers).encode(inputs)
    distance = codes.distances(codes_of_all[few], codes_of_all[few], 8)
    same = labels[few][:, None] == labels[few]
    assert distance[same].mean() < 0.5 * distance[~same].mean()


def test_own_networks_and_similarities():
    inputs, _ = vectors()
    edges = np.stack([np.arange(199), np.arange(1, 200)], axis=1)
    network = nn.Sequential(nn.Linear(8, 12), nn.ReLU())
    network.out_features = 12
    encoder = quick(8, 1, network=network, group_size=2)
    with pytest.raises(SimilarityError, match="item 0 has 1 similar items"):
        quick(8, 1).fit(inputs, SimilarPairs(edges, 200), markers=[0, 5])
    encoder.fit(inputs, SimilarPairs(edges, 200))
    encoder.fit(inputs, lambda rows, columns: (rows[:, None] - columns).abs() < 4)
    assert encoder.encode(inputs).shape == (200, 1)


@pytest.mark.parametrize("radius", [2, (1, 3)])
def test_a_saved_encoder_gives_the_same_codes(tmp_path, radius):
    inputs, labels = vectors()
    encoder = quick(16, radius, center="median").fit(inputs, labels)
    encoder.save(tmp_path / "model")
    assert sorted(p.name for p in (tmp_path / "model").iterdir()) == ["config.json", "model.safetensors"]
    loaded = HashEncoder.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.logits(inputs), encoder.logits(inputs))
    assert repr(loaded.loss) == repr(encoder.loss)
    assert loaded.training == replace(encoder.training, seed=encoder.seed)
    assert (loaded.network, loaded.held_out, loaded.seed) == (replace(encoder.network, layers=3), 0.0, 0)
    assert (loaded.n_bits, loaded.radius, loaded.input_shape) == (16, radius, (8,))
    # It learns again as it did before.
    np.testing.assert_array_equal(loaded.fit(inputs, labels).encode(inputs), encoder.encode(inputs))
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (config["n_bits"], config["input_shape"]) == (16, [8])
    assert config["loss"] == {"kind": "HammingTargetLoss", "settings": encoder.loss.settings()}
    assert config["training"] == asdict(loaded.training)
    assert config["input_range"] == pytest.approx([inputs.min(), inputs.max()])


def test_an_own_network_is_given_again_on_loading(tmp_path):
    inputs, labels = vectors()
    encoder = quick(8, 1, network=nn.Linear(8, 12)).fit(inputs, labels)
    encoder.save(tmp_path)
    with pytest.raises(InputError, match="was built on a Linear; pass network="):
        HashEncoder.load(tmp_path)
    with pytest.raises(InputError, match="weights do not fit the network"):
        HashEncoder.load(tmp_path, network=nn.Linear(8, 13))
    loaded = HashEncoder.load(tmp_path, network=nn.Linear(8, 12))
    np.testing.assert_array_equal(loaded.encode(inputs), encoder.encode(inputs))


def test_every_truncation_and_any_flipped_bit_is_noticed(fitted, tmp_path):
    fitted.save(tmp_path)
    path = tmp_path / "model.safetensors"
    whole = path.read_bytes()
    for length in [*range(0, 64), *range(64, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError):
            HashEncoder.load(tmp_path)
    random = np.random.default_rng(0)
    for place in random.integers(0, len(whole), 200):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(random.integers(8))
        path.write_bytes(damaged)
        with pytest.raises((CorruptFileError, UnsupportedFileError)):
            HashEncoder.load(tmp_path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(CorruptFileError):
        HashEncoder.load(tmp_path)
    path.write_bytes(whole)
    HashEncoder.load(tmp_path)


def test_what_is_not_a_model_is_refused(fitted, tmp_path):
    with pytest.raises(FileError, match="no such file"):
        HashEncoder.load(tmp_path / "nowhere")
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x80\x04 not safetensors")
    with pytest.raises(CorruptFileError, match="not a whole safetensors file"):
        HashEncoder.load(tmp_path)
    import safetensors.torch

    safetensors.torch.save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(CorruptFileError, match="not one of hamtarget's"):
        HashEncoder.load(tmp_path)


def test_a_file_of_a_later_format_is_refused(fitted, tmp_path, monkeypatch):
    monkeypatch.setitem(weights._FORMATS, "model", "3")
    fitted.save(tmp_path)
    monkeypatch.undo()
    with pytest.raises(UnsupportedFileError, match="format 3; this hamtarget reads format 2"):
        HashEncoder.load(tmp_path)


def test_a_failing_disk_leaves_the_old_model(fitted, tmp_path, monkeypatch):
    inputs, labels = vectors()
    fitted.save(tmp_path)
    other = quick(seed=5).fit(inputs, labels)

    def fail(*_):
        raise OSError("disk full")

    for step in ("fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(f"hamtarget._files.os.{step}", fail)
            with pytest.raises(OSError, match="disk full"):
                other.save(tmp_path)
        np.testing.assert_array_equal(HashEncoder.load(tmp_path).encode(inputs), fitted.encode(inputs))
        assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_an_interrupted_fit_leaves_the_encoder_as_it_was(fitted):
    inputs, labels = vectors()
    before = fitted.encode(inputs)

    def interrupt(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted.fit(inputs[::-1].copy(), labels, progress=interrupt)
    np.testing.assert_array_equal(fitted.encode(inputs), before)


def test_parameters_by_name():
    encoder = HashEncoder(32, "radius", seed=3)
    assert encoder.get_params()["seed"] == 3
    assert HashEncoder(**encoder.get_params()).get_params() == encoder.get_params()
    assert len(encoder.get_params()) <= 10
    assert repr(encoder) == "HashEncoder(n_bits=32, loss='radius') [not fitted]"


def test_the_text_of_an_encoder_is_one_line(fitted):
    assert repr(fitted) == "HashEncoder(16 bits, radius 2, inputs (8,), DenseNet, 2,144 parameters)"


def test_bad_inputs_are_refused_with_their_place(fitted):
    inputs, labels = vectors()
    bad = inputs.copy()
    bad[17, 3] = np.inf
    with pytest.raises(NotFiniteError, match="inputs: row 17 holds NaN or infinity"):
        HashEncoder(16).fit(bad, labels)
    with pytest.raises(NotFiniteError, match="row 17"):
        fitted.encode(torch.from_numpy(bad))
    with pytest.raises(ShapeError, match=r"shape \(rows, 7\); this encoder learned from \(rows, 8\)"):
        fitted.encode(inputs[:, :7])
    with pytest.raises(ShapeError, match="1 dimension; expected at least 2"):
        fitted.encode(inputs[0])
    with pytest.raises(DtypeError, match="expected numbers"):
        fitted.encode(np.array([["a"]]))
    with pytest.raises(ShapeError, match="1 rows; learning needs at least 2"):
        HashEncoder(16).fit(inputs[:1], labels[:1])
    with pytest.raises(ShapeError, match="speaks of 199 items; there are 200 inputs"):
        HashEncoder(16).fit(inputs, labels[1:])
    with pytest.raises(NotFittedError, match="call fit or load first"):
        HashEncoder(16).encode(inputs)
    with pytest.raises(NotFittedError, match="fit has still to choose it"):
        _ = HashEncoder().n_bits
    with pytest.raises(InputError, match="radius is 16"):
        HashEncoder(loss=HammingTargetLoss(16, 16))
    with pytest.raises(SimilarityError, match="no two inputs have the same label"):
        quick().fit(inputs, np.arange(200))
    with pytest.raises(SimilarityError, match="all inputs have the same label"):
        quick().fit(inputs, np.zeros(200, dtype=int))
    with pytest.raises(SimilarityError, match="no two inputs are similar"):
        quick().fit(inputs, SimilarPairs(np.empty((0, 2), dtype=int), 200))
    with pytest.raises(InputError, match="network is 'resnet'"):
        quick(network="resnet").fit(inputs, Labels(labels))
    with pytest.raises(InputError, match="loss is 'fast'; expected a loss object, or one of auto, radius"):
        HashEncoder(16, "fast").fit(inputs, labels)
    with pytest.raises(InputError, match="loss is 3; expected a loss object"):
        HashEncoder(16, 3).fit(inputs, labels)
    for n_bits, error in (("32", DtypeError), (12.5, DtypeError), (0, InputError), (12, InputError)):
        with pytest.raises(error, match=f"n_bits is .*{n_bits}.*; expected"):
            HashEncoder(n_bits)
    with pytest.raises(InputError, match="training is 5; expected TrainingOptions"):
        HashEncoder(training=5)
    with pytest.raises(InputError, match="n_bits is 32, but the loss has 16 bits"):
        HashEncoder(32, HammingTargetLoss(16)).fit(inputs, labels)
    with pytest.raises(InputError, match="the network has 8 logits; expected 16"):
        quick(network=HashModel(nn.Linear(8, 12), 8)).fit(inputs, labels)
    with pytest.raises(ShapeError, match=r"expected \(rows, columns\)"):
        quick().fit(np.zeros((4, 2, 2, 2, 2)), [0, 0, 1, 1])
