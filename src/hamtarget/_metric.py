"""By what vectors are near to each other."""

from __future__ import annotations

from typing import Literal, get_args

from hamtarget.errors import InputError

MetricName = Literal["l2", "cosine", "dot"]
"""Smaller is nearer: "l2" is the Euclidean distance, "cosine" is 1 - cosine, "dot" is the negative inner product."""


def check_metric(metric: object) -> MetricName:
    """Return `metric` if it is the name of one.

    Raises:
        InputError: it is not.
    """
    for known in get_args(MetricName):
        if metric == known:
            name: MetricName = known
            return name
    raise InputError(f"metric is {str(metric)[:60]!r}; expected one of {', '.join(get_args(MetricName))}")
