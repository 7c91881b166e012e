"""Alterations of photos that people make before they post them again: a fixed list, and views drawn at random."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageOps

Picture = Image.Image


def cropped(photo: Picture, share: float, *, across: float = 0.5, down: float = 0.5) -> Picture:
    """Cut off a share of width and height; half of it on each side, or as `across` and `down` say."""
    cut_x, cut_y = photo.width * share, photo.height * share
    box = (cut_x * across, cut_y * down, photo.width - cut_x * (1 - across), photo.height - cut_y * (1 - down))
    return photo.crop(tuple(map(int, box)))  # type: ignore[arg-type]


def jpeg(photo: Picture, quality: int) -> Picture:
    """Return the photo after a JPEG of this quality, 1 to 95."""
    buffer = io.BytesIO()
    photo.save(buffer, "JPEG", quality=quality)
    return Image.open(io.BytesIO(buffer.getvalue())).convert("RGB")


def text_box(photo: Picture) -> Picture:
    """Put a white box with text over a sixth of the height."""
    photo = photo.copy()
    top, height = int(photo.height * 0.62), photo.height // 6
    draw = ImageDraw.Draw(photo)
    draw.rectangle((0, top, photo.width, top + height), fill="white")
    font = ImageFont.load_default(size=max(8, int(height * 0.55)))
    draw.text((photo.width * 0.03, top + height * 0.15), "WHEN YOU SEE IT AND CANNOT UNSEE IT", fill="black", font=font)
    return photo


def captioned(photo: Picture) -> Picture:
    """Put a white band above the photo."""
    band = int(photo.height * 0.14)
    result = Image.new("RGB", (photo.width, photo.height + band), "white")
    result.paste(photo, (0, band))
    return result


def brighter(photo: Picture, factor: float) -> Picture:
    """Return the photo with every value multiplied by a factor."""
    return ImageEnhance.Brightness(photo).enhance(factor)


def contrasted(photo: Picture, factor: float) -> Picture:
    """Return the photo with the distance of every value from the mean multiplied by a factor."""
    return ImageEnhance.Contrast(photo).enhance(factor)


ALTERATIONS: dict[str, Callable[[Picture], Picture]] = {
    "a quarter of the size": lambda photo: photo.resize((max(8, photo.width // 4), max(8, photo.height // 4))),
    "JPEG of quality 20": lambda photo: jpeg(photo, 20),
    "crop of 10%": lambda photo: cropped(photo, 0.1),
    "crop of 20%": lambda photo: cropped(photo, 0.2),
    "crop of 40%": lambda photo: cropped(photo, 0.4),
    "crop of 15% at a corner": lambda photo: cropped(photo, 0.15, across=1, down=1),
    "brightness 1.4": lambda photo: brighter(photo, 1.4),
    "brightness .6": lambda photo: brighter(photo, 0.6),
    "contrast 1.5": lambda photo: contrasted(photo, 1.5),
    "contrast .6": lambda photo: contrasted(photo, 0.6),
    "grey": lambda photo: ImageOps.grayscale(photo).convert("RGB"),
    "rotation of 5 degrees": lambda photo: photo.rotate(5, Image.Resampling.BICUBIC),
    "rotation of 10 degrees": lambda photo: photo.rotate(10, Image.Resampling.BICUBIC),
    "text box over a sixth": text_box,
    "border of 8%": lambda photo: ImageOps.expand(photo, int(min(photo.size) * 0.08), "black"),
    "mirrored": ImageOps.mirror,
    "blur": lambda photo: photo.filter(ImageFilter.GaussianBlur(max(photo.size) / 120)),
    "a quarter wider": lambda photo: photo.resize((photo.width * 5 // 4, photo.height)),
    "caption above": captioned,
    "crop of 12%, JPEG 30, brighter": lambda photo: brighter(jpeg(cropped(photo, 0.12), 30), 1.2),
    "mirrored, crop of 8%, contrast": lambda photo: contrasted(cropped(ImageOps.mirror(photo), 0.08), 1.3),
}


def _resized(photo: Picture, across: float, down: float) -> Picture:
    return photo.resize((max(8, int(photo.width * across)), max(8, int(photo.height * down))))


def _sized(photo: Picture, random: np.random.Generator) -> Picture:
    share = random.uniform(0.25, 1.5)
    return _resized(photo, share, share)


def _cut(photo: Picture, random: np.random.Generator) -> Picture:
    return cropped(photo, random.uniform(0.01, 0.25), across=random.random(), down=random.random())


def _framed(photo: Picture, random: np.random.Generator) -> Picture:
    width = max(1, int(min(photo.size) * random.uniform(0.01, 0.1)))
    return ImageOps.expand(photo, width, ("black", "white")[random.integers(2)])


# Each with a strength of its own; light ones are as frequent as strong ones.
_DRAWN: tuple[Callable[[Picture, np.random.Generator], Picture], ...] = (
    _sized,
    _cut,
    _framed,
    lambda photo, random: jpeg(photo, int(random.integers(15, 90))),
    lambda photo, random: brighter(photo, random.uniform(0.5, 1.6)),
    lambda photo, random: contrasted(photo, random.uniform(0.5, 1.6)),
    lambda photo, random: photo.rotate(random.uniform(-8, 8), Image.Resampling.BICUBIC),
    lambda photo, random: photo.filter(ImageFilter.GaussianBlur(max(photo.size) * random.uniform(0.002, 0.015))),
    lambda photo, random: _resized(photo, random.uniform(0.8, 1.25), 1.0),
    lambda photo, random: ImageOps.grayscale(photo).convert("RGB"),
    lambda photo, random: text_box(photo),
    lambda photo, random: captioned(photo),
    lambda photo, random: ImageOps.mirror(photo),
)
_SHARES_OF_COUNTS = (0.5, 0.35, 0.15)


def drawn_view(photo: Picture, random: np.random.Generator) -> Picture:
    """Return the photo altered in one to three ways, drawn with their strengths."""
    count = 1 + random.choice(len(_SHARES_OF_COUNTS), p=_SHARES_OF_COUNTS)
    for number in random.choice(len(_DRAWN), count, replace=False):
        photo = _DRAWN[number](photo, random)
    return photo
