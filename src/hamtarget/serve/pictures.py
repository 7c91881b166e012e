"""Images: reading those that come with a request, and showing small ones of named folders."""

from __future__ import annotations

import io
import os
import stat
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import PictureForm
from hamtarget.datasets.images import read_image
from hamtarget.errors import ImageError, MissingExtraError
from hamtarget.serve.lanes.memory import Holding
from hamtarget.serve.problems import Problem

if TYPE_CHECKING:
    from PIL import Image

MAX_SIDE = 1024
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM")
# A larger file is not shown.
_MAX_FILE_BYTES = 64 * 2**20
_CACHED_BYTES = 32 * 2**20
_JPEG_QUALITY = 85
# Pillow keeps 4 bytes of a pixel, and one more while a palette is converted.
_PIXEL_BYTES = 5
# The reduction of PDQ takes whole pictures: three bytes of a pixel, and two matrices of numbers.
_PDQ_PIXEL_BYTES = _PIXEL_BYTES + 3 + 8


@dataclass(frozen=True, slots=True)
class Picture:
    """A small picture as a file, and its media type."""

    content: bytes
    media_type: str


def read_upload(content: bytes, form: PictureForm, *, max_pixels: int, holding: Holding | None = None) -> NDArray[Any]:
    """Read an image that came with a request into an array in an encoder's form.

    Raises:
        ImageError: it is no image, is damaged, or has too many pixels by its header.
        Problem: its pixels do not fit the memory that the request, or all requests, may hold.
    """
    try:
        with _opened(io.BytesIO(content), max_pixels) as image:
            pixel_bytes = _PDQ_PIXEL_BYTES if form.fit == "pdqhash" else _PIXEL_BYTES
            n_bytes = pixel_bytes * image.width * image.height
        with _held(holding, n_bytes):
            return read_image(content, form)
    except (ImageError, MissingExtraError, Problem):
        raise
    except Exception as error:
        raise ImageError(f"the image cannot be read: {type(error).__name__}") from error


@contextmanager
def _held(holding: Holding | None, n_bytes: int) -> Iterator[None]:
    """Take the memory of pixels, and give it back at the end of the block."""
    if holding is None:
        yield
        return
    holding.take(n_bytes)
    try:
        yield
    finally:
        holding.give(n_bytes)


class Pictures:
    """Pictures of items, from named folders and nowhere else.

    Args:
        folders: folders of images.
        max_pixels: pixels of an image, at most; checked before it is decoded.
    """

    def __init__(self, folders: Sequence[Path], *, max_pixels: int) -> None:
        # Resolved once: a link that changes later does not move the folder.
        self._roots = tuple(os.path.realpath(folder) for folder in folders)
        self._max_pixels = max_pixels
        self._cache: OrderedDict[tuple[str, int, int], Picture] = OrderedDict()
        self._cached_bytes = 0
        self._lock = Lock()

    def __bool__(self) -> bool:
        """Return True if there are folders."""
        return bool(self._roots)

    def find(self, name: object) -> str | None:
        """Return the file that an item's payload names, if it lies in one of the folders after links are followed."""
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

    def thumbnail(self, name: object, side: int, holding: Holding | None = None) -> Picture | None:
        """Draw a picture at most `side` pixels wide and high; return None where there is none to show.

        It is drawn anew from its pixels: nothing else in the file (places, comments, scripts) gets out.

        Raises:
            ImageError: the file is no image, is damaged, or has too many pixels.
            Problem: its pixels do not fit the memory that the request, or all requests, may hold.
        """
        path = self.find(name)
        if path is None:
            return None
        try:
            # Follows no link that has appeared since, and never waits for a pipe.
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
            drawn = _draw(file, side, self._max_pixels, holding)
        self._remember(key, drawn)
        return drawn

    def _remember(self, key: tuple[str, int, int], drawn: Picture) -> None:
        with self._lock:
            if key in self._cache:
                return
            self._cache[key] = drawn
            self._cached_bytes += len(drawn.content)
            while self._cached_bytes > _CACHED_BYTES:
                _, oldest = self._cache.popitem(last=False)
                self._cached_bytes -= len(oldest.content)


def _opened(file: BinaryIO, max_pixels: int) -> Image.Image:
    """Open an image, of which only the header is read."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingExtraError("Pillow is not installed; to read images: pip install 'hamtarget[vision]'") from error
    try:
        Image.init()
        image = Image.open(file, formats=[name for name in _FORMATS if name in Image.OPEN])
    except Exception as error:
        expected = ", ".join(_FORMATS)
        raise ImageError(
            f"the file is no image that can be read; expected one of {expected}, whole and of sane size"
        ) from error
    if image.width * image.height > max_pixels:
        raise ImageError(
            f"the image has {image.width:,} x {image.height:,} pixels; expected at most {max_pixels:,}: make it smaller"
        )
    return image


def _draw(file: BinaryIO, side: int, max_pixels: int, holding: Holding | None) -> Picture:
    from PIL import Image, ImageOps

    image: Any = _opened(file, max_pixels)
    try:
        with image:
            is_drawing = image.format in ("PNG", "GIF")
            # A JPEG is decoded at a fraction of its size; what remains is what takes memory.
            image.draft(None, (2 * side, 2 * side))
            with _held(holding, _PIXEL_BYTES * image.width * image.height):
                mode = "RGBA" if is_drawing and image.has_transparency_data else "RGB"
                if image.mode != mode:
                    image = image.convert(mode)
                # Made small before it is turned: turning needs a second copy.
                image.thumbnail((side, side), Image.Resampling.BICUBIC)
                image = ImageOps.exif_transpose(image)
            out = io.BytesIO()
            if is_drawing:
                # A new image: saving the old one would write its notes again.
                Image.fromarray(np.asarray(image)).save(out, "PNG")
            else:
                Image.fromarray(np.asarray(image)).save(out, "JPEG", quality=_JPEG_QUALITY)
    except Problem:
        raise
    except Exception as error:
        raise ImageError(f"the image cannot be read: {type(error).__name__}") from error
    return Picture(out.getvalue(), "image/png" if is_drawing else "image/jpeg")
