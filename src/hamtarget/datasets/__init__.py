"""Readers of vectors and images, exact neighbours to measure search by, and a bundled sample of images."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.datasets.pictures.image_sets import ImageSet
    from hamtarget.datasets.pictures.images import read_images
    from hamtarget.datasets.sample import fashion_sample
    from hamtarget.datasets.vectors.ground_truth import exact_neighbors
    from hamtarget.datasets.vectors.vector_files import open_vectors
    from hamtarget.datasets.vectors.vector_sets import open_vector_set

__all__ = [
    "ImageSet",
    "exact_neighbors",
    "fashion_sample",
    "open_vector_set",
    "open_vectors",
    "read_images",
]

_HOMES = {
    "ImageSet": "hamtarget.datasets.pictures.image_sets",
    "exact_neighbors": "hamtarget.datasets.vectors.ground_truth",
    "fashion_sample": "hamtarget.datasets.sample",
    "open_vector_set": "hamtarget.datasets.vectors.vector_sets",
    "open_vectors": "hamtarget.datasets.vectors.vector_files",
    "read_images": "hamtarget.datasets.pictures.images",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
