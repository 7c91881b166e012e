"""Similarity by labels: one for each input, or several."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.learn.similarity.relation import Similarity, draw_places


class Labels(Similarity):
    """Items are similar if their labels are equal. Items without a label are similar to none.

    Args:
        labels: one label for each item, (items,): integers or strings; None for an item without one.
        unlabelled: the label that stands for none, such as -1.

    Example:
        >>> Labels(["cat", "dog", "cat", None]).counts().tolist()
        [1, 0, 1, 0]
    """

    def __init__(self, labels: Any, *, unlabelled: int | str | None = None) -> None:
        values = labels.cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
        if values.ndim != 1:
            raise ShapeError(f"labels have {values.ndim} dimensions; expected 1: one label an item (or MultiLabels)")
        if values.dtype.kind not in "iubUSO":
            raise DtypeError(
                f"labels have dtype {values.dtype}; expected integers or strings: if the numbers name classes, pass "
                "labels.astype(int)"
            )
        known = np.array([value is not None and value != unlabelled for value in values.tolist()], dtype=bool)
        try:
            different, known_numbers = np.unique(values[known], return_inverse=True)
        except TypeError as error:
            raise DtypeError("labels are of several types; expected all integers, or all strings") from error
        numbers = np.full(len(values), len(different), dtype=np.int64)
        numbers[known] = known_numbers
        self._set_numbers(torch.from_numpy(numbers), len(different))

    def __repr__(self) -> str:
        without = int(self.unlabelled.sum())
        rest = f", {without:,} item{'' if without == 1 else 's'} without one" if without else ""
        return f"Labels({self.n_items:,} items, {self.n_labels:,} labels{rest})"

    def _set_numbers(self, numbers: Tensor, n_labels: int) -> None:
        self.n_items = len(numbers)
        self.n_labels = n_labels
        # Items without a label have the number after the last label.
        self._labels = numbers
        # Items sorted by label: the members of label c are members[starts[c] : starts[c] + sizes[c]].
        self._members = torch.argsort(self._labels, stable=True)
        self._sizes = torch.bincount(self._labels, minlength=n_labels + 1)
        self._starts = torch.cumsum(self._sizes, 0) - self._sizes
        self._rank = torch.empty_like(self._members)
        places = torch.arange(self.n_items, device=numbers.device)
        self._rank[self._members] = places - self._starts[self._labels[self._members]]

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return a boolean (rows, columns): True if the labels are equal."""
        labels = self._labels[rows]
        return (labels[:, None] == self._labels[columns][None, :]) & (labels < self.n_labels)[:, None]

    @property
    def unlabelled(self) -> Tensor:
        """A boolean (items,): True for items without a label."""
        return self._labels == self.n_labels

    @property
    def numbers(self) -> Tensor:
        """The number of each item's label in sorted order, (items,); `n_labels` for items without one."""
        return self._labels

    def labels(self, items: Tensor) -> Tensor:
        """Return a 1 in the column of each item's label; the columns are all labels in sorted order."""
        columns = torch.arange(self.n_labels, device=self._labels.device)
        return (self._labels[items][:, None] == columns).float()

    def counts(self) -> Tensor:
        """Return the number of other items of the same label, for each item."""
        return torch.where(self.unlabelled, 0, self._sizes[self._labels] - 1)

    def draw(self, markers: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` different random items of each marker's label, (markers, count).

        For a marker without a label they are items without one.
        """
        label = self._labels[markers]
        place = draw_places(self._sizes[label] - 1, count, generator)
        # The places of all other members of the label: those from the marker on move up by one.
        place += place >= self._rank[markers][:, None]
        return self._members[self._starts[label][:, None] + place]

    def subset(self, items: Tensor) -> Labels:
        """Return the labels of some items; the labels keep their numbers even if one has no item left."""
        part = copy.copy(self)
        part._set_numbers(self._labels[items], self.n_labels)
        return part


class MultiLabels(Similarity):
    """Items with several labels each are similar if they share one, or if they share enough of them.

    Args:
        labels: (items, labels), not 0 if the item has the label.
        jaccard: if given, the number of shared labels over that of all labels of the two must be above this.

    Example:
        >>> several = MultiLabels([[1, 1, 0], [0, 1, 1], [0, 0, 1]])
        >>> several.matrix(torch.arange(3)).int().tolist()
        [[1, 1, 0], [1, 1, 1], [0, 1, 1]]
    """

    def __init__(self, labels: Any, *, jaccard: float | None = None) -> None:
        values = labels if isinstance(labels, Tensor) else torch.from_numpy(np.asarray(labels))
        if values.ndim != 2:
            raise ShapeError(f"labels have {values.ndim} dimensions; expected 2: (items, labels) of 0 and 1")
        if jaccard is not None and not 0 <= jaccard < 1:
            raise InputError(f"jaccard is {jaccard}; expected 0 or more and less than 1")
        self.n_items, self.n_labels = values.shape
        self.jaccard = jaccard
        self._labels = (values != 0).float()

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return a boolean (rows, columns): True if a label is shared, or the Jaccard index is above the limit."""
        left, right = self._labels[rows], self._labels[columns]
        shared = left @ right.T
        if self.jaccard is None:
            return shared > 0
        united = left.sum(1)[:, None] + right.sum(1)[None, :] - shared
        return shared > self.jaccard * united

    def labels(self, items: Tensor) -> Tensor:
        """Return the items' rows of the matrix of 0 and 1."""
        return self._labels[items]

    def subset(self, items: Tensor) -> MultiLabels:
        """Return the labels of some of the items."""
        return MultiLabels(self._labels[items], jaccard=self.jaccard)
