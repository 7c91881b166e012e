"""Defaults for learning from vectors alone: for how long, by how large a network, from whose neighbours."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from hamtarget._metric import MetricName
from hamtarget.learn.networks.builder import NetworkOptions
from hamtarget.learn.training.options import TrainingOptions

# From fewer vectors, large batches would hold the same ones again and again.
_ROWS_FOR_LARGE_BATCHES = 10_000
_LARGE_BATCH = 1024
# docs/experiments.md, "Short training", says what more of each would give.
_STEPS = 800
_MARKERS = 25_000
_LAYERS = 2


def vector_training(n_rows: int) -> TrainingOptions:
    """Return for how long to train on so many vectors, of which nothing else is known."""
    if n_rows < _ROWS_FOR_LARGE_BATCHES:
        return TrainingOptions()
    return TrainingOptions(steps=_STEPS, batch_size=_LARGE_BATCH)


def vector_network(options: NetworkOptions, metric: MetricName) -> NetworkOptions:
    """Return the network for vectors of which nothing else is known: what is not chosen is made for quick encoding."""
    return replace(options, layers=options.layers or _LAYERS, unit_length=options.unit_length or metric == "cosine")


def vector_markers(n_rows: int, seed: int) -> Tensor | None:
    """Return the vectors whose neighbours are worth seeking, ascending; None: all of them."""
    if n_rows <= _MARKERS:
        return None
    order = torch.randperm(n_rows, generator=torch.Generator().manual_seed(seed))
    return order[:_MARKERS].sort().values
