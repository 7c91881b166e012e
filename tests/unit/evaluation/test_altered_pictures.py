"""Distances of altered pictures, against one picture at a time."""

from types import SimpleNamespace

import numpy as np
import pytest

from hamtarget import open_encoder
from hamtarget.datasets.pictures.images import read_image
from hamtarget.errors import ImageError, InputError
from hamtarget.evaluation.altered_pictures import ALTERATIONS, altered_distances, open_to_alter

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def paths(tmp_path):
    """Files of pictures in several modes and sizes, one of them broken."""
    rng = np.random.default_rng(0)
    small = rng.integers(0, 256, (40, 6, 8, 3), dtype=np.uint8)
    for number, picture in enumerate(small):
        size = (300, 200) if number % 2 else (90, 1200)
        image = Image.fromarray(picture).resize(size, Image.Resampling.BICUBIC)
        image.convert(("RGB", "L", "RGBA", "P")[number % 4]).save(tmp_path / f"{number}.png")
    (tmp_path / "7.png").write_bytes(b"broken")
    return [tmp_path / f"{number}.png" for number in range(40)]


def test_distances_are_those_of_one_picture_at_a_time(paths):
    encoder = open_encoder("dhash")
    seen = []
    found = altered_distances(encoder, paths, progress=lambda *counts: seen.append(counts))
    assert list(found) == list(ALTERATIONS)
    assert seen == [(32, 40), (40, 40)]
    whole = [path for path in paths if path.name != "7.png"]
    for name, alter in ALTERATIONS.items():
        naive = []
        for path in whole:
            original = encoder.encode(read_image(path, encoder.picture_form)[None])
            altered = encoder.encode(read_image(alter(open_to_alter(path)), encoder.picture_form)[None])
            naive.append(int(np.bitwise_count(original ^ altered).sum()))
        assert found[name].tolist() == naive
    assert found["half the size"].mean() < 4


def test_alterations_alter(paths):
    picture = open_to_alter(paths[0])
    assert max(picture.size) == 800
    before = picture.tobytes()
    for name, alter in ALTERATIONS.items():
        altered = alter(picture)
        assert altered.mode == "RGB"
        assert altered.tobytes() != before or name == "grey"
        assert picture.tobytes() == before


@pytest.mark.parametrize("name", ALTERATIONS)
def test_a_picture_of_one_pixel(name):
    assert min(ALTERATIONS[name](Image.new("RGB", (1, 1), "red")).size) >= 1


def test_no_picture(paths):
    with pytest.raises(ImageError, match="none of 1 pictures"):
        altered_distances(open_encoder("dhash"), [paths[7]])
    with pytest.raises(ImageError, match="there are none"):
        altered_distances(open_encoder("dhash"), [])


def test_an_encoder_of_vectors(paths):
    with pytest.raises(InputError, match="no images"):
        altered_distances(SimpleNamespace(input_shape=(4,)), paths)
