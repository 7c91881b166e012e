"""Whole batches on the device equal a plain loop over images and pixels, and chance stays within its bounds."""

import numpy as np
import pytest
import torch
from PIL import Image

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.networks.augmentation import CropFlipColor, Draw, Resize, crop, recolor

UNCHANGED = {"scale": (1.0, 1.0), "ratio": (1.0, 1.0), "flip": 0.0, "brightness": 0, "contrast": 0, "saturation": 0}


def photos(rows=4, height=16, width=16, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, 256, (rows, 3, height, width), dtype=np.uint8))


def by_pillow(image, size, box=None):
    """(3, height, width) resized by Pillow, channel by channel in floats."""
    height, width = size
    planes = [Image.fromarray(plane.numpy().astype(np.float32)) for plane in image]
    return np.stack([np.asarray(p.resize((width, height), Image.Resampling.BILINEAR, box=box)) for p in planes])


@pytest.mark.parametrize("size", [(32, 32), (24, 40), (16, 16), (8, 12)])
def test_resize_equals_pillow(size):
    images = photos()
    found = Resize(size)(images)
    assert found.dtype == torch.float32
    for image, result in zip(images, found, strict=True):
        np.testing.assert_allclose(result.numpy(), by_pillow(image, size), atol=0.01)


def test_resize_leaves_alone_what_has_the_size():
    images = photos().float()
    assert Resize(16)(images) is images


def naive_recolor(image, brightness, contrast, saturation):
    """One after the other, pixel by pixel."""

    def grey(pixel):
        return 0.299 * pixel[0] + 0.587 * pixel[1] + 0.114 * pixel[2]

    pixels = [brightness * pixel for pixel in image.reshape(3, -1).T.astype(np.float64)]
    mean = np.mean([grey(pixel) for pixel in pixels])
    pixels = [contrast * pixel + (1 - contrast) * mean for pixel in pixels]
    pixels = [saturation * pixel + (1 - saturation) * grey(pixel) for pixel in pixels]
    return np.clip(pixels, 0, 255).T.reshape(image.shape)


def test_a_batch_equals_a_loop_over_images():
    torch.manual_seed(0)
    images = photos(rows=12, height=16, width=20)
    change = CropFlipColor((24, 32), scale=(0.3, 1.0), brightness=0.4, contrast=0.4, saturation=0.4)
    draw = change.draw(12, 20 / 16, device=torch.device("cpu"))
    assert set(draw.flipped.tolist()) == {0.0, 1.0}
    recolored = recolor(images.float(), draw)
    found = crop(recolored, draw, change.size)
    for row, image in enumerate(images):
        plain = naive_recolor(
            image.numpy(), float(draw.brightness[row]), float(draw.contrast[row]), float(draw.saturation[row])
        )
        np.testing.assert_allclose(recolored[row].numpy(), plain, atol=1e-2)
        left, top = float(draw.left[row]) * 20, float(draw.top[row]) * 16
        box = (left, top, left + float(draw.width[row]) * 20, top + float(draw.height[row]) * 16)
        expected = by_pillow(torch.from_numpy(plain), (24, 32), box=tuple(np.clip(box, 0, (20, 16, 20, 16))))
        if draw.flipped[row]:
            expected = expected[:, :, ::-1]
        np.testing.assert_allclose(found[row].numpy(), expected, atol=0.05)


def test_forward_is_draw_then_color_then_crop():
    images = photos(rows=6, height=16, width=20)
    change = CropFlipColor(24)
    torch.manual_seed(3)
    found = change(images)
    torch.manual_seed(3)
    draw = change.draw(6, 20 / 16, device=torch.device("cpu"))
    torch.testing.assert_close(found, crop(recolor(images.float(), draw), draw, (24, 24)))
    assert found.shape == (6, 3, 24, 24)
    assert 0 <= float(found.min()) <= float(found.max()) <= 255
    assert not torch.equal(change(images), found)


def test_without_chance_it_is_a_resize():
    images = photos()
    torch.testing.assert_close(CropFlipColor(40, **UNCHANGED)(images), Resize(40)(images), atol=1e-3, rtol=0)


def test_always_flipped_is_mirrored():
    images = photos()
    found = CropFlipColor(16, **{**UNCHANGED, "flip": 1.0})(images)
    torch.testing.assert_close(found, images.flip(3).float(), atol=1e-2, rtol=0)


@pytest.mark.parametrize("image_ratio", [1.0, 1.6])
def test_crops_stay_within_their_bounds_and_fill_them(image_ratio):
    torch.manual_seed(0)
    change = CropFlipColor(8, scale=(0.25, 0.36), ratio=(0.8, 1.25), flip=0.3, brightness=0.1, contrast=0, saturation=1)
    draw = change.draw(20_000, image_ratio, device=torch.device("cpu"))
    area = draw.height * draw.width
    shape = draw.width / draw.height * image_ratio
    for values, low, high in [
        (area, 0.25, 0.36),
        (shape, 0.8, 1.25),
        (draw.brightness, 0.9, 1.1),
        (draw.contrast, 1.0, 1.0),
        (draw.saturation, 0.0, 2.0),
        (draw.left / (1 - draw.width), 0.0, 1.0),
        (draw.top / (1 - draw.height), 0.0, 1.0),
    ]:
        assert float(values.min()) == pytest.approx(low, abs=0.01)
        assert float(values.max()) == pytest.approx(high, abs=0.01)
    assert float(shape.log().mean()) == pytest.approx(0, abs=0.01)
    assert float(draw.flipped.mean()) == pytest.approx(0.3, abs=0.02)


def test_a_side_that_sticks_out_is_cut():
    draw = CropFlipColor(8, scale=(1.0, 1.0), ratio=(2.0, 2.0)).draw(10, 1.0, device=torch.device("cpu"))
    assert draw.width.tolist() == [1.0] * 10
    np.testing.assert_allclose(draw.height, 0.5**0.5, rtol=1e-6)
    assert draw.left.tolist() == [0.0] * 10


def test_white_and_black_stay_within_their_range():
    ones = torch.ones(2)
    draw = Draw(ones, ones, 0 * ones, 0 * ones, 0 * ones, 1.5 * ones, 1.5 * ones, 1.5 * ones)
    images = torch.zeros(2, 3, 4, 4)
    images[:, :, :2] = 255
    found = recolor(images, draw)
    assert (float(found.min()), float(found.max())) == (0, 255)


@pytest.mark.parametrize(
    "options",
    [
        {"size": 0},
        {"size": (8, -1)},
        {"scale": (0.0, 1.0)},
        {"scale": (0.5, 1.5)},
        {"scale": (0.9, 0.5)},
        {"ratio": (0.0, 1.0)},
        {"ratio": (2.0, 1.0)},
        {"flip": 1.5},
        {"contrast": -0.1},
    ],
)
def test_settings_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError, match=f"{next(iter(options))} is"):
        CropFlipColor(**{"size": 8, **options})


def test_other_shapes_are_refused():
    with pytest.raises(ShapeError, match="expected"):
        CropFlipColor(8)(torch.zeros(2, 1, 8, 8))
    with pytest.raises(ShapeError, match="expected"):
        Resize(8)(torch.zeros(2, 8, 8))
