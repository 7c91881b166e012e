"""Width and height of a picture, from the head of its file."""

from __future__ import annotations

import contextlib
import io

from hamtarget.datasets.pictures.picture_formats import open_picture

_ORIENTATION = 0x0112
# Orientations of EXIF that turn a picture by a quarter.
_TURNED = (5, 6, 7, 8)


def picture_size(content: bytes) -> tuple[int, int]:
    """Return the width and height, upright, of a picture that has been decoded before.

    Args:
        content: the bytes of its file.
    """
    with open_picture(io.BytesIO(content)) as image:
        width, height = image.size
        # A damaged orientation is none, as where pictures are read.
        with contextlib.suppress(Exception):
            if image.getexif().get(_ORIENTATION) in _TURNED:
                return height, width
    return width, height
