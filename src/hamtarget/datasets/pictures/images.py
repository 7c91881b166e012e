"""Read images into arrays of one form: open, turn upright, resize, crop; in this process or in several.

Image files are not trusted. The size is checked before a pixel is decoded. Only formats that need no other program are
opened. Every failure of a decoder becomes an `ImageError` that names the image.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import PictureForm, as_form
from hamtarget._reading import reason_of
from hamtarget.datasets.pictures.picture_formats import MAX_PIXELS, check_pillow, open_picture
from hamtarget.datasets.reading_pool import results_in_order
from hamtarget.errors import ImageError, InputError, MissingExtraError
from hamtarget.progress import Progress

if TYPE_CHECKING:
    from PIL import Image

    ImageSource = str | os.PathLike[str] | bytes | NDArray[Any] | Image.Image
    """A path, the bytes of a file, a uint8 array (h, w), (h, w, 3) or (3, h, w), or a Pillow image."""

_MAX_BYTE = 255
_WHITE = (255, 255, 255, 255)
# A JPEG may be decoded at a half, a quarter or an eighth of its size if that is still this many times the wanted size.
_DRAFT_MARGIN = 2
# Images that a worker process reads at a time.
_TASK_ROWS = 64


@dataclass(frozen=True, eq=False)
class DecodedImages:
    """The images that could be read, and the reasons why others could not.

    Attributes:
        images: (images read, *shape) uint8; float32 in the form of PDQ.
        rows: (images read,) number of each image among all that were asked for, ascending.
        broken: the reason for each image that could not be read, by its number.
    """

    images: NDArray[Any]
    rows: NDArray[np.int64]
    broken: dict[int, str]


def read_image(source: ImageSource, shape: Sequence[int] | PictureForm) -> NDArray[Any]:
    """Read one image into an array of `shape`: by default, the short side is resized and the centre cropped.

    The image is turned according to its EXIF orientation. Transparent parts become white, except in the forms of
    classic hashes. The first frame of an animation is taken.

    Args:
        source: a path, the bytes of a file, a Pillow image, or a uint8 array (h, w), (h, w, 3) or (3, h, w).
        shape: (height, width) or (1, height, width) for grey, (3, height, width) for RGB; or an encoder's
            `picture_form`.

    Raises:
        ImageError: the image cannot be read, is damaged, or has more than 80 million pixels.
        InputError: `shape` is invalid.
        MissingExtraError: Pillow is not installed.
    """
    return _read(source, as_form(shape), name=_name(source))


def read_images(
    sources: Sequence[ImageSource],
    shape: Sequence[int] | PictureForm,
    *,
    workers: int = 0,
    progress: Progress | None = None,
) -> NDArray[Any]:
    """Read images into one array, (rows, *shape): by default, the short side is resized and the centre cropped.

    Images are turned according to their EXIF orientation. Transparent parts become white, except in the forms of
    classic hashes. To skip images that cannot be read, use `ImageSet.decode`.

    Args:
        sources: paths, the bytes of files, Pillow images, or uint8 arrays (h, w), (h, w, 3) or (3, h, w).
        shape: (height, width) or (1, height, width) for grey, (3, height, width) for RGB; or the `picture_form` of an
            encoder that `hamtarget.open_encoder` opens by name.
        workers: processes that read; 0: this process does. With workers, a script needs `if __name__ == "__main__"`.
        progress: called with the number of images done and of all images.

    Raises:
        ImageError: an image cannot be read, is damaged, or has more than 80 million pixels. The error names the first.
        InputError: `shape` or `workers` is invalid.
        MissingExtraError: Pillow is not installed.

    Example:
        >>> import numpy as np
        >>> read_images([np.zeros((40, 60, 3), np.uint8)], shape=(3, 32, 32)).shape
        (1, 3, 32, 32)
    """
    decoded = decode_images(sources, shape, workers=workers, progress=progress)
    if decoded.broken:
        row, reason = next(iter(decoded.broken.items()))
        raise ImageError(
            f"image {row:,} of {len(sources):,} cannot be read ({len(decoded.broken):,} in total): {reason}"
        )
    return decoded.images


def decode_images(
    sources: Sequence[ImageSource],
    shape: Sequence[int] | PictureForm,
    *,
    workers: int = 0,
    progress: Progress | None = None,
) -> DecodedImages:
    """Read every image that can be read, and return the reasons for the others. See `read_images` for arguments.

    Raises:
        ImageError: a worker process died.
        InputError: `shape` or `workers` is invalid.
        MissingExtraError: Pillow is not installed.
    """
    form = as_form(shape)
    check_pillow()
    if workers < 0:
        raise InputError(f"workers is {workers}; expected 0 (this process reads) or more")
    images = np.empty((len(sources), *form.shape), dtype=form.dtype)
    rows: list[int] = []
    broken: dict[int, str] = {}
    first = 0
    # Closing makes sure that no worker outlives an interrupt or an error of `progress`.
    with contextlib.closing(_tasks_in_order(sources, form, workers)) as tasks:
        for found in tasks:
            for row, image in enumerate(found, start=first):
                if isinstance(image, str):
                    broken[row] = image
                else:
                    images[len(rows)] = image
                    rows.append(row)
            first += len(found)
            if progress is not None:
                progress(first, len(sources))
    return DecodedImages(images[: len(rows)], np.array(rows, dtype=np.int64), broken)


def _tasks_in_order(
    sources: Sequence[ImageSource], form: PictureForm, workers: int
) -> Generator[list[NDArray[Any] | str]]:
    """Yield the images of consecutive sources, or the reasons why they cannot be read, one task at a time."""
    # Sources are taken task by task, because the sequence may copy each out of a larger file.
    starts = range(0, len(sources), _TASK_ROWS)
    tasks = ((_taken(sources, start), form, start) for start in starts)
    return results_in_order(_read_task, tasks, workers=0 if len(starts) < 2 else min(workers, len(starts)))


def _taken(sources: Sequence[ImageSource], start: int) -> list[ImageSource]:
    return [sources[row] for row in range(start, min(start + _TASK_ROWS, len(sources)))]


def _read_task(task: tuple[list[ImageSource], PictureForm, int]) -> list[NDArray[Any] | str]:
    sources, form, first = task
    found: list[NDArray[Any] | str] = []
    for row, source in enumerate(sources, start=first):
        try:
            found.append(_read(source, form, name=_name(source, row)))
        except ImageError as error:
            found.append(str(error))
    return found


def _name(source: ImageSource, row: int | None = None) -> str:
    """Return the name of a source in errors."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    kind = f"{len(source):,} bytes" if isinstance(source, bytes) else type(source).__name__
    return f"image ({kind})" if row is None else f"image {row:,} ({kind})"


def _read(source: ImageSource, form: PictureForm, *, name: str) -> NDArray[Any]:
    check_pillow()
    from PIL import Image

    try:
        if isinstance(source, (str, os.PathLike)):
            # A pipe would be waited for.
            if not stat.S_ISREG(Path(source).stat().st_mode) and not Path(source).is_dir():
                raise ImageError("is no ordinary file; expected an image file")
            # Opening it here makes sure that it is closed, whatever the decoder does.
            with Path(source).open("rb") as file:
                return _formed(_opened(file, form), form)
        if isinstance(source, bytes):
            return _formed(_opened(io.BytesIO(source), form), form)
        if isinstance(source, np.ndarray):
            return _formed(_from_array(source), form)
        if isinstance(source, Image.Image):
            return _formed(source, form)
        raise ImageError("expected a path, bytes, an array or a Pillow image")
    except MissingExtraError:
        raise
    except ImageError as error:
        raise ImageError(f"{name}: {error}") from error
    except Exception as error:
        # Decoders raise almost anything for a damaged file: OSError, SyntaxError, struct.error, IndexError ...
        if isinstance(error, OSError) and error.strerror:
            raise ImageError(f"{name}: {reason_of(error)}; expected an image file") from error
        reason = str(error) or type(error).__name__
        raise ImageError(f"{name}: the image is damaged ({reason}); replace it or leave it out") from error


def _opened(file: BinaryIO, form: PictureForm) -> Image.Image:
    """Open the image of a file, reading only its header."""
    image = open_picture(file)
    _check_pixels(image)
    # A draft has other pixels than the whole image, and the hashes of the packages have the whole image's.
    if form.fit in ("crop", "squeeze"):
        # Both sides stay large enough, however the image is turned afterwards.
        side = _DRAFT_MARGIN * max(form.shape[-2:])
        image.draft("RGB" if form.is_rgb else "L", (side, side))
    return image


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > MAX_PIXELS:
        raise ImageError(
            f"{image.width:,} x {image.height:,} pixels; expected at most {MAX_PIXELS:,}: make it smaller first"
        )


def _from_array(array: NDArray[Any]) -> Image.Image:
    from PIL import Image

    if array.dtype != np.uint8:
        raise ImageError(f"an array of {array.dtype}; expected uint8, 0 to 255")
    if array.ndim == 3 and array.shape[2] not in (3, 4) and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.size == 0 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise ImageError(f"an array of shape {array.shape}; expected (h, w), (h, w, 3) or (3, h, w)")
    return Image.fromarray(np.ascontiguousarray(array))


def _formed(image: Image.Image, form: PictureForm) -> NDArray[Any]:
    """Return the image upright, in the given form."""
    from PIL import Image, ImageOps

    _check_pixels(image)
    image.load()
    # The pixels are intact even where the EXIF orientation is damaged.
    with contextlib.suppress(Exception):
        image = ImageOps.exif_transpose(image)
    height, width = form.shape[-2:]
    resampling = Image.Resampling[form.resampling.upper()]
    if form.fit == "pdqhash":
        return _reduced_for_pdq(_in_mode_of_packages(image, "RGB"), form)
    if form.fit == "imagehash":
        image = _in_mode_of_packages(image, "L").resize((width, height), resampling)
    else:
        image = _in_mode(image, "RGB" if form.is_rgb else "L")
        box = _centre(image, height, width) if form.fit == "crop" else None
        image = image.resize((width, height), resampling, box=box)
    array = np.asarray(image, dtype=np.uint8)
    if form.is_rgb:
        array = array.transpose(2, 0, 1)
    return np.ascontiguousarray(array).reshape(form.shape)


def _centre(image: Image.Image, height: int, width: int) -> tuple[float, float, float, float]:
    """Return the largest box around the centre with the aspect of height x width, to resize and crop in one step."""
    scale = max(height / image.height, width / image.width)
    seen_height, seen_width = height / scale, width / scale
    top, left = max(0.0, (image.height - seen_height) / 2), max(0.0, (image.width - seen_width) / 2)
    return left, top, min(left + seen_width, image.width), min(top + seen_height, image.height)


def _in_mode(image: Image.Image, mode: str) -> Image.Image:
    """Return the image in grey ("L") or "RGB", with transparent parts white and 16 bits of a pixel reduced to 8."""
    from PIL import Image

    if image.mode.startswith("I"):
        image = _of_bytes(image)
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, _WHITE), image)
    return image if image.mode == mode else image.convert(mode)


def _in_mode_of_packages(image: Image.Image, mode: str) -> Image.Image:
    """Return the image in grey ("L") or "RGB" as imagehash and users of pdqhash do: by Pillow, without transparency."""
    if image.mode.startswith("I") and np.asarray(image).max(initial=0) > _MAX_BYTE:
        image = _of_bytes(image)
    if image.mode == "LAB":
        # Pillow has no direct way to grey.
        image = image.convert("RGB")
    return image.convert(mode)


def _reduced_for_pdq(image: Image.Image, form: PictureForm) -> NDArray[np.float32]:
    from hamtarget._core import _native

    return _native.pdq_reduction(np.ascontiguousarray(np.asarray(image))).reshape(form.shape)


def _of_bytes(image: Image.Image) -> Image.Image:
    """Return an image of 16 bits a pixel with 8; Pillow would clip at 255."""
    from PIL import Image

    return Image.fromarray((np.asarray(image, dtype=np.int64).clip(0, 65535) // 257).astype(np.uint8))
