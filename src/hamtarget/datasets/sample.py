"""The bundled sample: 6,000 images of Fashion-MNIST (Zalando SE, MIT licence; see NOTICE)."""

from __future__ import annotations

import importlib.resources
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True)
class Sample:
    """Images to learn from and search in, and others to search with.

    Attributes:
        images: (rows, 28, 28) uint8, 0 is the background.
        labels: (rows,) number of the class in FASHION_CLASSES.
        query_images, query_labels: the same of the queries, none of which is among the images.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    query_images: NDArray[np.uint8]
    query_labels: NDArray[np.uint8]


def fashion_sample(n_queries: int = 1000) -> Sample:
    """The bundled images, the last `n_queries` of them as queries; classes are interleaved, so both are balanced."""
    file = importlib.resources.files("hamtarget.datasets") / "fashion_mnist_sample.npz"
    with file.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    n_images = len(images) - n_queries
    return Sample(images[:n_images], labels[:n_images], images[n_images:], labels[n_images:])
