"""Formats of cameras and phones are read where a codec is installed, and named where there is none."""

import importlib.util
import io

import numpy as np
import pytest
from PIL import Image, features

from hamtarget.copies import find_copies
from hamtarget.datasets.pictures import picture_formats
from hamtarget.datasets.pictures.images import read_image
from hamtarget.datasets.pictures.picture_formats import codecs, picture_size
from hamtarget.errors import ImageError

HEIC = b"\0\0\0\x18ftypheic\0\0\0\0mif1heic"
AVIF = b"\0\0\0\x1cftypavif\0\0\0\0avifmif1"
JP2 = b"\0\0\0\x0cjP  \r\n\x87\n"
NEEDED = {"JPEG2000": "jpg_2000", "AVIF": "avif", "HEIF": None}


def encoded(format):
    """Return the bytes of a picture of a ramp, in a format."""
    if format == "HEIF":
        pillow_heif = pytest.importorskip("pillow_heif")
        pillow_heif.register_heif_opener()
    elif NEEDED.get(format) and NEEDED[format] not in features.get_supported():
        pytest.skip(f"this Pillow has no {format}")
    ramp = np.broadcast_to(np.linspace(0, 255, 96)[None, :, None], (64, 96, 3)).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(ramp).save(file, format)
    return file.getvalue()


@pytest.mark.parametrize("format", ["JPEG", "JPEG2000", "AVIF", "HEIF"])
def test_a_ramp_is_a_ramp(format):
    content = encoded(format)
    read = read_image(content, (16, 24)).astype(int)
    wanted = np.linspace(0, 255, 24)
    assert np.abs(read - wanted).max() < 16
    assert picture_size(content) == (96, 64)
    with pytest.raises(ImageError):
        read_image(content[: len(content) // 3], (16, 24))


@pytest.mark.parametrize(
    ("head", "format", "remedy"),
    [
        (HEIC, "HEIC", "pip install 'hamtarget[heic]'"),
        (AVIF, "AVIF", "pip install 'Pillow>=11.3'"),
        (JP2, "JPEG 2000", "install Pillow from a wheel"),
    ],
)
def test_what_is_missing_is_named(head, format, remedy, monkeypatch, tmp_path):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pillow_heif" else find(name))
    monkeypatch.setattr(features, "get_supported", list)
    monkeypatch.setattr(picture_formats, "FORMATS", ("JPEG", "PNG"))
    assert not any(codec.is_usable for codec in codecs())
    with pytest.raises(ImageError) as error:
        read_image(head + bytes(100), (8, 8))
    assert f"{format} cannot be read here; {remedy}" in str(error.value)
    # In a folder it is one picture that is left out, with its name and the reason.
    suffix = {"HEIC": "heic", "AVIF": "avif", "JPEG 2000": "jp2"}[format]
    (tmp_path / f"phone.{suffix}").write_bytes(head + bytes(100))
    Image.new("L", (20, 20)).save(tmp_path / "other.png")
    found = find_copies(tmp_path, encoder="dhash")
    assert list(found.broken) == [str(tmp_path / f"phone.{suffix}")]
    assert remedy in found.broken[str(tmp_path / f"phone.{suffix}")]


def test_a_damaged_file_of_a_known_format_is_no_missing_codec():
    pytest.importorskip("pillow_heif")
    for head in (HEIC, AVIF, JP2):
        with pytest.raises(ImageError) as error:
            read_image(head + bytes(100), (8, 8))
        assert "pip install" not in str(error.value)


def test_other_programs_are_not_started():
    with pytest.raises(ImageError, match="not an image of a known format"):
        read_image(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", (8, 8))
