"""The form of a picture: how it becomes an encoder's input, in every room that reads pictures."""

import pickle

import numpy as np
import pytest
from PIL import Image

from hamtarget import Store, open_encoder
from hamtarget._picture_form import PictureForm, form_of
from hamtarget.datasets import ImageSet, read_images
from hamtarget.encoders import LSH
from hamtarget.errors import InputError


def gradient(width, height):
    """Return a picture whose red grows from left to right, and green from top to bottom."""
    red = np.linspace(0, 255, width).astype(np.uint8)
    green = np.linspace(0, 255, height).astype(np.uint8)
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, :, 0], pixels[:, :, 1] = red[None, :], green[:, None]
    return Image.fromarray(pixels)


def test_crop_is_what_a_shape_means():
    picture = gradient(90, 40)
    assert np.array_equal(read_images([picture], (3, 16, 16)), read_images([picture], PictureForm((3, 16, 16))))


def test_squeeze_keeps_the_whole_picture():
    picture = gradient(90, 40)
    whole = read_images([picture], PictureForm((3, 16, 16), "squeeze", "lanczos"))[0]
    naive = np.asarray(picture.resize((16, 16), Image.Resampling.LANCZOS)).transpose(2, 0, 1)
    assert np.array_equal(whole, naive)
    cropped = read_images([picture], (3, 16, 16))[0]
    # Red goes from end to end of the whole picture only.
    assert int(whole[0, 0, -1]) - int(whole[0, 0, 0]) > 230 > int(cropped[0, 0, -1]) - int(cropped[0, 0, 0])


def test_forms_travel_to_worker_processes(tmp_path):
    form = PictureForm((16, 24), "squeeze", "lanczos")
    assert pickle.loads(pickle.dumps(form)) == form  # noqa: S301
    paths = []
    for row in range(70):
        paths.append(tmp_path / f"{row}.png")
        gradient(30 + row, 40).save(paths[-1])
    here, there = ImageSet(paths).decode(form), ImageSet(paths).decode(form, workers=2)
    assert here.images.shape == (70, 16, 24)
    assert np.array_equal(here.images, there.images)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((3,),), "shape is"),
        ((("a", 2),), "shape is"),
        (((2, 8, 8),), "shape is"),
        (((8, 8), "stretch"), "fit is 'stretch'; expected one of crop"),
        (((8, 8), "crop", "nearest"), "resampling is 'nearest'"),
        (((8, 8), "pdqhash"), "64, 64"),
        (((3, 8, 8), "imagehash"), "grey"),
    ],
)
def test_forms_that_there_are_not(arguments, message):
    with pytest.raises(InputError, match=message):
        PictureForm(*arguments)


def test_the_form_of_encoders():
    assert form_of(open_encoder("dhash")) == PictureForm((8, 9), "imagehash", "lanczos")
    vectors = LSH(8).fit(np.random.default_rng(0).normal(size=(9, 5)))
    with pytest.raises(InputError, match="takes vectors of 5 numbers"):
        form_of(vectors)
    pictures = LSH(8).fit(np.random.default_rng(0).normal(size=(9, 3, 4, 4)))
    assert form_of(pictures) == PictureForm((3, 4, 4), "crop", "bicubic")


@pytest.mark.parametrize("name", ["phash", "dhash"])
def test_a_store_reads_pictures_by_the_form_of_its_encoder(tmp_path, name):
    encoder = open_encoder(name)
    for row in range(3):
        gradient(60 + 10 * row, 40).rotate(30 * row).save(tmp_path / f"{row}.png")
    paths = [tmp_path / f"{row}.png" for row in range(3)]
    codes = encoder.encode(read_images(paths, encoder.picture_form))
    with Store.create(tmp_path / "store", encoder=encoder) as store:
        store.put_rows(["0", "1", "2"], inputs=paths)
    with Store.open(tmp_path / "store") as store:
        assert [store.search(str(path), radius=0)[0].id for path in paths] == ["0", "1", "2"]
        assert [store.search(code=code, radius=0)[0].id for code in codes] == ["0", "1", "2"]
