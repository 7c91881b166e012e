"""Codes of photos and of altered views of them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image")

from hamtarget._picture_form import form_of  # noqa: E402
from hamtarget.datasets import read_images  # noqa: E402
from hamtarget.encoders import open_encoder  # noqa: E402
from hamtarget.errors import FileError  # noqa: E402
from research.datasets.picture_codes import HASHES, photos_of, picture_codes  # noqa: E402


def _photos(n_photos: int) -> list[bytes]:
    random = np.random.default_rng(3)
    files = []
    for _ in range(n_photos):
        buffer = io.BytesIO()
        Image.fromarray(random.integers(0, 256, (6, 7, 3), np.uint8)).resize((64, 60)).save(buffer, "PNG")
        files.append(buffer.getvalue())
    return files


def test_first_views_are_the_photos_and_all_rows_are_repeatable() -> None:
    photos = _photos(9)
    codes, numbers = picture_codes(photos, n_views=3, seed=1, workers=0)
    assert numbers.tolist() == [photo for photo in range(9) for _ in range(3)]
    for name in HASHES:
        encoder = open_encoder(name)
        assert np.array_equal(codes[name][::3], encoder.encode(read_images(photos, form_of(encoder))))
    # A photo's views depend on the seed and its number alone, not on how many photos there are.
    again, _ = picture_codes(photos[:5], n_views=3, seed=1, workers=0)
    other, _ = picture_codes(photos[:5], n_views=3, seed=2, workers=0)
    assert np.array_equal(again["pdq"], codes["pdq"][:15])
    assert not np.array_equal(other["pdq"], again["pdq"])


def test_most_views_are_nearest_to_their_own_photo() -> None:
    codes, numbers = picture_codes(_photos(8), n_views=6, seed=4, workers=0)
    words = codes["pdq"]
    distances = np.bitwise_count(words[:, None] ^ words[None, ::6]).sum(axis=2)
    assert (distances.argmin(axis=1) == numbers).mean() > 0.5


def test_a_folder_without_photos_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="holds no photo"):
        photos_of([tmp_path])
