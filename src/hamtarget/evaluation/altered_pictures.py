"""Distances between the codes of pictures and those of their altered copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hamtarget._picture_form import form_of
from hamtarget.datasets.pictures.alterations import ALTERATIONS, open_to_alter
from hamtarget.datasets.pictures.images import decode_images
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import ImageError
from hamtarget.progress import Progress

if TYPE_CHECKING:
    from PIL import Image

_PICTURES_AT_A_TIME = 32


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
