"""Distances between the codes of pictures and those of their altered copies.

The alterations are those of pictures that are passed on: smaller, compressed, cropped, brighter, captioned.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import form_of
from hamtarget.datasets.pictures.images import decode_images
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import ImageError
from hamtarget.progress import Progress

if TYPE_CHECKING:
    from PIL import Image

# Larger pictures are made smaller first: altering all pixels of a camera takes long.
_LARGEST_SIDE = 800
_PICTURES_AT_A_TIME = 32


def open_to_alter(path: str | Path) -> Image.Image:
    """Open a picture to alter it: upright, in RGB, no side longer than 800 pixels.

    Only for pictures that `decode_images` could read: it refuses files that Pillow had better not open.
    """
    from PIL import Image, ImageOps

    with Image.open(path) as file:
        file.draft("RGB", (_LARGEST_SIDE, _LARGEST_SIDE))
        picture = ImageOps.exif_transpose(file).convert("RGB")
    picture.thumbnail((_LARGEST_SIDE, _LARGEST_SIDE))
    return picture


def half_the_size(picture: Image.Image) -> Image.Image:
    """Return the picture with half its width and height."""
    return picture.resize((max(8, picture.width // 2), max(8, picture.height // 2)))


def compressed(picture: Image.Image) -> Image.Image:
    """Return the picture after a JPEG of quality 30."""
    from PIL import Image

    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=30)
    return Image.open(buffer).convert("RGB")


def cropped(picture: Image.Image) -> Image.Image:
    """Return the picture without 5% of its width and height, half of it on each side."""
    across, down = round(picture.width * 0.025), round(picture.height * 0.025)
    return picture.crop((across, down, picture.width - across, picture.height - down))


def brighter(picture: Image.Image) -> Image.Image:
    """Return the picture with every value 1.3 times as large."""
    from PIL import ImageEnhance

    return ImageEnhance.Brightness(picture).enhance(1.3)


def grey(picture: Image.Image) -> Image.Image:
    """Return the picture without colours."""
    return picture.convert("L").convert("RGB")


def turned(picture: Image.Image) -> Image.Image:
    """Return the picture turned by 2 degrees, in the same frame."""
    from PIL import Image

    return picture.rotate(2, Image.Resampling.BICUBIC)


def captioned(picture: Image.Image) -> Image.Image:
    """Return the picture with a white band over a twelfth of its height, and text in it."""
    from PIL import ImageDraw

    picture = picture.copy()
    height = max(1, picture.height // 12)
    top = picture.height - 2 * height
    draw = ImageDraw.Draw(picture)
    draw.rectangle((0, top, picture.width, top + height), fill="white")
    draw.text((height // 4, top), "a caption over the picture", fill="black", font_size=max(6, height // 2))
    return picture


def blurred(picture: Image.Image) -> Image.Image:
    """Return the picture blurred by a hundredth of its longer side."""
    from PIL import ImageFilter

    return picture.filter(ImageFilter.GaussianBlur(max(picture.size) / 100))


ALTERATIONS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "half the size": half_the_size,
    "JPEG of quality 30": compressed,
    "crop of 5%": cropped,
    "brightness 1.3": brighter,
    "grey": grey,
    "turned by 2 degrees": turned,
    "caption": captioned,
    "blur": blurred,
}
"""What is done to each picture, by name."""


def altered_distances(
    encoder: Encoder,
    paths: Sequence[str | Path],
    *,
    alterations: Mapping[str, Callable[[Image.Image], Image.Image]] = ALTERATIONS,
    progress: Progress | None = None,
) -> dict[str, NDArray[np.int64]]:
    """Return the Hamming distances of pictures to their altered copies, by alteration.

    Pictures that cannot be read are left out.

    Args:
        encoder: makes codes of pictures.
        paths: files of pictures.
        alterations: functions by name, each from a picture in RGB to another one; the usual ones by default.
        progress: called with pictures done and all pictures.

    Raises:
        ImageError: no picture can be read.
        InputError: the encoder takes no pictures.
        MissingExtraError: Pillow is not installed.
    """
    form = form_of(encoder)
    found: dict[str, list[NDArray[np.int64]]] = {name: [] for name in alterations}
    reason = "there are none"
    for start in range(0, len(paths), _PICTURES_AT_A_TIME):
        some = [str(path) for path in paths[start : start + _PICTURES_AT_A_TIME]]
        decoded = decode_images(some, form)
        reason = next(iter(decoded.broken.values()), reason)
        if len(decoded.rows):
            codes = encoder.encode(decoded.images)
            pictures = [open_to_alter(some[row]) for row in decoded.rows]
            for name, alter in alterations.items():
                altered = encoder.encode(decode_images([alter(picture) for picture in pictures], form).images)
                found[name].append(np.bitwise_count(codes ^ altered).sum(axis=1, dtype=np.int64))
        if progress:
            progress(min(start + len(some), len(paths)), len(paths))
    if not any(found.values()):
        raise ImageError(f"none of {len(paths):,} pictures can be altered: {reason}")
    return {name: np.concatenate(parts) for name, parts in found.items()}
