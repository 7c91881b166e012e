"""Measure how well the codes of a run find relevant images."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.evaluation.metrics import by_label, mean_average_precision, precision_recall_by_radius
from research.paper.image_runs import RunCodes

RANKS = 1000
RADIUS = 2


def scores(codes: RunCodes, *, ranks: int = RANKS) -> dict[str, dict[str, Any]]:
    """Return figures for the whole database and, if part of it was learned from, for the other part.

    Each part has `map` (MAP with the expectation over random order of ties, the main figure), `map_legacy` (ties in the
    order of the database), and at radius 2 `precision` and `recall` over all queries together, `precision_per_query`
    and `hits` per query. `independent_bits` tells how far bits of the database's codes repeat each other.
    """
    parts = {"database": np.ones(len(codes.database), dtype=bool)}
    if codes.trained.any():
        parts["never_trained"] = ~codes.trained
    return {name: _scores_in(codes, rows, ranks) for name, rows in parts.items()}


def quick_map(codes: RunCodes, n_queries: int = 1000) -> float:
    """Return MAP@1000 of the first queries, to watch runs by."""
    relevant = by_label(codes.query_labels[:n_queries], codes.database_labels)
    return mean_average_precision(codes.queries[:n_queries], codes.database, relevant, n_bits=codes.n_bits, k=RANKS)


def _scores_in(codes: RunCodes, rows: Any, ranks: int) -> dict[str, Any]:
    database = codes.database[rows]
    relevant = by_label(codes.query_labels, codes.database_labels[rows])
    curve = precision_recall_by_radius(codes.queries, database, relevant, n_bits=codes.n_bits, max_radius=RADIUS)
    return {
        "map": mean_average_precision(codes.queries, database, relevant, n_bits=codes.n_bits, k=ranks),
        "map_legacy": mean_average_precision(
            codes.queries, database, relevant, n_bits=codes.n_bits, k=ranks, ties="database_order"
        ),
        "precision": float(curve.precision[RADIUS]),
        "precision_per_query": float(curve.precision_per_query[RADIUS]),
        "recall": float(curve.recall[RADIUS]),
        "hits": float(curve.hits[RADIUS]),
        "independent_bits": independent_bits(database),
    }


def independent_bits(codes: NDArray[np.uint8]) -> float:
    """Return how many independent bits would have the same sum of squared correlations as these codes have.

    A bit that is the same in all rows is uncorrelated with the others.

    Example:
        >>> independent_bits(np.array([[0b00], [0b11], [0b00], [0b11]], dtype=np.uint8))
        6.4
    """
    bits = np.unpackbits(codes, axis=1, bitorder="little").astype(np.float64)
    bits -= bits.mean(axis=0)
    length = np.sqrt((bits * bits).sum(axis=0))
    bits /= np.where(length > 0, length, 1)
    correlation = bits.T @ bits
    np.fill_diagonal(correlation, 1)
    return float(correlation.shape[0] ** 2 / (correlation * correlation).sum())
