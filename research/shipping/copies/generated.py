"""Figures of a learned hash on generated pictures, which need no photos: tests measure them again."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageOps

from hamtarget.codes import distances
from hamtarget.datasets import read_images
from hamtarget.encoders import OnnxEncoder

_N_PICTURES = 200
_SIZE = (200, 150)
_TIMED = 200


def _jpeg(picture: Image.Image) -> Image.Image:
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=30)
    return Image.open(buffer)


_ALTERATIONS: dict[str, Callable[[Image.Image], Image.Image]] = {
    "half the size": lambda picture: picture.resize((picture.width // 2, picture.height // 2)),
    "JPEG of quality 30": _jpeg,
    "crop of 10%": lambda picture: picture.crop((10, 7, picture.width - 10, picture.height - 8)),
    "brightness 1.3": lambda picture: ImageEnhance.Brightness(picture).enhance(1.3),
    "mirrored": ImageOps.mirror,
}


def generated_pictures(n: int = _N_PICTURES, *, seed: int = 0) -> list[Image.Image]:
    """Return pictures of random ellipses and lines."""
    random = np.random.default_rng(seed)
    pictures = []
    for _ in range(n):
        picture = Image.new("RGB", _SIZE, tuple(random.integers(0, 256, 3).tolist()))
        draw = ImageDraw.Draw(picture)
        for _ in range(12):
            x, y, width, height = random.integers((0, 0, 8, 8), (*_SIZE, 80, 80)).tolist()
            colour = tuple(random.integers(0, 256, 3).tolist())
            draw.ellipse((x - width // 2, y - height // 2, x + width // 2, y + height // 2), fill=colour)
            draw.line((x, y, *random.integers((0, 0), _SIZE).tolist()), fill=colour[::-1], width=3)
        pictures.append(picture)
    return pictures


def figures_on_generated(path: Path) -> dict[str, float]:
    """Return the mean distance of altered generated pictures to their originals, and that of different ones."""
    encoder = OnnxEncoder(path, threads=1)
    form = encoder.picture_form or encoder.input_shape
    pictures = generated_pictures()
    codes = encoder.encode(read_images(pictures, form))
    figures = {}
    for name, altered in _ALTERATIONS.items():
        copies = encoder.encode(read_images([altered(picture) for picture in pictures], form))
        figures[name] = float(np.bitwise_count(codes ^ copies).sum(axis=1).mean())
    apart = distances(codes, codes, encoder.n_bits)[np.triu_indices(len(codes), 1)]
    return {**figures, "different pictures": float(apart.mean()), "nearest different pictures": float(apart.min())}


def milliseconds(path: Path) -> float:
    """Return the time of the network for one picture, on one core: the median of many calls, without waiting."""
    encoder = OnnxEncoder(path, threads=1)
    picture = np.random.default_rng(0).integers(0, 256, (1, *encoder.input_shape)).astype(np.float32)
    encoder.logits(picture)
    times = []
    for _ in range(_TIMED):
        begun = time.thread_time()
        encoder.logits(picture)
        times.append(time.thread_time() - begun)
    return round(float(np.median(times)) * 1e3, 3)
