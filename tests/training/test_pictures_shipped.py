"""The shipped network learns what a small network from nothing does not."""

import numpy as np
import pytest
from PIL import Image, ImageDraw

from hamtarget.datasets import ImageSet
from hamtarget.evaluation.metrics import by_label, mean_average_precision
from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions

KINDS = ("circles", "squares", "triangles", "stripes", "checks", "crosses")
LEARNED, ASKED = 16, 5


def draw(kind, rng):
    """Return a picture of a kind: its colours, number, places and sizes say nothing about it."""
    colours = [tuple(int(value) for value in rng.integers(0, 256, 3)) for _ in range(6)]
    picture = Image.new("RGB", (160, 160), colours[0])
    pen = ImageDraw.Draw(picture)
    if kind in ("stripes", "checks"):
        step = int(rng.integers(8, 24))
        for left in range(0, 240, 2 * step):
            pen.rectangle((left, 0, left + step, 240), fill=colours[1])
            if kind == "checks":
                pen.rectangle((0, left, 240, left + step // 2), fill=colours[1])
        return picture.rotate(float(rng.uniform(-20, 20)), fillcolor=colours[0])
    for number in range(int(rng.integers(2, 6))):
        x, y = (int(value) for value in rng.integers(25, 135, 2))
        size, colour = int(rng.integers(12, 28)), colours[1 + number]
        box = (x - size, y - size, x + size, y + size)
        if kind == "circles":
            pen.ellipse(box, fill=colour)
        elif kind == "squares":
            pen.rectangle(box, fill=colour)
        elif kind == "triangles":
            pen.polygon([(x, y - size), (x - size, y + size), (x + size, y + size)], fill=colour)
        else:
            pen.rectangle((x - size, y - 4, x + size, y + 4), fill=colour)
            pen.rectangle((x - 4, y - size, x + 4, y + size), fill=colour)
    return picture


def picture_set(folder, per_kind, seed):
    """Return a set of so many pictures of each kind, in files."""
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
        for number in range(per_kind):
            draw(kind, rng).save(folder / kind / f"{number:02}.png")
    return ImageSet.from_folder(folder)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")
def test_the_shipped_network_finds_kinds_that_a_small_one_does_not(tmp_path, monkeypatch):
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "cache"))
    learned, asked = picture_set(tmp_path / "learned", LEARNED, 0), picture_set(tmp_path / "asked", ASKED, 1)
    relevant = by_label(asked.labels, learned.labels)
    found = []
    for network, steps in (("auto", 200), (NetworkOptions(width=8), 60)):
        training = TrainingOptions(steps=steps, batch_size=64, stop_on_collapse=False)
        encoder = HashEncoder(32, network=network, training=training, device="cpu").fit(learned)
        codes, queries = encoder.encode_images(learned).codes, encoder.encode_images(asked).codes
        found.append(mean_average_precision(queries, codes, relevant, n_bits=32, k=1000))
    pretrained, small = found
    assert pretrained > 0.85
    assert pretrained > small + 0.2
