"""Find altered copies: here an image and its copy are similar, and two images of the same class are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hamtarget.datasets.sample import Sample
from hamtarget.demo.walk import new_store
from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions
from hamtarget.learn.training.checkpoint import TrainingProgress

N_BITS = 64
RADIUS = 4
_PLANTED = 100


@dataclass(frozen=True)
class DuplicateCount:
    """The result of a search for copies that were planted among the images.

    Attributes:
        planted: number of altered copies among the images.
        found: number of them that were found within the radius of their original.
        other_pairs: number of pairs within the radius that are not an image and its copy.
        all_pairs: number of all pairs of images.
        shown: a few of the pairs that were found, as numbers (original, copy) of `images`.
        images: all images that were searched, the copies last.
    """

    planted: int
    found: int
    other_pairs: int
    all_pairs: int
    shown: tuple[tuple[int, int], ...]
    images: NDArray[np.uint8]


def altered(images: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return copies that are brighter or darker, with noise."""
    light = rng.uniform(0.8, 1.1, (len(images), 1, 1))
    return np.clip(images * light + rng.normal(0, 8, images.shape), 0, 255).astype(np.uint8)


def find_duplicates(
    folder: Path,
    sample: Sample,
    *,
    steps: int,
    seed: int,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> DuplicateCount:
    """Plant altered copies among the images, and find them by codes that learned from other copies of the images.

    Args:
        folder: where a store of the images and the copies is created.
        sample: the images.
        steps: batches to train on.
        seed: of all random choices.
        progress: called during training.
    """
    rng = np.random.default_rng(seed)
    n_images = len(sample.images)
    encoder = HashEncoder(
        loss=HammingTargetLoss(N_BITS, RADIUS, dissimilar_weight=3000.0),
        network=NetworkOptions(width=128),
        training=TrainingOptions(steps=steps, group_size=2),
        seed=seed,
    )
    rows = np.concatenate([sample.images, altered(sample.images, rng)])
    encoder.fit(_flat(rows), np.tile(np.arange(n_images), 2), progress=progress)

    originals = np.sort(rng.permutation(n_images)[:_PLANTED])
    images = np.concatenate([sample.images, altered(sample.images[originals], rng)])
    copies = np.arange(n_images, len(images))
    with new_store(folder, encoder) as store:
        store.put_rows(np.arange(len(images)), inputs=_flat(images))
        pairs = {(int(pair.a), int(pair.b)) for pair in store.near_duplicates(RADIUS)}
    planted = list(zip(originals.tolist(), copies.tolist(), strict=True))
    found = [pair for pair in planted if pair in pairs]
    return DuplicateCount(
        planted=len(planted),
        found=len(found),
        other_pairs=len(pairs) - len(found),
        all_pairs=len(images) * (len(images) - 1) // 2,
        shown=tuple(found[:: max(1, len(found) // 5)][:5]),
        images=images,
    )


def _flat(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return images.reshape(len(images), -1)
