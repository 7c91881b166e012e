"""Similarity: what every relation between inputs tells a training run.

A `Similarity` speaks of items by their row number in the training set. It answers two questions: which pairs of a
batch are similar, and which items may join a marker's group.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import Self

import torch
from torch import Tensor

from hamtarget.errors import InputError, SimilarityError

# Cells of a (markers, items) matrix that the general `draw` looks at in one go.
_CELLS = 1 << 24


class Similarity(ABC):
    """Tells which of `n_items` items are similar; the relation need be neither symmetric nor transitive.

    Subclasses have `n_items`, `between` and `subset`; faster versions of the other methods are optional.
    """

    n_items: int
    # True if a CUDA graph can hold `matrix`: its shapes do not depend on data, and it never waits for the device.
    capturable = True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_items:,} items)"

    @abstractmethod
    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return a boolean (rows, columns): True if the column's item is similar to the row's item."""

    def matrix(self, items: Tensor) -> Tensor:
        """Return `between` for a batch of items, (b, b); an item that occurs twice is similar to itself."""
        return self.between(items, items) | (items[:, None] == items[None, :])

    def counts(self) -> Tensor | None:
        """Return the number of other items similar to each item; None if counting would be slow."""
        return None

    def markers(self, group_size: int) -> Tensor | None:
        """Return the items with enough similar ones to be the marker of a group; None if `counts` cannot tell."""
        counts = self.counts()
        return None if counts is None else (counts >= group_size - 1).nonzero().squeeze(1)

    def draw(self, markers: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` different random items similar to each marker, without itself, (markers, count).

        Raises:
            SimilarityError: a marker has fewer similar items; the error names it.
        """
        items = torch.arange(self.n_items, device=markers.device)
        parts = []
        for some in markers.split(max(1, _CELLS // max(1, self.n_items))):
            similar = self.between(some, items) & (some[:, None] != items)
            check_enough(some, similar.sum(dim=1), count)
            # The largest of independent random keys are a uniform draw without replacement.
            keys = torch.rand(similar.shape, generator=generator, device=some.device)
            parts.append(torch.where(similar, keys, -1.0).topk(count, dim=1).indices)
        return torch.cat(parts)

    def labels(self, items: Tensor) -> Tensor:
        """Return the labels of some items, (items, labels) of 0 and 1, float32, for losses that learn by label.

        Raises:
            InputError: this relation does not come from labels.
        """
        raise InputError(f"{type(self).__name__} has no labels; this loss needs Labels or MultiLabels")

    def cosines(self, items: Tensor) -> Tensor:
        """Return the cosines between the features of a batch of items, (b, b), for losses that keep neighbourhoods.

        Raises:
            InputError: this relation knows no features.
        """
        raise InputError(
            f"{type(self).__name__} has no features; this loss needs WithFeatures({type(self).__name__}(...), features)"
        )

    @abstractmethod
    def subset(self, items: Tensor) -> Similarity:
        """Return the same relation among some of the items, renumbered 0, 1, ... in the order given."""

    def to(self, device: torch.device | str) -> Self:
        """Return the same relation with its tensors on `device`."""
        moved = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(moved, name, value.to(device))
        return moved


def draw_places(sizes: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` different random places below each size, (sizes, count), by Floyd's method."""
    places = torch.empty(len(sizes), count, dtype=torch.int64, device=sizes.device)
    uniform = torch.rand(len(sizes), count, generator=generator, device=sizes.device, dtype=torch.float64)
    for index in range(count):
        last = sizes - count + index
        place = (uniform[:, index] * (last + 1)).long()
        taken = (places[:, :index] == place[:, None]).any(dim=1)
        places[:, index] = torch.where(taken, last, place)
    return places


def check_enough(markers: Tensor, counts: Tensor, count: int) -> None:
    """Check that each marker has at least `count` similar items.

    Raises:
        SimilarityError: some have fewer; the error names the first, and how many there are.
    """
    short = counts < count
    if short.any():
        first = int(short.nonzero()[0])
        raise SimilarityError(
            f"item {int(markers[first])} has {int(counts[first])} similar items; a group of {count + 1} needs {count} "
            f"({int(short.sum()):,} of {len(markers):,} markers have too few): lower group_size, or choose markers="
        )
