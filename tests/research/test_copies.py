"""The learned perceptual hash: packed photos, alterations, training, and the measure of recall."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from PIL import Image, ImageDraw  # noqa: E402

from hamtarget.encoders import open_encoder  # noqa: E402
from research.benchmarks.copies_recall import HASHES, codes_of, measure, radius_at  # noqa: E402
from research.datasets.altered_photos import ALTERATIONS  # noqa: E402
from research.shipping.copies.alterations import Strength, alter  # noqa: E402
from research.shipping.copies.network import CopyNetwork  # noqa: E402
from research.shipping.copies.photos import pack_photos, photos_in, read_packs  # noqa: E402
from research.shipping.copies.training import CopySettings, train  # noqa: E402


def drawing(seed, size=(120, 90)):
    """Return a picture of a few random ellipses."""
    rng = np.random.default_rng(seed)
    picture = Image.new("RGB", size, tuple(rng.integers(0, 256, 3).tolist()))
    draw = ImageDraw.Draw(picture)
    for _ in range(6):
        x, y = rng.integers(0, size[0]), rng.integers(0, size[1])
        w, h = rng.integers(10, 60, 2)
        draw.ellipse((x - w, y - h, x + w, y + h), fill=tuple(rng.integers(0, 256, 3).tolist()))
    return picture


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for seed in range(12):
        drawing(seed).save(folder / f"{seed:02}.png")
    (folder / "broken.png").write_bytes(b"no picture")
    return folder


def test_packed_photos_come_back(photos, tmp_path):
    assert pack_photos(list(photos_in([photos])), tmp_path / "photos.npz") == 12
    pictures, aspects = read_packs([tmp_path / "photos.npz"], 64)
    assert pictures.shape == (12, 3, 64, 64)
    assert pictures.dtype == torch.uint8
    assert aspects.tolist() == pytest.approx([120 / 90] * 12)
    small = np.asarray(drawing(3).resize((64, 64))).astype(int)
    assert np.abs(pictures[3].permute(1, 2, 0).numpy() - small).mean() < 8


def test_views_are_pictures_and_light_ones_are_the_same_picture():
    torch.manual_seed(0)
    pictures = torch.from_numpy(np.stack([np.asarray(drawing(k, (112, 112))) for k in range(16)]))
    pictures = pictures.permute(0, 3, 1, 2).float() / 255
    aspects = torch.ones(16)
    views = alter(pictures, aspects, 64, Strength())
    assert views.shape == (16, 3, 64, 64)
    assert 0 <= float(views.min()) <= float(views.max()) <= 1
    plain = torch.nn.functional.interpolate(pictures, (64, 64), mode="area")
    light = alter(pictures, aspects, 64, Strength(light=1.0))
    strong = alter(pictures, aspects, 64, Strength(light=0.0, share=0.9))
    assert float((light - plain).abs().mean()) < 0.02
    assert float((strong - plain).abs().mean()) > 0.1


def test_training_is_repeatable_and_moves_the_weights(photos, tmp_path):
    pack_photos(list(photos_in([photos])), tmp_path / "photos.npz")
    pictures, aspects = read_packs([tmp_path / "photos.npz"], 112)
    settings = CopySettings(n_bits=16, width=4, radii=(3,), weight=30, first_weight=3, batch=12, views=2, steps=3)
    torch.manual_seed(settings.seed)
    untrained = CopyNetwork(16, width=4).state_dict()
    first, second = (train(pictures, aspects, settings)[0].state_dict() for _ in range(2))
    for name, value in first.items():
        assert torch.isfinite(value.float()).all(), name
        assert torch.equal(value, second[name]), name
    assert not torch.equal(first["head.weight"], untrained["head.weight"])


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.1, 1.0])
def test_the_radius_is_the_largest_that_keeps_the_rate(rate):
    distances = np.random.default_rng(0).integers(3, 30, 1000)
    radius = radius_at(distances, rate)
    assert (distances <= radius).mean() <= rate
    # Beyond the largest distance nothing more can be found.
    assert radius >= distances.max() or (distances <= radius + 1).mean() > rate


@pytest.mark.parametrize("name", HASHES)
def test_every_alteration_makes_a_picture_that_can_be_hashed(name):
    encoder = open_encoder(name)
    views = [alteration(drawing(0)) for alteration in ALTERATIONS.values()]
    codes = codes_of(views, encoder)
    assert codes.shape == (len(ALTERATIONS), encoder.n_bits // 8)
    assert len(np.unique(codes, axis=0)) > 1


def test_a_measure_counts_the_copies_that_a_radius_finds(tmp_path):
    for seed in range(12):
        drawing(seed).save(tmp_path / f"{seed:02}.png")
    encoders = {name: open_encoder(name) for name in ("dhash", "pdq")}
    paths = sorted(tmp_path.iterdir())
    found = measure(paths, 5, encoders, seed=0)
    assert (found["photos"], found["queries"], found["pairs"]) == (12, 5, 66)
    codes = codes_of([Image.open(path) for path in paths], encoders["dhash"])
    naive = [np.bitwise_count(a ^ b).sum() for k, a in enumerate(codes) for b in codes[:k]]
    figures = found["hashes"]["dhash"]
    assert figures["share_within"] == pytest.approx([np.mean(np.array(naive) <= radius) for radius in range(65)])
    # No pair in a million may be false: the radius is the one below the nearest two.
    assert figures["at_rates"]["1e-06"]["radius"] == min(naive) - 1
    assert figures["recall_within"][64] == 1
