"""Inputs of which only some have a label: what is similar among the others, as learned from those with one.

A first training learns from the labelled inputs alone. Its codes show, for an input without a label, whether it is of a
labelled class, and which others are like it: what tells the labelled classes apart often tells others apart, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor

from hamtarget.errors import CrowdedCodesWarning, ShapeError
from hamtarget.learn.similarity.labels import Labels
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors
from hamtarget.learn.similarity.pairs import SimilarPairs
from hamtarget.learn.similarity.relation import Similarity
from hamtarget.progress import Progress

# Of each label with three inputs or more, one of so many has no part in the first training.
_ONE_ASIDE_OF = 7
# An input is as near to the labelled ones as the mean cosine to so many nearest of them.
_NEAREST = 3
# At most so many inputs without a label are learned from, and so many labelled ones are they compared with.
_MOST_INPUTS = 25_000
# Neighbours that are sought of an input: at most so many, and one of so many inputs without a label.
_MOST_NEIGHBORS, _SHARE_OF_OTHERS = 200, 5
# A warning tells of inputs that are left out if they are more than this share of those without a label.
_WORTH_TELLING = 0.01
# Rows of a matrix of cosines at a time.
_ROWS_AT_ONCE = 1024
# Shares of the inputs held out by which the share of labelled classes among the others is estimated.
_SHARES = torch.arange(0.05, 0.951, 0.05)


class LeftOutWarning(UserWarning):
    """Inputs without a label seem to be of labelled classes, and nothing is learned from them."""


@dataclass(frozen=True)
class FoundPairs:
    """Pairs of inputs without a label, and which of these inputs to learn from.

    Attributes:
        relation: similar are inputs of one label, and those without one that were found to be alike.
        learnable: boolean (items,): False for inputs without a label from which nothing is to be learned.
    """

    relation: LabelsAndPairs
    learnable: Tensor


def find_pairs(
    labels: Labels,
    first_training: Callable[[Labels, Tensor], Tensor],
    *,
    neighbors: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> FoundPairs:
    """Return what is similar among all inputs, by what is learned from those with a label.

    Two inputs without a label are similar if each is among the nearest of the other, by the cosine of logits.

    Args:
        labels: the labels that there are; two or more, and some items without one.
        first_training: learns from the labels of some inputs, and their numbers; returns the logits of all, on the CPU.
        neighbors: nearest ones of an input. None: as many as the median label has inputs.
        seed: of the inputs that are held out or drawn.
        progress: called with (done, total) while nearest neighbours are sought.

    Warns:
        LeftOutWarning: inputs without a label seem to be of labelled classes.
    """
    generator = torch.Generator().manual_seed(seed)
    has_label = ~labels.unlabelled
    aside = _held_out(labels, generator)
    first = (has_label & ~aside).nonzero().squeeze(1)
    with warnings.catch_warnings():
        # What is to be said of codes is said of the last ones.
        warnings.simplefilter("ignore", CrowdedCodesWarning)
        directions = F.normalize(first_training(labels.subset(first), first), dim=1)
    without = (~has_label).nonzero().squeeze(1)
    some = without[torch.randperm(len(without), generator=generator)[:_MOST_INPUTS]].sort().values
    others = some
    if aside.any():
        references = first[torch.randperm(len(first), generator=generator)[:_MOST_INPUTS]]
        known = nearness(directions[aside], directions[references])
        seem_labelled = likely_known(nearness(directions[some], directions[references]), known)
        others = some[~seem_labelled]
        if float(seem_labelled.float().mean()) > _WORTH_TELLING:
            warnings.warn(
                f"{int(seem_labelled.sum()):,} of {len(some):,} inputs without a label seem to be of labelled classes, "
                "and are left out; to learn from them, label them",
                LeftOutWarning,
                stacklevel=2,
            )
    if neighbors is None:
        sizes = torch.bincount(labels.numbers[has_label]).float()
        # Of inputs that were drawn, a class has as many fewer.
        neighbors = round(float(sizes[sizes > 0].median()) * len(some) / len(without))
    pairs = others[mutual_neighbors(directions[others], neighbors, progress=progress)]
    learnable = has_label.clone()
    learnable[others] = True
    return FoundPairs(LabelsAndPairs(labels, SimilarPairs(pairs, labels.n_items)), learnable)


def mutual_neighbors(directions: Tensor, k: int, *, progress: Progress | None = None) -> Tensor:
    """Return the pairs of rows each of which is among the k nearest of the other, (pairs, 2).

    Args:
        directions: rows of unit length.
        k: number of neighbours; less where there are few rows, lest all are similar to all.
        progress: called with (done, total).
    """
    n_rows = len(directions)
    k = min(k, _MOST_NEIGHBORS, n_rows // _SHARE_OF_OTHERS)
    if k < 1:
        return torch.empty(0, 2, dtype=torch.int64)
    lists = nearest_neighbors(directions, k, metric="dot", progress=progress)
    rows = torch.arange(n_rows)[:, None].expand_as(lists)
    listed, returned = (rows * n_rows + lists).flatten(), (lists * n_rows + rows).flatten()
    both = listed[torch.isin(listed, returned)]
    pairs = torch.stack([both // n_rows, both % n_rows], dim=1)
    return pairs[pairs[:, 0] < pairs[:, 1]]


def nearness(directions: Tensor, references: Tensor) -> Tensor:
    """Return how near each row is to the references: the mean cosine to the three nearest, (rows,)."""
    parts = [
        (some @ references.T).topk(min(_NEAREST, len(references)), dim=1).values.mean(dim=1)
        for some in directions.split(_ROWS_AT_ONCE)
    ]
    return torch.cat(parts)


def likely_known(found: Tensor, known: Tensor) -> Tensor:
    """Return which of the inputs without a label seem to be of labelled classes, (inputs,).

    Were all of them of labelled classes, as large a share of them would be near to the labelled inputs as of those
    held out. The share of labelled classes among them is the largest that this allows at all degrees of nearness. By it
    the limit is set at which fewest inputs are expected to be taken for the wrong kind.

    Args:
        found: nearness of the inputs without a label.
        known: nearness of labelled inputs that were held out.
    """
    share = _share_of_known(found, known)
    limits = known.sort().values
    # Known inputs below the limit are missed; what is above it beyond the known ones is taken wrongly.
    missed = torch.arange(len(limits)) / len(limits)
    above = 1 - torch.searchsorted(found.sort().values, limits) / len(found)
    wrong = share * missed + (above - share * (1 - missed)).clamp(min=0)
    best = int(wrong.argmin())
    # To take none misses all of them.
    return found >= limits[best] if float(wrong[best]) < share else torch.zeros_like(found, dtype=torch.bool)


def _share_of_known(found: Tensor, known: Tensor) -> float:
    """Return the largest share of labelled classes that the nearness of inputs without a label allows."""
    limits = torch.quantile(known, 1 - _SHARES)
    above = (found[None, :] >= limits[:, None]).float().mean(dim=1)
    # Where few are held out, the least quotient is too small. That errs on the better side: to learn from an input of a
    # labelled class as from another costs less than to leave out one of another class.
    return float((above / _SHARES).min().clamp(max=1.0))


def _held_out(labels: Labels, generator: torch.Generator) -> Tensor:
    """Return which items are held out from the first training, (items,): a part of each label with three or more."""
    order = torch.randperm(labels.n_items, generator=generator)
    numbers = labels.numbers[order]
    sizes = torch.bincount(numbers, minlength=labels.n_labels + 1)
    members = torch.argsort(numbers, stable=True)
    rank = torch.empty_like(members)
    rank[members] = torch.arange(len(members)) - (sizes.cumsum(0) - sizes)[numbers[members]]
    every = sizes.clamp(min=3, max=_ONE_ASIDE_OF)[numbers]
    held_out = torch.empty(labels.n_items, dtype=torch.bool)
    held_out[order] = (rank % every == every - 1) & (numbers < labels.n_labels)
    return held_out


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
