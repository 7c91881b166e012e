"""Learning from pictures by a frozen network: seen once, kept by content, resumed, exported, saved."""

import copy
import shutil
import warnings

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from hamtarget.datasets import ImageSet
from hamtarget.encoders.onnx_encoder import OnnxEncoder
from hamtarget.encoders.opening import open_encoder
from hamtarget.errors import FileError, InputError, UnsupportedFileError
from hamtarget.learn import HashEncoder, ProbingLoss, TrainingOptions
from hamtarget.learn.files.export import int8_rows
from hamtarget.learn.fitting import features as features_module
from hamtarget.learn.fitting import pictures as pictures_module
from hamtarget.learn.fitting.pictures import SkippedImageWarning
from hamtarget.learn.networks.class_pull import ClassPull
from hamtarget.learn.networks.frozen import FrozenBackbone, fingerprint, is_frozen, weights_digest

# So few steps separate little.
pytestmark = pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")

KINDS = ("bars", "dots", "flat")
PER_KIND = 30
QUICK = TrainingOptions(steps=20, batch_size=32, stop_on_collapse=False)


class TinyNetwork(nn.Module):
    """A network of pictures with random weights, int8 numbers times a scale for each channel."""

    input_shape = (3, 16, 16)

    def __init__(self, seed=0):
        super().__init__()
        self.conv = nn.Conv2d(3, 96, 4, stride=4)
        self.norm = nn.BatchNorm2d(96)
        self.out_features = 96
        generator = torch.Generator().manual_seed(seed)
        numbers = torch.randint(-127, 128, self.conv.weight.shape, generator=generator).float()
        numbers[:, 0, 0, 0] = 127
        with torch.no_grad():
            self.conv.weight.copy_(numbers * torch.rand(96, 1, 1, 1, generator=generator) / 1000)
            self.conv.bias.zero_()

    def forward(self, images):
        return torch.relu(self.norm(self.conv(images.float() / 255)))


def tiny(seed=0):
    return TinyNetwork(seed).requires_grad_(False)


def draw(kind, rng):
    """Return a picture, (20, 24, 3) uint8."""
    picture = np.full((20, 24, 3), rng.integers(60, 200, 3), dtype=np.uint8)
    if kind == "bars":
        picture[:, ::3] = 255
    elif kind == "dots":
        picture[::4] = 0
    return picture


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Give every test a cache of its own."""
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for kind in KINDS:
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for number in range(PER_KIND):
            Image.fromarray(draw(kind, rng)).save(tmp_path / "photos" / kind / f"{number:02}.png")
    return tmp_path / "photos"


@pytest.fixture
def photos(folder):
    return ImageSet.from_folder(folder)


@pytest.fixture
def seen(monkeypatch):
    """Return a list that gets the number of pictures of each block that a network sees."""
    counts = []
    compute = features_module._computed

    def counting(network, pictures, device):
        counts.append(len(pictures))
        return compute(network, pictures, device)

    monkeypatch.setattr(features_module, "_computed", counting)
    return counts


def fitted(photos, network=None, **settings):
    settings = {"training": QUICK, "device": "cpu"} | settings
    return HashEncoder(16, network=network or tiny(), **settings).fit(photos)


def test_a_picture_is_seen_once(photos, seen):
    first = fitted(photos)
    assert sum(seen) == len(photos) == 90
    again = fitted(photos)
    assert sum(seen) == 90
    codes = first.encode(photos.decode((3, 16, 16)).images)
    np.testing.assert_array_equal(again.encode(photos.decode((3, 16, 16)).images), codes)
    # The codes of files are those of the pictures in them, and are seen no more often.
    encoded = first.encode_images(photos)
    np.testing.assert_array_equal(encoded.codes, codes)
    assert encoded.rows.tolist() == list(range(90))
    assert sum(seen) == 90


def test_a_picture_is_known_by_its_content(photos, folder, seen):
    fitted(photos)
    (folder / "bars" / "00.png").rename(folder / "bars" / "renamed.png")
    shutil.copy(folder / "dots" / "01.png", folder / "dots" / "copied.png")
    fitted(ImageSet.from_folder(folder))
    assert sum(seen) == 90
    Image.fromarray(np.zeros((9, 9, 3), dtype=np.uint8)).save(folder / "flat" / "05.png")
    fitted(ImageSet.from_folder(folder))
    assert sum(seen) == 91


def test_what_a_network_saw_is_of_no_use_to_another(photos, seen):
    fitted(photos)
    fitted(photos, tiny(seed=1))
    assert sum(seen) == 180

    class Squared(TinyNetwork):
        def forward(self, images):
            return super().forward(images) ** 2

    same_weights = Squared().requires_grad_(False)
    assert weights_digest(same_weights) == weights_digest(tiny())
    assert fingerprint(same_weights.eval()) != fingerprint(tiny().eval())
    larger = tiny()
    larger.input_shape = (3, 20, 20)
    assert fingerprint(larger.eval()) != fingerprint(tiny().eval())


def test_interrupted_work_goes_on(photos, seen):
    def interrupt(done, total):
        raise KeyboardInterrupt

    encoder = HashEncoder(16, network=tiny(), training=QUICK, device="cpu")
    with pytest.raises(KeyboardInterrupt):
        encoder.fit(photos, features_progress=interrupt)
    assert seen == [64]
    told = []
    encoder.fit(photos, features_progress=lambda done, total: told.append((done, total)))
    assert sum(seen) == 90
    assert told == [(64, 90), (90, 90)]
    np.testing.assert_array_equal(encoder.encode_images(photos).codes, fitted(photos).encode_images(photos).codes)


def test_a_cache_that_cannot_be_written_changes_nothing(photos, seen, monkeypatch, tmp_path):
    expected = fitted(photos).encode_images(photos).codes
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "file"))
    found = fitted(photos).encode_images(photos).codes
    np.testing.assert_array_equal(found, expected)
    assert sum(seen) == 90 * 3


def test_broken_pictures_are_left_out(photos, folder):
    for name in ("bars/03.png", "flat/29.png"):
        (folder / name).write_bytes(b"no picture")
    with pytest.warns(SkippedImageWarning) as told:
        encoder = fitted(photos)
    assert [str(each.message).split(":")[0] for each in told] == ["left out image 3", "left out image 89"]
    encoded = encoder.encode_images(photos)
    assert sorted(encoded.broken) == [3, 89]
    whole = np.setdiff1d(np.arange(90), [3, 89])
    assert encoded.rows.tolist() == whole.tolist()
    # The labels of the others are still theirs.
    with warnings.catch_warnings():
        warnings.simplefilter("error", SkippedImageWarning)
        alone = fitted(photos.take(whole))
    np.testing.assert_array_equal(alone.encode_images(photos.take(whole)).codes, encoded.codes)


def test_too_few_pictures_say_so(photos, folder):
    some = photos.take([0, 1])
    (folder / "bars" / "00.png").write_bytes(b"no picture")
    with pytest.warns(SkippedImageWarning), pytest.raises(FileError, match="1 images could be read"):
        fitted(some)


def test_pictures_of_a_class_get_near_codes(photos):
    network = tiny()
    before = copy.deepcopy(network.state_dict())
    encoder = fitted(photos, network, training=TrainingOptions(steps=150, batch_size=64))
    assert isinstance(encoder.model, ClassPull)
    bits = np.unpackbits(encoder.encode_images(photos).codes, axis=1)
    distances = (bits[:, None] != bits[None]).sum(2)
    same = photos.labels[:, None] == photos.labels[None]
    assert distances[same].mean() + 2 < distances[~same].mean()
    # The network is the caller's, and stays as it is, batch norms included.
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])
    inner = encoder.model.model.backbone
    assert isinstance(inner, FrozenBackbone)
    for name, value in inner.network.state_dict().items():
        assert torch.equal(value, before[name])
    assert "frozen TinyNetwork" in repr(encoder)


def test_a_network_that_is_not_frozen_is_trained(photos):
    network = TinyNetwork()
    assert not is_frozen(network)
    encoder = fitted(photos, network)
    assert not torch.equal(encoder.model.model.backbone.conv.weight, network.conv.weight)
    assert encoder.input_shape == (3, 16, 16)


def test_pictures_without_labels_learn_from_those_that_look_alike(photos):
    encoder = HashEncoder(network=tiny(), training=QUICK, device="cpu").fit(ImageSet(photos.sources))
    assert isinstance(encoder.loss, str)
    assert (encoder.n_bits, encoder.radius) == (64, None)
    assert isinstance(encoder._learned.loss, ProbingLoss)
    # Another network learns from the same neighbours.
    trained = fitted(ImageSet(photos.sources), TinyNetwork())
    assert trained.radius is None


def test_several_labels_and_names_of_markers(photos):
    labels = np.zeros((90, 4), dtype=np.uint8)
    labels[np.arange(90), photos.labels] = 1
    labels[::2, 3] = 1
    several = ImageSet(photos.sources, labels)
    encoder = HashEncoder(16, network=tiny(), training=QUICK, device="cpu")
    assert encoder.fit(several, markers=np.arange(40)).radius == 2


def test_an_export_takes_pictures_and_is_small(photos, tmp_path):
    encoder = fitted(photos)
    path = encoder.export_onnx(tmp_path / "model")
    pictures = photos.decode(encoder.input_shape).images
    exported = OnnxEncoder(path)
    assert exported.input_shape == (3, 16, 16)
    logits = encoder.logits(pictures)
    np.testing.assert_allclose(exported.logits(pictures), logits, atol=1e-4)
    settled = np.abs(logits) > 1e-3
    differ = np.unpackbits(exported.encode(pictures) ^ encoder.encode(pictures), axis=1, bitorder="little")
    assert not differ[settled].any()

    import onnx

    kinds = {each.data_type for each in onnx.load(path).graph.initializer if len(each.dims) == 4 and each.dims[0] == 96}
    assert onnx.TensorProto.INT8 in kinds
    assert onnx.TensorProto.FLOAT not in {
        each.data_type for each in onnx.load(path).graph.initializer if list(each.dims) == [96, 3, 4, 4]
    }


def naive_int8_rows(weight):
    """Return the same as `int8_rows`, a number at a time."""
    numbers, scales = np.zeros(weight.shape, dtype=np.int8), np.ones(len(weight))
    for row, values in enumerate(weight):
        largest = max(abs(float(value)) for value in values.flat)
        if largest == 0:
            continue
        scale = largest / 127
        for place, value in np.ndenumerate(values):
            number = round(float(value) / scale)
            if abs(number * scale - float(value)) > 1e-5 * largest:
                return None
            numbers[(row, *place)] = number
        scales[row] = scale
    return numbers, scales


@pytest.mark.parametrize("shape", [(5, 3, 2, 2), (4, 9), (3, 1)])
def test_int8_weights_are_found(shape):
    rng = np.random.default_rng(0)
    numbers = rng.integers(-126, 127, shape).astype(np.int8)
    numbers.reshape(len(numbers), -1)[:, 0] = rng.choice([-127, 127], len(numbers))
    numbers[1] = 0
    scales = (rng.random((len(numbers), *[1] * (len(shape) - 1))) * 1e-3).astype(np.float32)
    # As batch norms are folded into convolutions: rounded twice.
    weight = numbers.astype(np.float32) * scales * np.float32(1.7)
    for found, found_scales in (int8_rows(weight), naive_int8_rows(weight)):
        np.testing.assert_array_equal(found, numbers)
        again = found.astype(np.float32) * found_scales.reshape(scales.shape).astype(np.float32)
        np.testing.assert_allclose(again, weight, rtol=1e-6)


def test_other_weights_stay_as_they_are():
    weight = np.random.default_rng(0).normal(size=(6, 20)).astype(np.float32)
    assert int8_rows(weight) is None
    assert naive_int8_rows(weight) is None
    weight[0, 0] = np.inf
    assert int8_rows(weight) is None


def test_a_model_on_a_network_of_ones_own(photos, tmp_path):
    encoder = fitted(photos)
    encoder.save(tmp_path / "model")
    with pytest.raises(InputError, match="built on a TinyNetwork; pass network="):
        HashEncoder.load(tmp_path / "model")
    loaded = HashEncoder.load(tmp_path / "model", network=tiny(seed=1), device="cpu")
    pictures = photos.decode((3, 16, 16)).images
    np.testing.assert_array_equal(loaded.logits(pictures), encoder.logits(pictures))
    # What was exported needs neither the network nor torch.
    encoder.export_onnx(tmp_path / "model")
    assert isinstance(open_encoder(tmp_path / "model"), OnnxEncoder)


def test_a_model_on_the_shipped_network_is_small(photos, tmp_path, monkeypatch):
    few = photos.take(np.arange(0, 90, 9))
    encoder = HashEncoder(16, training=QUICK, device="cpu").fit(few)
    assert encoder.input_shape == (3, 160, 160)
    encoder.save(tmp_path / "model")
    assert (tmp_path / "model" / "model.safetensors").stat().st_size < 3_000_000
    loaded = HashEncoder.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(loaded.encode_images(few).codes, encoder.encode_images(few).codes)
    path = encoder.export_onnx(tmp_path / "model")
    assert path.stat().st_size < 12_000_000
    pictures = few.decode((3, 160, 160)).images
    np.testing.assert_allclose(OnnxEncoder(path).logits(pictures), encoder.logits(pictures), atol=1e-3)
    # A later version may have other weights under this name.
    from hamtarget.learn.files import saving

    shipped = saving.backbone()
    shipped.conv1.bias.data += 1
    monkeypatch.setattr(saving, "backbone", lambda: shipped)
    with pytest.raises(UnsupportedFileError, match="other weights of resnet50_conv4"):
        HashEncoder.load(tmp_path / "model")


def test_networks_say_the_size_of_their_pictures(photos):
    with pytest.raises(InputError, match="does not tell the size of its pictures"):
        HashEncoder(16, network=nn.Conv2d(3, 8, 3).requires_grad_(False)).fit(photos)


def test_training_uses_one_thread_and_gives_the_others_back(photos, monkeypatch):
    before = torch.get_num_threads()
    used = []
    fit = pictures_module.fit_encoder

    def noting(*arguments, **settings):
        used.append(torch.get_num_threads())
        return fit(*arguments, **settings)

    monkeypatch.setattr(pictures_module, "fit_encoder", noting)
    fitted(photos)
    assert (used, torch.get_num_threads()) == ([1], before)
