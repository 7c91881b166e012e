"""Centres of cells by k-means: in one level for few cells, in two for many."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from hamtarget.search.neighbors.exact import half_squares

Floats = NDArray[np.float32]
Numbers = NDArray[np.int64]

# From so many cells on, centres are found in two levels: each step then costs rows x sqrt(cells), not rows x cells.
_MOST_IN_ONE_LEVEL = 768
# Rows of the sample for each cell.
ROWS_PER_CELL = 48
_STEPS = 8
_LAST_STEPS = 3
# In the last steps a row is compared with the centres of so many of the nearest groups.
_GROUPS_PER_ROW = 6
_SCORES_AT_A_TIME = 1 << 22


def train_centres(rows: Floats, n_cells: int, random: np.random.Generator, report: Callable[[float], None]) -> Floats:
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
        members = grouped_nearest(rows, centres, groups, group_of, _GROUPS_PER_ROW)
        centres = _moved(rows, centres, members, random)
        report(0.6 + 0.4 * (step + 1) / _LAST_STEPS)
    return _distinct(centres)


def nearest_centre(rows: Floats, centres: Floats) -> Numbers:
    """Return the number of each row's nearest centre by Euclidean distance."""
    halves = half_squares(centres)
    result = np.empty(len(rows), dtype=np.int64)
    step = max(1, _SCORES_AT_A_TIME // len(centres))
    for start in range(0, len(rows), step):
        scores = rows[start : start + step] @ centres.T
        scores -= halves
        result[start : start + step] = scores.argmax(axis=1)
    return result


def grouped_nearest(rows: Floats, centres: Floats, groups: Floats, group_of: Numbers, n_groups: int) -> Numbers:
    """Return the number of each row's nearest centre among those of the `n_groups` groups that are nearest to it."""
    n_groups = min(n_groups, len(groups))
    group_halves, halves = half_squares(groups), half_squares(centres)
    result = np.zeros(len(rows), dtype=np.int64)
    inside = [np.flatnonzero(group_of == group) for group in range(len(groups))]
    step = max(1, 8 * _SCORES_AT_A_TIME // len(groups))
    for start in range(0, len(rows), step):
        some = rows[start : start + step]
        scores = some @ groups.T
        scores -= group_halves
        nearest = np.argpartition(-scores, n_groups - 1, axis=1)[:, :n_groups].ravel()
        who = np.repeat(np.arange(len(some)), n_groups)
        order = np.argsort(nearest, kind="stable")
        bounds = np.searchsorted(nearest[order], np.arange(len(groups) + 1))
        best = np.full(len(some), -np.inf, dtype=np.float32)
        chosen = np.zeros(len(some), dtype=np.int64)
        for group, those in enumerate(inside):
            asking = who[order[bounds[group] : bounds[group + 1]]]
            if not len(asking) or not len(those):
                continue
            found = some[asking] @ centres[those].T
            found -= halves[those]
            place = found.argmax(axis=1)
            value = found[np.arange(len(asking)), place]
            better = value > best[asking]
            best[asking[better]] = value[better]
            chosen[asking[better]] = those[place[better]]
        result[start : start + step] = chosen
    return result


def _lloyd(
    rows: Floats, n_cells: int, random: np.random.Generator, steps: int, report: Callable[[float], None]
) -> Floats:
    """Return centres after `steps` steps of Lloyd's algorithm from random rows."""
    n_cells = min(n_cells, len(rows))
    centres = rows[random.choice(len(rows), n_cells, replace=False)].copy()
    for step in range(steps):
        centres = _moved(rows, centres, nearest_centre(rows, centres), random)
        report((step + 1) / steps)
    return centres


def _moved(rows: Floats, centres: Floats, members: Numbers, random: np.random.Generator) -> Floats:
    """Return each centre moved to the mean of its rows; a centre without rows goes beside one with many."""
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
