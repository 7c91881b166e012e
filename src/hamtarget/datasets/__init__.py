"""Readers of vectors, images and texts, and a bundled sample of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.datasets.pictures.image_sets import ImageSet
    from hamtarget.datasets.pictures.images import read_images
    from hamtarget.datasets.sample import fashion_sample
    from hamtarget.datasets.vector_files import open_vectors

__all__ = [
    "ImageSet",
    "fashion_sample",
    "open_vectors",
    "read_images",
]

_HOMES = {
    "ImageSet": "hamtarget.datasets.pictures.image_sets",
    "fashion_sample": "hamtarget.datasets.sample",
    "open_vectors": "hamtarget.datasets.vector_files",
    "read_images": "hamtarget.datasets.pictures.images",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
