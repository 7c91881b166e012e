"""Codebooks of sketches: 16 entries for each part of a residual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

ENTRIES = 16
# Residuals that codebooks are trained on.
TRAINING_ROWS = 32_768
_STEPS = 12
# Elements of the scores of a few parts that are computed at a time.
_SCORES_AT_A_TIME = 1 << 23


def train_codebooks(
    residuals: Floats, dims_per_part: int, random: np.random.Generator, report: Callable[[float], None]
) -> Floats:
    """Return codebooks, (parts, 16, dims_per_part); where dims are left over, the last part is filled with zeros.

    Args:
        residuals: (rows, dims): rows minus the centres of their cells.
        dims_per_part: numbers of a part.
        random: where entries begin.
        report: called with the share of the work that is done.
    """
    parts = in_parts(residuals, dims_per_part)
    first = random.choice(len(residuals), ENTRIES, replace=len(residuals) < ENTRIES)
    books = parts[:, first].copy()
    together = max(1, _SCORES_AT_A_TIME // (ENTRIES * len(residuals)))
    for start in range(0, len(parts), together):
        here = slice(start, start + together)
        for _ in range(_STEPS):
            books[here] = _moved(parts[here], books[here])
        report(min(1.0, (start + together) / len(parts)))
    return books


def in_parts(rows: Floats, dims_per_part: int) -> Floats:
    """Return rows cut into parts, (parts, rows, dims_per_part), filled with zeros."""
    n_parts = -(-rows.shape[1] // dims_per_part)
    filled = np.zeros((len(rows), n_parts * dims_per_part), dtype=np.float32)
    filled[:, : rows.shape[1]] = rows
    return np.ascontiguousarray(filled.reshape(len(rows), n_parts, dims_per_part).transpose(1, 0, 2))


def nearest_entries(parts: Floats, books: Floats) -> NDArray[np.int64]:
    """Return the nearest entry of each part's codebook, (parts, rows)."""
    scores = parts @ books.transpose(0, 2, 1)
    scores -= 0.5 * np.einsum("pej,pej->pe", books, books)[:, None, :]
    return np.asarray(scores.argmax(axis=2))


def _moved(parts: Floats, books: Floats) -> Floats:
    """Return entries moved to the means of their rows; one without rows goes beside the fullest."""
    chosen = nearest_entries(parts, books)
    moved = books.copy()
    for part, entries in enumerate(chosen):
        counts = np.bincount(entries, minlength=ENTRIES)
        for dim in range(parts.shape[2]):
            sums = np.bincount(entries, weights=parts[part, :, dim], minlength=ENTRIES)
            moved[part, :, dim] = np.where(counts, sums / np.maximum(counts, 1), moved[part, :, dim])
        empty = np.flatnonzero(counts == 0)
        fullest = np.flatnonzero(entries == counts.argmax())
        moved[part, empty] = parts[part, fullest[(np.arange(len(empty)) * 7919) % len(fullest)]]
    return moved
