"""The bundled sample: 6,000 images of Fashion-MNIST (Zalando SE, MIT licence; see NOTICE)."""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import InputError

FASHION_CLASSES = (
    "T-shirt",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)


@dataclass(frozen=True, eq=False)
class Sample:
    """Images to learn from and to search in, and other images to search with.

    Attributes:
        images: (rows, 28, 28) uint8; 0 is the background.
        labels: (rows,) number of each image's class.
        query_images: (queries, 28, 28) uint8; none of them is among `images`.
        query_labels: (queries,) number of each query's class.
        class_names: name of each class.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    query_images: NDArray[np.uint8]
    query_labels: NDArray[np.uint8]
    class_names: tuple[str, ...] = FASHION_CLASSES

    def __repr__(self) -> str:
        return (
            f"Sample({len(self.images):,} images, {len(self.query_images):,} queries) "
            f"[28 x 28 uint8, {len(self.class_names)} classes]"
        )


def fashion_sample(n_queries: int = 1000) -> Sample:
    """Return 6,000 bundled images of Fashion-MNIST, the last `n_queries` of them as queries.

    Classes are interleaved, so that images and queries are both balanced.

    Raises:
        InputError: `n_queries` is not from 1 to 5,999.

    Example:
        >>> sample = fashion_sample()
        >>> sample
        Sample(5,000 images, 1,000 queries) [28 x 28 uint8, 10 classes]
        >>> sample.class_names[sample.labels[1]]
        'Trouser'
    """
    file = importlib.resources.files("hamtarget.datasets") / "fashion_mnist_sample.npz"
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    if not 1 <= n_queries < len(images):
        raise InputError(f"n_queries is {n_queries}; expected 1 to {len(images) - 1:,}")
    n_images = len(images) - n_queries
    return Sample(images[:n_images], labels[:n_images], images[n_images:], labels[n_images:])
