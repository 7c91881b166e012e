"""Labels for some items, and pairs for those without."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from hamtarget.errors import ShapeError
from hamtarget.learn.similarity.labels import Labels
from hamtarget.learn.similarity.pairs import SimilarPairs
from hamtarget.learn.similarity.relation import Similarity


class LabelsAndPairs(Similarity):
    """Items with a label are similar if their labels are equal, items without one if they are listed as a pair.

    Args:
        labels: of all items; None for those that are in `pairs`.
        pairs: pairs of items without a label.

    Example:
        >>> both = LabelsAndPairs(Labels(["cat", "cat", None, None]), SimilarPairs([(2, 3)], n_items=4))
        >>> both.matrix(torch.arange(4)).int().tolist()
        [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]
    """

    def __init__(self, labels: Labels, pairs: SimilarPairs) -> None:
        if labels.n_items != pairs.n_items:
            raise ShapeError(f"pairs are of {pairs.n_items:,} items; expected {labels.n_items:,}, as many as labels")
        self.n_items = labels.n_items
        self.capturable = labels.capturable and pairs.capturable
        self._by_label = labels
        self._by_pair = pairs

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return a boolean (rows, columns): True if the labels are equal, or the pair is listed."""
        return self._by_label.between(rows, columns) | self._by_pair.between(rows, columns)

    def counts(self) -> Tensor:
        """Return the number of other items similar to each item."""
        return torch.where(self._by_label.unlabelled, self._by_pair.counts(), self._by_label.counts())

    def draw(self, markers: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` different random items similar to each marker, (markers, count)."""
        drawn = torch.empty(len(markers), count, dtype=torch.int64, device=markers.device)
        unlabelled = self._by_label.unlabelled[markers]
        drawn[unlabelled] = self._by_pair.draw(markers[unlabelled], count, generator)
        drawn[~unlabelled] = self._by_label.draw(markers[~unlabelled], count, generator)
        return drawn

    def labels(self, items: Tensor) -> Tensor:
        """Return a 1 in the column of each item's label."""
        return self._by_label.labels(items)

    def subset(self, items: Tensor) -> LabelsAndPairs:
        """Return the labels and the pairs of some items."""
        return LabelsAndPairs(self._by_label.subset(items), self._by_pair.subset(items))

    def to(self, device: torch.device | str) -> Self:
        """Return the same relation on `device`."""
        moved = super().to(device)
        moved._by_label, moved._by_pair = self._by_label.to(device), self._by_pair.to(device)
        return moved
