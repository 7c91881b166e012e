"""Formats of picture files: their endings, how Pillow opens them, their size, and what is missing where it cannot.

Only formats that Pillow or pillow-heif decode by themselves are opened: an EPS file would start another program.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from hamtarget.errors import ImageError, MissingExtraError

if TYPE_CHECKING:
    from PIL import Image

IMAGE_SUFFIXES = (
    *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".ppm", ".pgm"),
    *(".jp2", ".j2k", ".jpf", ".jpx", ".avif", ".heic", ".heif", ".hif"),
)
"""Endings of picture files. Where a format cannot be read, the file is named with the reason, not passed over."""

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "JPEG2000", "AVIF", "HEIF")
"""Names that Pillow has for the formats that are opened."""

HEAVY_FORMATS = ("JPEG2000", "AVIF", "HEIF")
"""Formats whose decoders take several times the memory of the pixels that come out."""

# At three bytes each, a quarter of a gigabyte. Pillow itself warns above 89 million.
MAX_PIXELS = 80_000_000

_HEIF_PACKAGE = "pillow_heif"
# A file of MPEG's container says at byte 4 that it is one, and at byte 8 which.
_CONTAINER = b"ftyp"
_AVIF_BRANDS = (b"avif", b"avis")
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1")
_JPEG2000_HEADS = (b"\x00\x00\x00\x0cjP  ", b"\xff\x4f\xff\x51")
_HEAD_BYTES = 12
# Of EXIF; these values turn a picture by a quarter.
_ORIENTATION = 0x0112
_TURNED = (5, 6, 7, 8)


class Codec(NamedTuple):
    """A format that not every installation reads: if this one does, and else what to install."""

    format: str
    is_usable: bool
    remedy: str


def check_pillow() -> None:
    """Check that Pillow is installed.

    Raises:
        MissingExtraError: it is not.
    """
    if importlib.util.find_spec("PIL") is None:
        raise MissingExtraError("Pillow is not installed; to read images: pip install 'hamtarget[vision]'")


def open_picture(file: BinaryIO) -> Image.Image:
    """Open the picture of a file, reading only its header.

    Raises:
        ImageError: it has no known format, one that is not installed here, or far too many pixels.
        MissingExtraError: Pillow is not installed.
        Exception: its header is damaged; decoders raise almost anything.
    """
    check_pillow()
    from PIL import Image, UnidentifiedImageError

    head = file.read(_HEAD_BYTES)
    file.seek(0, io.SEEK_SET)
    if head[4:8] == _CONTAINER:
        _register_heif()
    Image.init()
    try:
        return Image.open(file, formats=[name for name in FORMATS if name in Image.OPEN])
    except UnidentifiedImageError as error:
        missing = _missing_codec(head)
        if missing is not None:
            raise ImageError(f"{missing.format} cannot be read here; {missing.remedy}") from error
        raise ImageError(f"not an image of a known format; expected one of {', '.join(FORMATS)}") from error
    except Image.DecompressionBombError as error:
        # Of so many pixels Pillow opens not even the header.
        most = 2 * (Image.MAX_IMAGE_PIXELS or 0)
        raise ImageError(
            f"more than {most:,} pixels; expected at most {MAX_PIXELS:,}: make it smaller first"
        ) from error


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


def codecs() -> list[Codec]:
    """Return the formats that not every installation reads.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    check_pillow()
    from PIL import Image

    Image.init()
    has_heif = importlib.util.find_spec(_HEIF_PACKAGE) is not None
    return [
        Codec("WebP", "WEBP" in Image.OPEN and _has("webp"), "install Pillow from a wheel: pip install -U Pillow"),
        Codec("JPEG 2000", _has("jpg_2000"), "install Pillow from a wheel: pip install -U Pillow"),
        Codec("AVIF", _has("avif"), "pip install 'Pillow>=11.3'"),
        Codec("HEIC", has_heif, "pip install 'hamtarget[heic]'"),
    ]


def _has(feature: str) -> bool:
    from PIL import features

    # An older Pillow does not know the word, and warns.
    return feature in features.get_supported()


def _missing_codec(head: bytes) -> Codec | None:
    """Return the codec that a file with this head needs, if it is not usable."""
    brand = head[8:12] if head[4:8] == _CONTAINER else b""
    wanted = "AVIF" if brand in _AVIF_BRANDS else "HEIC" if brand in _HEIF_BRANDS else None
    if head.startswith(_JPEG2000_HEADS):
        wanted = "JPEG 2000"
    return next((codec for codec in codecs() if codec.format == wanted and not codec.is_usable), None)


def _register_heif() -> None:
    """Let Pillow open HEIC, where pillow-heif is installed; it is imported when the first such file comes."""
    if importlib.util.find_spec(_HEIF_PACKAGE) is None:
        return
    import pillow_heif

    # Thumbnails and depth maps in the file are not needed, and may be damaged.
    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
