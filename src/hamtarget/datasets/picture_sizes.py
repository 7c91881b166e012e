"""Width and height of a picture, from the head of its file."""

from __future__ import annotations

import contextlib
import io

from hamtarget.datasets.images import _FORMATS

_ORIENTATION = 0x0112
# Orientations of EXIF that turn a picture by a quarter.
_TURNED = (5, 6, 7, 8)


def picture_size(content: bytes) -> tuple[int, int]:
    """Return the width and height, upright, of a picture that has been decoded before.

    Args:
        content: the bytes of its file.
    """
    from PIL import Image

    # The same formats as where it was decoded: no other reader sees a file that is not trusted.
    with Image.open(io.BytesIO(content), formats=[name for name in _FORMATS if name in Image.OPEN]) as image:
        width, height = image.size
        # A damaged orientation is none, as where pictures are read.
        with contextlib.suppress(Exception):
            if image.getexif().get(_ORIENTATION) in _TURNED:
                return height, width
    return width, height
