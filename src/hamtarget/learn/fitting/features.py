"""Features of pictures by a frozen network: computed once, kept by the pictures' content."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hamtarget.datasets.content_cache import ContentCache, content_digest, digest_of
from hamtarget.datasets.pictures.image_sets import ImageSet
from hamtarget.datasets.pictures.images import decode_images
from hamtarget.errors import FileError
from hamtarget.learn.networks.frozen import feature_count, features_of, fingerprint, picture_shape
from hamtarget.progress import Progress

if TYPE_CHECKING:
    from hamtarget.datasets.pictures.images import ImageSource

# Pictures sent through the network at a time: more are no faster, and take more memory.
_BATCH = 32
# Pictures between two reports; what is computed is kept as often.
_BLOCK = 64
# Processes that read are started for each block, so theirs is larger.
_BLOCK_OF_WORKERS = 2048


@dataclass(frozen=True, eq=False)
class PictureFeatures:
    """Features of the pictures that could be read, and the reasons why others could not.

    Attributes:
        values: (pictures read, columns) float32.
        rows: (pictures read,) number of each picture among all, ascending.
        broken: the reason for each picture that could not be read, by its number.
    """

    values: NDArray[np.float32]
    rows: NDArray[np.int64]
    broken: dict[int, str]


def picture_features(
    images: ImageSet,
    network: nn.Module,
    *,
    device: torch.device | str = "cpu",
    workers: int = 0,
    progress: Progress | None = None,
) -> PictureFeatures:
    """Return the features of pictures, from the cache where they are there.

    What is computed is kept block by block, so that work that was interrupted goes on where it was.

    Args:
        images: the pictures.
        network: turns pictures of its `input_shape`, 0 to 255, into features. It is not changed, but moved to `device`.
        device: where the network runs.
        workers: processes that read pictures; 0: this one.
        progress: called with the number of pictures done and of all pictures.
    """
    shape = picture_shape(network)
    network = network.cpu().eval()
    n_columns = feature_count(network, shape)
    values = np.empty((len(images), n_columns), dtype=np.float32)
    rows: list[int] = []
    broken: dict[int, str] = {}
    block = _BLOCK_OF_WORKERS if workers else _BLOCK
    with closing(ContentCache(f"features {fingerprint(network)}", value_bytes=4 * n_columns)) as cache:
        network.to(device)
        for start in range(0, len(images), block):
            sources = [images.sources[row] for row in range(start, min(start + block, len(images)))]
            digests = [_digest(source) for source in sources]
            kept = cache.get(digest for digest in digests if digest is not None)
            missing = [place for place, digest in enumerate(digests) if digest is None or digest not in kept]
            decoded = decode_images([sources[place] for place in missing], shape, workers=workers)
            computed = _computed(network, decoded.images, device)
            found = dict(zip((missing[row] for row in decoded.rows), computed, strict=True))
            cache.put({digest: found[place].tobytes() for place in found if (digest := digests[place]) is not None})
            for place, digest in enumerate(digests):
                if place in found:
                    values[len(rows)] = found[place]
                elif digest is not None and digest in kept:
                    values[len(rows)] = np.frombuffer(kept[digest], dtype="<f4")
                else:
                    continue
                rows.append(start + place)
            broken |= {start + missing[row]: reason for row, reason in decoded.broken.items()}
            if progress is not None:
                progress(start + len(sources), len(images))
    return PictureFeatures(values[: len(rows)], np.array(rows, dtype=np.int64), broken)


@torch.inference_mode()
def _computed(
    network: nn.Module, pictures: NDArray[np.uint8], device: torch.device | str
) -> Sequence[NDArray[np.float32]]:
    found: list[NDArray[np.float32]] = []
    for start in range(0, len(pictures), _BATCH):
        batch = torch.from_numpy(pictures[start : start + _BATCH]).to(device)
        found += list(features_of(network, batch).float().cpu().numpy())
    return found


def _digest(source: ImageSource) -> bytes | None:
    """Return the digest of a source's content; None if it is no file, or cannot be read."""
    if isinstance(source, bytes):
        return digest_of(source)
    if not isinstance(source, str | os.PathLike):
        return None
    try:
        return content_digest(source)
    except FileError:
        # The decoder says what is wrong with it.
        return None
