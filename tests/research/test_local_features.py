"""Local features of photos: one row for each position, none of a query's photo among the others."""

import numpy as np
from PIL import Image

from research.datasets.local_features import local_features


def test_every_photo_gives_its_rows(tmp_path):
    random = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(2):
            coarse = random.integers(0, 256, (6, 6, 3), dtype=np.uint8)
            Image.fromarray(coarse).resize((240, 230)).save(tmp_path / name / f"{number}.png")
    base, queries = local_features(tmp_path, photos=3, query_photos=1)
    assert base.shape == (300, 256)
    assert queries.shape == (100, 256)
    # Features of a photo are more like those of the same photo than like those of another.
    whole = np.concatenate([base, queries])
    far = np.linalg.norm(whole[:, None] - whole, axis=2)
    np.fill_diagonal(far, np.inf)
    assert np.mean(far.argmin(axis=1) // 100 == np.arange(400) // 100) > 0.7
