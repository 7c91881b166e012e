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
from hamtarget.datasets.pictures.images import read_image
from hamtarget.datasets.pictures.picture_formats import HEAVY_FORMATS, open_picture
from hamtarget.datasets.pictures.picture_payloads import shown_payload
from hamtarget.datasets.pictures.picture_roots import PictureRoots
from hamtarget.errors import ImageError, MissingExtraError
from hamtarget.items import Payload
from hamtarget.serve.lanes.memory import Holding
from hamtarget.serve.problems import Problem

if TYPE_CHECKING:
    from PIL import Image

MAX_SIDE = 4096
# A larger file is not shown.
_MAX_FILE_BYTES = 64 * 2**20
_CACHED_BYTES = 32 * 2**20
# A larger picture is drawn anew each time: it would take the place of many small ones.
_CACHED_PICTURE_BYTES = 2**20
_JPEG_QUALITY = 85
# Pillow keeps 4 bytes of a pixel, and one more while a palette is converted.
_PIXEL_BYTES = 5
# The reduction of PDQ takes whole pictures: three bytes of a pixel, and two matrices of numbers.
_PDQ_PIXEL_BYTES = _PIXEL_BYTES + 3 + 8
# Decoders of these formats keep planes of 2 or 4 bytes besides the pixels.
_HEAVY_PIXEL_BYTES = 3 * 4


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
            n_bytes = (pixel_bytes + _decoder_bytes(image)) * image.width * image.height
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
        self._roots = PictureRoots(folders)
        self._max_pixels = max_pixels
        self._cache: OrderedDict[tuple[str, int, int], Picture] = OrderedDict()
        self._cached_bytes = 0
        self._lock = Lock()

    def __bool__(self) -> bool:
        """Return True if there are folders."""
        return bool(self._roots)

    def shown(self, payload: Payload) -> Payload:
        """Return a payload as it leaves the service: without the way to the picture's folder, and its file's state."""
        name = payload.get("image")
        if not isinstance(name, str):
            return payload
        return {**shown_payload(payload), "image": self._roots.shown_name(name)}

    def thumbnail(
        self, name: object, side: int, holding: Holding | None = None, *, folder: object = None
    ) -> Picture | None:
        """Draw a picture at most `side` pixels wide and high; return None where there is none to show.

        It is drawn anew from its pixels: nothing else in the file (places, comments, scripts) gets out.

        Args:
            name: the payload's `image`.
            side: most pixels of width and height.
            holding: memory of the request.
            folder: the payload's `folder`, the name of the folder that was added or synced.

        Raises:
            ImageError: the file is no image, is damaged, or has too many pixels.
            Problem: its pixels do not fit the memory that the request, or all requests, may hold.
        """
        path = self._roots.find(name, folder)
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
        if len(drawn.content) > _CACHED_PICTURE_BYTES:
            return
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
        image = open_picture(file)
    except (ImageError, MissingExtraError):
        raise
    except Exception as error:
        raise ImageError(f"the header of the image is damaged: {type(error).__name__}") from error
    if image.width * image.height > max_pixels:
        raise ImageError(
            f"the image has {image.width:,} x {image.height:,} pixels; expected at most {max_pixels:,}: make it smaller"
        )
    return image


def _decoder_bytes(image: Image.Image) -> int:
    """Return the bytes that the decoder takes of a pixel besides those that come out."""
    return _HEAVY_PIXEL_BYTES if image.format in HEAVY_FORMATS else 0


def _draw(file: BinaryIO, side: int, max_pixels: int, holding: Holding | None) -> Picture:
    from PIL import Image, ImageOps

    image: Any = _opened(file, max_pixels)
    try:
        with image:
            is_drawing = image.format in ("PNG", "GIF")
            # A JPEG is decoded at a fraction of its size; what remains is what takes memory.
            image.draft(None, (2 * side, 2 * side))
            pixel_bytes = _PIXEL_BYTES + _decoder_bytes(image)
            with _held(holding, pixel_bytes * image.width * image.height):
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
