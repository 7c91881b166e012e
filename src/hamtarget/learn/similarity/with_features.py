"""A similarity, and beside it the features of the inputs."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor

from hamtarget.errors import ShapeError
from hamtarget.learn.similarity.labels import Labels
from hamtarget.learn.similarity.relation import Similarity


class WithFeatures(Similarity):
    """Any relation, and beside it the features of the items, for losses that keep neighbourhoods.

    Args:
        relation: tells which items are similar.
        features: (items, columns); only their directions count.

    Example:
        >>> both = WithFeatures(Labels(["cat", "dog"]), torch.tensor([[3.0, 0.0], [0.0, 4.0]]))
        >>> both.cosines(torch.tensor([0, 1])).tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, relation: Similarity, features: Tensor) -> None:
        if features.ndim != 2 or len(features) != relation.n_items:
            raise ShapeError(
                f"features have shape {tuple(features.shape)}; expected ({relation.n_items}, columns): a row for each "
                "item of the relation"
            )
        self.relation = relation
        self.n_items = relation.n_items
        self.capturable = relation.capturable
        self._directions = torch.nn.functional.normalize(features.float(), dim=1)

    def cosines(self, items: Tensor) -> Tensor:
        """Return the cosines between the items' features, (b, b)."""
        directions = self._directions[items]
        return directions @ directions.T

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the answer of the relation."""
        return self.relation.between(rows, columns)

    def counts(self) -> Tensor | None:
        """Return the counts of the relation; items without a label count as much as the largest class.

        They have features, so that they can be learned from: they are drawn in groups of their own.
        """
        counts = self.relation.counts()
        if counts is None or not isinstance(self.relation, Labels):
            return counts
        unlabelled = self.relation.unlabelled
        most = torch.minimum(counts.max(), unlabelled.sum() - 1)
        return torch.where(unlabelled, most, counts)

    def draw(self, markers: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return items drawn by the relation; see `counts` for items without a label."""
        return self.relation.draw(markers, count, generator)

    def labels(self, items: Tensor) -> Tensor:
        """Return the labels of the relation."""
        return self.relation.labels(items)

    def subset(self, items: Tensor) -> WithFeatures:
        """Return the relation and the features of some items."""
        return WithFeatures(self.relation.subset(items), self._directions[items])

    def to(self, device: torch.device | str) -> Self:
        """Return the same relation and features on `device`."""
        moved = super().to(device)
        moved.relation = self.relation.to(device)
        return moved
