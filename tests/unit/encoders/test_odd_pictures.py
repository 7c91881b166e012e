"""Damaged, huge, animated, rotated or deep pictures: they behave the same under every encoder of pictures."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

import hamtarget
from hamtarget import open_encoder
from hamtarget._picture_form import form_of
from hamtarget.datasets.pictures.images import decode_images, read_image
from hamtarget.errors import ImageError
from hamtarget.serve.pictures import read_upload

CROPPING = str(Path(hamtarget.__file__).parent / "serve" / "demo_encoder")
NAMES = ("phash", "dhash", "pdq", "copies64", "copies256", CROPPING)


def picture(width=160, height=110, seed=0):
    """Return a smooth random picture."""
    small = Image.fromarray(np.random.default_rng(seed).integers(0, 256, (7, 9, 3), np.uint8))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def saved(image, format, **options):
    """Return the bytes of an image's file."""
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def code(name, source):
    """Return the code of one picture."""
    encoder = open_encoder(name)
    return encoder.encode(read_image(source, form_of(encoder))[None])[0].tolist()


def exif(orientation):
    """Return EXIF data with an orientation."""
    found = Image.Exif()
    found[0x0112] = orientation
    return found


@pytest.fixture(params=NAMES, ids=lambda name: Path(name).name)
def name(request):
    """Return the name or the folder of each encoder of pictures."""
    return request.param


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_rotated_photo_has_the_code_of_the_upright_one(name, orientation):
    turned = Image.open(io.BytesIO(saved(picture(), "PNG", exif=exif(orientation))))
    upright = ImageOps.exif_transpose(turned)
    assert code(name, saved(picture(), "PNG", exif=exif(orientation))) == code(name, saved(upright, "PNG"))
    assert code(name, turned) == code(name, upright)
    if orientation > 1:
        assert code(name, upright) != code(name, picture())


def test_damaged_orientations_count_as_none(name):
    plain = saved(picture(), "JPEG")
    # An EXIF block that holds no directory.
    damaged = plain[:2] + b"\xff\xe1\x00\x0cExif\x00\x00zzzz" + plain[2:]
    assert code(name, damaged) == code(name, plain)


def test_sixteen_bits_have_the_code_of_eight(name):
    grey = np.asarray(picture().convert("L"))
    deep = Image.fromarray(grey.astype(np.uint16) * 257)
    wanted = code(name, Image.fromarray(grey))
    assert code(name, saved(deep, "PNG")) == code(name, saved(deep, "TIFF")) == wanted


def test_other_colours_have_the_code_of_their_rgb(name):
    for mode in ("CMYK", "YCbCr", "HSV", "P", "L", "1"):
        other = picture().convert(mode)
        assert code(name, other) == code(name, other.convert("RGB")), mode


def test_an_opaque_picture_has_the_code_of_the_one_without_transparency(name):
    opaque = picture().convert("RGBA")
    for format in ("PNG", "WEBP"):
        assert code(name, saved(opaque, format, lossless=True)) == code(name, picture())


def test_an_animation_has_the_code_of_its_first_frame(name):
    frames = [picture(seed=seed).convert("P") for seed in range(3)]
    animated = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert code(name, animated) == code(name, saved(frames[0], "GIF"))


def test_tiny_and_narrow_pictures_have_codes(name):
    for size in ((1, 1), (2, 3000), (3000, 1), (5, 5)):
        assert len(code(name, picture(*size))) == open_encoder(name).n_bits // 8


def test_damaged_and_huge_files_are_named_and_left_out(name, tmp_path):
    good = saved(picture(), "PNG")
    files = {
        "cut.png": good[: len(good) // 2],
        "cut.jpg": saved(picture(), "JPEG")[:700],
        "cut.gif": saved(picture().convert("P"), "GIF")[:300],
        "empty.png": b"",
        "huge.png": saved(Image.new("1", (10_000, 9_000)), "PNG"),
        "text.jpg": b"no picture",
    }
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    (tmp_path / "whole.png").write_bytes(good)
    paths = sorted(tmp_path.iterdir())
    decoded = decode_images(paths, form_of(open_encoder(name)))
    assert decoded.rows.tolist() == [len(files)]
    assert [paths[row].name for row in decoded.broken] == sorted(files)
    assert all(str(paths[row]) in reason for row, reason in decoded.broken.items())
    with pytest.raises(ImageError):
        code(name, files["huge.png"])


def test_a_service_reads_an_upload_in_the_same_form(name):
    form = form_of(open_encoder(name))
    content = saved(picture(900, 700), "JPEG")
    assert np.array_equal(read_upload(content, form, max_pixels=10**6), read_image(content, form))
    with pytest.raises(ImageError):
        read_upload(content, form, max_pixels=1000)
