"""Images: those that come with a request, and those that the named folders hold; small, and drawn anew."""

from __future__ import annotations

import io
import os
import stat
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hamtarget.datasets.images import read_image
from hamtarget.errors import ImageError, MissingExtraError

if TYPE_CHECKING:
    from PIL import Image

MAX_SIDE = 1024
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
# A file that is larger is no picture to be shown.
_MAX_FILE_BYTES = 64 * 2**20
_CACHED_BYTES = 32 * 2**20
_JPEG_QUALITY = 85


def read_upload(content: bytes, shape: Sequence[int], *, max_pixels: int) -> NDArray[np.uint8]:
    """An image that came with a request, as an encoder of this input shape takes it.

    Raises:
        ImageError: it is none, is damaged, or has too many pixels, which is told by its header alone.
    """
    try:
        with _opened(io.BytesIO(content), max_pixels):
            pass
        return read_image(content, shape)
    except (ImageError, MissingExtraError):
        raise
    except Exception as error:
        raise ImageError(f"the image cannot be read: {type(error).__name__}") from error


class Pictures:
    """Pictures of items, from named folders and nowhere else.

    Args:
        folders: where images may lie.
        max_pixels: of an image, checked before it is decoded.
    """

    def __init__(self, folders: Sequence[Path], *, max_pixels: int) -> None:
        # Resolved once: what a link says later does not move the folder.
        self._roots = tuple(os.path.realpath(folder) for folder in folders)
        self._max_pixels = max_pixels
        self._cache: OrderedDict[tuple[str, int, int], tuple[bytes, str]] = OrderedDict()
        self._cached_bytes = 0
        self._lock = Lock()

    def __bool__(self) -> bool:
        """Whether there are folders at all."""
        return bool(self._roots)

    def find(self, name: object) -> str | None:
        """The file that an item's payload names, if it lies in one of the folders, links followed."""
        if not isinstance(name, str) or not name or "\0" in name:
            return None
        for root in self._roots:
            try:
                real = os.path.realpath(os.path.join(root, name))
                if os.path.commonpath((real, root)) == root and stat.S_ISREG(os.stat(real).st_mode):
                    return real
            except (OSError, ValueError):
                continue
        return None

    def thumbnail(self, name: object, side: int) -> tuple[bytes, str] | None:
        """The picture at most `side` pixels wide and high, and its media type; None where there is none to show.

        It is drawn anew from its pixels: nothing else that the file holds (places, comments, scripts) gets out.

        Raises:
            ImageError: the file is no image, is damaged, or has too many pixels.
        """
        path = self.find(name)
        if path is None:
            return None
        try:
            # Not through a link that has appeared since, and never waiting for a pipe.
            handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        except OSError:
            return None
        with os.fdopen(handle, "rb") as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                return None
            if facts.st_size > _MAX_FILE_BYTES:
                raise ImageError(f"the file has {facts.st_size:,} bytes; expected at most {_MAX_FILE_BYTES:,}")
            key = (path, facts.st_mtime_ns, side)
            with self._lock:
                known = self._cache.get(key)
                if known is not None:
                    self._cache.move_to_end(key)
                    return known
            drawn = _draw(file, side, self._max_pixels)
        self._remember(key, drawn)
        return drawn

    def _remember(self, key: tuple[str, int, int], drawn: tuple[bytes, str]) -> None:
        with self._lock:
            if key in self._cache:
                return
            self._cache[key] = drawn
            self._cached_bytes += len(drawn[0])
            while self._cached_bytes > _CACHED_BYTES:
                _, (content, _) = self._cache.popitem(last=False)
                self._cached_bytes -= len(content)


def _opened(file: BinaryIO, max_pixels: int) -> Image.Image:
    """An image of which only the header was read."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("Pillow is not installed; to read images: pip install 'hamtarget[vision]'") from error
    try:
        Image.init()
        image = Image.open(file, formats=[name for name in _FORMATS if name in Image.OPEN])
    except Exception as error:
        expected = ", ".join(_FORMATS)
        raise ImageError(f"no image that can be told; expected one of {expected}, whole and of sane size") from error
    if image.width * image.height > max_pixels:
        raise ImageError(f"{image.width:,} x {image.height:,} pixels; expected at most {max_pixels:,}: make it smaller")
    return image


def _draw(file: BinaryIO, side: int, max_pixels: int) -> tuple[bytes, str]:
    from PIL import Image, ImageOps

    image: Any = _opened(file, max_pixels)
    try:
        with image:
            is_drawing = image.format in ("PNG", "GIF")
            image.draft(None, (2 * side, 2 * side))
            image = ImageOps.exif_transpose(image)
            image = image.convert("RGBA" if is_drawing and image.has_transparency_data else "RGB")
            image.thumbnail((side, side), Image.Resampling.BICUBIC)
            out = io.BytesIO()
            if is_drawing:
                # A new image: `save` would write the old one's notes again.
                Image.fromarray(np.asarray(image)).save(out, "PNG")
            else:
                Image.fromarray(np.asarray(image)).save(out, "JPEG", quality=_JPEG_QUALITY)
    except Exception as error:
        raise ImageError(f"the image cannot be read: {type(error).__name__}") from error
    return out.getvalue(), "image/png" if is_drawing else "image/jpeg"
