"""Measures of how good codes are, a report of all of them, true neighbours to measure by, and advice on the radius.

The measures need numpy only. `evaluate_codes` computes all of them and what a search would read; its result can be
drawn, which needs matplotlib.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hamtarget._exports import lazy_exports

if TYPE_CHECKING:
    from hamtarget.evaluation.ground_truth import exact_neighbors
    from hamtarget.evaluation.metrics import (
        by_label,
        mean_average_precision,
        precision_recall_by_radius,
    )
    from hamtarget.evaluation.radius_advice import advise_radius
    from hamtarget.evaluation.report import evaluate_codes

__all__ = [
    "advise_radius",
    "by_label",
    "evaluate_codes",
    "exact_neighbors",
    "mean_average_precision",
    "precision_recall_by_radius",
]

_HOMES = {
    "advise_radius": "hamtarget.evaluation.radius_advice",
    "by_label": "hamtarget.evaluation.metrics",
    "evaluate_codes": "hamtarget.evaluation.report",
    "exact_neighbors": "hamtarget.evaluation.ground_truth",
    "mean_average_precision": "hamtarget.evaluation.metrics",
    "precision_recall_by_radius": "hamtarget.evaluation.metrics",
}

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
