"""Training: centres of cells by k-means, in one level for few cells and in two for many, and codebooks of sketches."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from hamtarget.search.neighbors.space import EUCLIDEAN, Floats
from hamtarget.search.neighbors.tuning import Report

Numbers = NDArray[np.int64]

ENTRIES = 16
"""Entries of the codebook of each part."""
ROWS_PER_CELL = 48
"""Rows of the sample for each cell."""
TRAINING_ROWS = 32_768
"""Residuals that codebooks are trained on."""
# From this number of cells on, centres are found in two levels: each step then costs rows x sqrt(cells), not
# rows x cells.
_MOST_IN_ONE_LEVEL = 768
_STEPS = 8
_LAST_STEPS = 3
_BOOK_STEPS = 12
# In the last steps a row is compared with the centres of this many of the nearest groups.
_GROUPS_PER_ROW = 6
_SCORES_AT_A_TIME = 1 << 22
# Elements of the scores of a few parts that are computed at a time.
_BOOK_SCORES_AT_A_TIME = 1 << 23


def train_centres(rows: Floats, n_cells: int, random: np.random.Generator, report: Report) -> Floats:
    """Return centres, (at most n_cells, dims), such that rows lie near one.

    Args:
        rows: a sample of the rows.
        n_cells: centres wanted; equal rows may give fewer.
        random: where centres begin.
        report: called with the share of the work that is done.
    """
    n_cells = min(n_cells, len(rows))
    if n_cells <= _MOST_IN_ONE_LEVEL:
        return _distinct(_lloyd(rows, n_cells, random, _STEPS + _LAST_STEPS, report))
    n_groups = round(math.sqrt(n_cells))
    some = rows if len(rows) <= 256 * n_groups else rows[random.choice(len(rows), 256 * n_groups, replace=False)]
    groups = _lloyd(some, n_groups, random, _STEPS, lambda done: report(0.1 * done))
    members = nearest_centre(rows, groups)
    counts = np.bincount(members, minlength=len(groups))
    shares = _apportion(counts, n_cells)
    order = np.argsort(members, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(counts)])
    parts, of_group = [], []
    for group, share in enumerate(shares):
        if share:
            inside = rows[order[bounds[group] : bounds[group + 1]]]
            part = _distinct(_lloyd(inside, int(share), random, _STEPS, lambda done: None))
            parts.append(part)
            of_group.append(np.full(len(part), group))
        report(0.1 + 0.5 * (group + 1) / len(shares))
    centres, group_of = np.concatenate(parts), np.concatenate(of_group)
    for step in range(_LAST_STEPS):

        def step_report(done: float, step: int = step) -> None:
            report(0.6 + 0.4 * (step + done) / _LAST_STEPS)

        members = grouped_nearest(rows, centres, groups, group_of, _GROUPS_PER_ROW, step_report)
        centres = _moved(rows, centres, members, random)
    return _distinct(centres)


def nearest_centre(rows: Floats, centres: Floats) -> Numbers:
    """Return the number of each row's nearest centre by Euclidean distance."""
    biases = EUCLIDEAN.biases(centres)
    result = np.empty(len(rows), dtype=np.int64)
    step = max(1, _SCORES_AT_A_TIME // len(centres))
    for start in range(0, len(rows), step):
        scores = rows[start : start + step] @ centres.T
        scores -= biases
        result[start : start + step] = scores.argmax(axis=1)
    return result


def grouped_nearest(
    rows: Floats, centres: Floats, groups: Floats, group_of: Numbers, n_groups: int, report: Report
) -> Numbers:
    """Return the number of each row's nearest centre among those of the `n_groups` groups that are nearest to it."""
    n_groups = min(n_groups, len(groups))
    group_biases, biases = EUCLIDEAN.biases(groups), EUCLIDEAN.biases(centres)
    result = np.zeros(len(rows), dtype=np.int64)
    inside = [np.flatnonzero(group_of == group) for group in range(len(groups))]
    step = max(1, 8 * _SCORES_AT_A_TIME // len(groups))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        scores = some @ groups.T
        scores -= group_biases
        nearest = np.argpartition(-scores, n_groups - 1, axis=1)[:, :n_groups].ravel()
        who = np.repeat(np.arange(len(some)), n_groups)
        order = np.argsort(nearest, kind="stable")
        bounds = np.searchsorted(nearest[order], np.arange(len(groups) + 1))
        best = np.full(len(some), -np.inf, dtype=np.float32)
        chosen = np.zeros(len(some), dtype=np.int64)
        for group, those in enumerate(inside):
            report((start + len(some) * group / len(groups)) / len(rows))
            asking = who[order[bounds[group] : bounds[group + 1]]]
            if not len(asking) or not len(those):
                continue
            found = some[asking] @ centres[those].T
            found -= biases[those]
            place = found.argmax(axis=1)
            value = found[np.arange(len(asking)), place]
            better = value > best[asking]
            best[asking[better]] = value[better]
            chosen[asking[better]] = those[place[better]]
        result[start : start + step] = chosen
    report(1.0)
    return result


def _lloyd(rows: Floats, n_cells: int, random: np.random.Generator, steps: int, report: Report) -> Floats:
    """Return centres after `steps` steps of Lloyd's algorithm from random rows."""
    n_cells = min(n_cells, len(rows))
    centres = rows[random.choice(len(rows), n_cells, replace=False)].copy()
    for step in range(steps):
        centres = _moved(rows, centres, nearest_centre(rows, centres), random)
        report((step + 1) / steps)
    return centres


def _moved(rows: Floats, centres: Floats, members: Numbers, random: np.random.Generator) -> Floats:
    """Return each centre moved to the mean of its rows; a centre without rows goes to a row of a cell with many."""
    counts = np.bincount(members, minlength=len(centres))
    order = np.argsort(members, kind="stable")
    filled = np.flatnonzero(counts)
    starts = (np.cumsum(counts) - counts)[filled]
    moved = centres.copy()
    moved[filled] = np.add.reduceat(rows[order], starts, axis=0) / counts[filled, None].astype(np.float32)
    empty = np.flatnonzero(counts == 0)
    if len(empty):
        large = filled[np.argsort(-counts[filled], kind="stable")[: len(empty)]]
        for hole, cell in zip(empty, large, strict=False):
            place = starts[np.searchsorted(filled, cell)] + random.integers(counts[cell])
            moved[hole] = rows[order[place]]
    return moved


def _apportion(counts: Numbers, total: int) -> Numbers:
    """Return whole shares of `total` in proportion to counts, none above its count."""
    ideal = counts * (total / max(1, counts.sum()))
    shares = np.minimum(np.maximum(np.floor(ideal).astype(np.int64), counts > 0), counts)
    left = total - int(shares.sum())
    for place in np.argsort(shares - ideal, kind="stable"):
        if left <= 0:
            break
        if shares[place] < counts[place]:
            shares[place] += 1
            left -= 1
    return np.asarray(shares)


def _distinct(centres: Floats) -> Floats:
    """Return centres without those that are equal to another."""
    return np.unique(centres, axis=0)


def train_codebooks(residuals: Floats, dims_per_part: int, random: np.random.Generator, report: Report) -> Floats:
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
    together = max(1, _BOOK_SCORES_AT_A_TIME // (ENTRIES * len(residuals)))
    for start in range(0, len(parts), together):
        here = slice(start, start + together)
        for _ in range(_BOOK_STEPS):
            books[here] = _moved_entries(parts[here], books[here])
        report(min(1.0, (start + together) / len(parts)))
    return books


def in_parts(rows: Floats, dims_per_part: int) -> Floats:
    """Return rows cut into parts, (parts, rows, dims_per_part), filled with zeros."""
    n_parts = -(-rows.shape[1] // dims_per_part)
    filled = np.zeros((len(rows), n_parts * dims_per_part), dtype=np.float32)
    filled[:, : rows.shape[1]] = rows
    return np.ascontiguousarray(filled.reshape(len(rows), n_parts, dims_per_part).transpose(1, 0, 2))


def nearest_entries(parts: Floats, books: Floats) -> Numbers:
    """Return the nearest entry of each part's codebook, (parts, rows)."""
    scores = parts @ books.transpose(0, 2, 1)
    scores -= 0.5 * np.einsum("pej,pej->pe", books, books)[:, None, :]
    return np.asarray(scores.argmax(axis=2))


def _moved_entries(parts: Floats, books: Floats) -> Floats:
    """Return entries moved to the means of their rows; one without rows goes to a row of the fullest."""
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
