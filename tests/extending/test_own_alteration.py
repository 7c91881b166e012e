"""A transform of pictures of your own: a function, in the evaluation of altered copies."""

import numpy as np
import pytest

from hamtarget import open_encoder
from hamtarget.datasets.pictures.images import read_image
from hamtarget.evaluation.altered_pictures import ALTERATIONS, altered_distances, open_to_alter

Image = pytest.importorskip("PIL.Image")


def mirrored(picture):
    """Return the picture as a mirror shows it."""
    return picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)


@pytest.fixture
def paths(tmp_path):
    rng = np.random.default_rng(0)
    for number in range(5):
        light = rng.integers(0, 256, (6, 8, 3), dtype=np.uint8)
        Image.fromarray(light).resize((120, 90), Image.Resampling.BICUBIC).save(tmp_path / f"{number}.png")
    return sorted(tmp_path.glob("*.png"))


def test_distances_to_its_copies(paths):
    encoder = open_encoder("dhash")
    found = altered_distances(encoder, paths, alterations=ALTERATIONS | {"mirrored": mirrored})
    assert list(found) == [*ALTERATIONS, "mirrored"]
    naive = []
    for path in paths:
        original = encoder.encode(read_image(path, encoder.picture_form)[None])
        copy = encoder.encode(read_image(mirrored(open_to_alter(path)), encoder.picture_form)[None])
        naive.append(int(np.bitwise_count(original ^ copy).sum()))
    assert found["mirrored"].tolist() == naive
    # A difference hash does not find mirrored pictures.
    assert min(naive) > 10


def test_it_can_be_the_only_one(paths):
    found = altered_distances(open_encoder("phash"), paths, alterations={"mirrored": mirrored})
    assert list(found) == ["mirrored"]
    assert len(found["mirrored"]) == len(paths)
