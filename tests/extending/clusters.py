"""Vectors in clusters, for losses, similarities and miners of one's own."""

import numpy as np

from hamtarget.codes import distances


def clusters(n=160, classes=8, columns=12, seed=0):
    """Return vectors near one of several centres, and the numbers of their centres."""
    random = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = 3 * np.random.default_rng(7).normal(size=(classes, columns))
    return (centres[labels] + 0.3 * random.normal(size=(n, columns))).astype(np.float32), labels


def mean_distances(codes, similar, n_bits):
    """Return the mean distances of the codes of similar and of other pairs."""
    far = distances(codes, codes, n_bits)
    others = ~np.eye(len(codes), dtype=bool)
    return far[similar & others].mean(), far[~similar].mean()
