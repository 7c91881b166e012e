"""Local features of photos: what the shipped network sees at positions of a photo, as vectors to search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hamtarget.datasets import ImageSet
from hamtarget.datasets.pictures.images import read_images
from hamtarget.learn.networks.backbones import backbone

_POSITIONS = 100
"""Positions taken of a photo, of 14 x 14."""
_CHANNELS, _COLUMNS = 1024, 256
_SIDE = 224
_PHOTOS_AT_A_TIME = 16
# Rows that the projection is learned from.
_LEARNED_ROWS = 20_000


def local_features(
    folder: Path, *, photos: int = 2_000, query_photos: int = 50, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return features of photos to search in, and of other photos to search with; each (rows, 256).

    A feature is the vector of 1,024 channels at a position of the last map of the shipped network, on its 256 principal
    components. Photos and positions are drawn at random.

    Args:
        folder: a folder with a folder of photos for each class.
        photos: photos to search in; each gives 100 rows.
        query_photos: photos to search with; each gives 100 rows.
        seed: of the draws.
    """
    images = ImageSet.from_folder(folder)
    random = np.random.default_rng(seed)
    chosen = random.permutation(len(images))[: photos + query_photos]
    network = backbone().eval()
    maps: list[Tensor] = []
    stage = network.get_submodule(f"layer{network.n_stages}")
    stage.register_forward_hook(lambda _module, _inputs, output: maps.append(output))
    rows = np.empty((len(chosen) * _POSITIONS, _CHANNELS), dtype=np.float16)
    for start in range(0, len(chosen), _PHOTOS_AT_A_TIME):
        sources = [images.sources[row] for row in chosen[start : start + _PHOTOS_AT_A_TIME]]
        part = read_images(sources, (3, _SIDE, _SIDE))
        maps.clear()
        with torch.inference_mode():
            network(torch.from_numpy(part))
        cells = maps[0].flatten(2).transpose(1, 2).numpy()
        for photo, found in enumerate(cells, start=start):
            positions = random.permutation(len(found))[:_POSITIONS]
            rows[photo * _POSITIONS : (photo + 1) * _POSITIONS] = found[positions]
    projected = _on_principal_components(rows, random)
    apart = query_photos * _POSITIONS
    return projected[:-apart], projected[-apart:]


def _on_principal_components(rows: NDArray[np.float16], random: np.random.Generator) -> NDArray[np.float32]:
    sample = rows[random.permutation(len(rows))[:_LEARNED_ROWS]].astype(np.float32)
    mean = sample.mean(axis=0)
    _, axes = np.linalg.eigh(np.cov(sample - mean, rowvar=False))
    directions = axes[:, ::-1][:, :_COLUMNS].astype(np.float32)
    blocks = [
        (rows[start : start + 10_000].astype(np.float32) - mean) @ directions for start in range(0, len(rows), 10_000)
    ]
    return np.concatenate(blocks)
