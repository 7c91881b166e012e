"""Which inputs are similar: by label, by several labels, by neighbours, by pairs, or by any function.

A `Similarity` speaks of items by their row number in the training set. It answers two questions: which pairs of a
batch are similar, and which items may join a marker's group.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hamtarget._metric import MetricName, check_metric
from hamtarget.errors import DtypeError, InputError, ShapeError, SimilarityError
from hamtarget.progress import Progress

# Cells of a (markers, items) matrix that the general `draw` looks at in one go.
_CELLS = 1 << 24
# What an array with two dimensions has to be, and what other lists of numbers are to be passed as.
_SEVERAL_LABELS = "expected several labels for each input, (rows, labels) of 0 and 1"
_OTHER_LISTS = (
    "For lists of neighbours pass Neighbors(similar), for pairs of item numbers SimilarPairs(similar, n_items)"
)


class Similarity(ABC):
    """Tells which of `n_items` items are similar; the relation need be neither symmetric nor transitive.

    Subclasses have `n_items`, `between` and `subset`; faster versions of the other methods are optional.
    """

    n_items: int

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.n_items:,} items)"

    # True if a CUDA graph can hold `matrix`: its shapes do not depend on data, and it never waits for the device.
    capturable = True

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


class Labels(Similarity):
    """Items are similar if their labels are equal. Items without a label are similar to none.

    Args:
        labels: one label for each item, (items,): integers or strings; None for an item of no labelled class. It
            counts as different from all others.
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
        place = _draw_places(self._sizes[label] - 1, count, generator)
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


class Neighbors(Similarity):
    """An item is similar to those in its list of neighbours, whether or not it is in theirs.

    Args:
        neighbors: item numbers, (items, k), without the item itself; see `nearest_neighbors`.
        items: the items whose lists these are, each once; others have none, and are in lists only. None: all items.
        n_items: number of all items, with `items`.

    Example:
        >>> Neighbors([[1], [2], [1]]).matrix(torch.arange(3)).int().tolist()
        [[1, 1, 0], [0, 1, 1], [0, 1, 1]]
        >>> Neighbors([[2]], items=[0], n_items=3).counts().tolist()
        [1, 0, 0]
    """

    def __init__(self, neighbors: Any, *, items: Any = None, n_items: int | None = None) -> None:
        lists = torch.as_tensor(neighbors)
        if lists.ndim != 2 or lists.shape[1] < 1:
            raise ShapeError(f"neighbors have shape {tuple(lists.shape)}; expected (items, k) with k of 1 or more")
        if lists.dtype.is_floating_point or lists.dtype == torch.bool:
            raise DtypeError(f"neighbors have dtype {lists.dtype}; expected integers: item numbers")
        lists = lists.long()
        self.n_items = len(lists) if n_items is None else n_items
        owners = torch.arange(len(lists), device=lists.device) if items is None else torch.as_tensor(items).long()
        if owners.shape != (len(lists),) or (items is None and n_items not in (None, len(lists))):
            raise ShapeError(
                f"there are {len(lists)} lists of neighbors for {tuple(owners.shape)} of items; expected one each"
            )
        for name, numbers in (("neighbors", lists), ("items", owners)):
            if numbers.numel() and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.n_items:
                raise InputError(f"{name} hold item numbers outside 0 to {self.n_items - 1}")
        own = (lists == owners[:, None].to(lists.device)).any(dim=1)
        if own.any():
            raise InputError(f"item {int(owners[own][0])} is in its own list of neighbors; leave it out")
        self._neighbors = lists
        # The place of an item's list. Items without one share the place behind all lists.
        self._place = torch.full((self.n_items,), len(lists), device=lists.device)
        self._place[owners.to(lists.device)] = torch.arange(len(lists), device=lists.device)
        if int((self._place < len(lists)).sum()) != len(lists):
            raise InputError("an item is among items twice; expected each once")

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return a boolean (rows, columns): True if the column's item is in the list of the row's item."""
        n_columns = len(columns)
        # The column in which an item is; of one that is in several, some column stands for all of them.
        column_of = torch.full((self.n_items,), n_columns, device=columns.device)
        column_of[columns] = torch.arange(n_columns, device=columns.device)
        place = self._place[rows]
        found = column_of[self._neighbors[place.clamp(max=len(self._neighbors) - 1)]]
        found = found.masked_fill(place[:, None] == len(self._neighbors), n_columns)
        # What is in no column is marked in one that is cut off.
        similar = torch.zeros(len(rows), n_columns + 1, dtype=torch.bool, device=rows.device)
        similar.scatter_(1, found, True)
        return similar[:, column_of[columns]]

    def counts(self) -> Tensor:
        """Return the length of each list, 0 where there is none."""
        return (self._place < len(self._neighbors)).long() * self._neighbors.shape[1]

    def draw(self, markers: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` different random entries of each marker's list, (markers, count)."""
        lengths = torch.full_like(markers, self._neighbors.shape[1])
        places = _draw_places(lengths, count, generator)
        drawn: Tensor = self._neighbors[self._place[markers][:, None], places]
        return drawn

    def subset(self, items: Tensor) -> SimilarPairs:
        """Return the neighbours that are among the items; as `SimilarPairs`, since the lists differ in length."""
        number = torch.full((self.n_items,), -1, device=items.device)
        number[items] = torch.arange(len(items), device=items.device)
        listed = (self._place[items] < len(self._neighbors)).nonzero().squeeze(1)
        lists = number[self._neighbors[self._place[items[listed]]]]
        first = listed[:, None].expand_as(lists)
        kept = lists >= 0
        return SimilarPairs(torch.stack([first[kept], lists[kept]], dim=1), len(items), symmetric=False)


class SimilarPairs(Similarity):
    """Items are similar if they are listed as a pair.

    Args:
        pairs: item numbers, (pairs, 2).
        n_items: number of items.
        symmetric: True if a pair (i, j) stands for (j, i), too.

    Example:
        >>> SimilarPairs([(0, 2)], n_items=3).counts().tolist()
        [1, 0, 1]
    """

    def __init__(self, pairs: Any, n_items: int, *, symmetric: bool = True) -> None:
        edges = torch.as_tensor(pairs)
        if edges.ndim != 2 or edges.shape[1] != 2:
            raise ShapeError(f"pairs have shape {tuple(edges.shape)}; expected (pairs, 2)")
        if edges.dtype.is_floating_point or edges.dtype == torch.bool:
            raise DtypeError(f"pairs have dtype {edges.dtype}; expected integers: item numbers")
        edges = edges.long()
        if len(edges) and not 0 <= int(edges.min()) <= int(edges.max()) < n_items:
            raise InputError(f"pairs hold item numbers outside 0 to {n_items - 1}")
        self.n_items = n_items
        edges = edges[edges[:, 0] != edges[:, 1]]
        if symmetric:
            edges = torch.cat([edges, edges.flip(1)])
        # Sorted keys serve both look-ups: of a pair by binary search, of an item's list by its start.
        self._keys = torch.unique(edges[:, 0] * n_items + edges[:, 1])
        self._counts = torch.bincount(self._keys // max(1, n_items), minlength=n_items)
        self._starts = torch.cumsum(self._counts, 0) - self._counts

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return a boolean (rows, columns): True if the pair is listed."""
        if len(self._keys) == 0:
            return torch.zeros(len(rows), len(columns), dtype=torch.bool, device=rows.device)
        wanted = rows[:, None] * self.n_items + columns[None, :]
        place = torch.searchsorted(self._keys, wanted).clamp_(max=len(self._keys) - 1)
        found: Tensor = self._keys[place] == wanted
        return found

    def counts(self) -> Tensor:
        """Return the number of items paired with each item."""
        return self._counts

    def draw(self, markers: Tensor, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` different random partners of each marker, (markers, count)."""
        place = _draw_places(self._counts[markers], count, generator)
        drawn: Tensor = self._keys[self._starts[markers][:, None] + place] % self.n_items
        return drawn

    def subset(self, items: Tensor) -> SimilarPairs:
        """Return the pairs of which both are among the items."""
        number = torch.full((self.n_items,), -1, device=items.device)
        number[items] = torch.arange(len(items), device=items.device)
        edges = torch.stack([number[self._keys // self.n_items], number[self._keys % self.n_items]], dim=1)
        return SimilarPairs(edges[(edges >= 0).all(dim=1)], len(items), symmetric=False)


class Custom(Similarity):
    """Items are similar if a function says so.

    Args:
        function: takes two tensors of item numbers, (r,) and (c,), and returns a boolean (r, c), of torch or numpy.
        n_items: number of items.

    Example:
        >>> even = Custom(lambda rows, columns: (rows[:, None] - columns) % 2 == 0, n_items=4)
        >>> even.matrix(torch.arange(3)).int().tolist()
        [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    """

    capturable = False

    def __init__(self, function: Callable[[Tensor, Tensor], Any], n_items: int) -> None:
        self.function = function
        self.n_items = n_items

    def between(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Return the function's answer, after checking its shape and type."""
        similar: Any = self.function(rows, columns)
        if isinstance(similar, np.ndarray) and similar.dtype == np.bool_:
            similar = torch.from_numpy(similar).to(rows.device)
        shape = (len(rows), len(columns))
        if not isinstance(similar, Tensor) or similar.dtype != torch.bool or similar.shape != shape:
            given = (
                f"{similar.dtype} of shape {tuple(similar.shape)}"
                if isinstance(similar, Tensor | np.ndarray)
                else repr(similar)[:40]
            )
            raise ShapeError(
                f"the similarity function gave {given}; expected torch.bool of shape {shape}: it is called with two "
                "lists of item numbers, and answers for each pair, as in labels[rows][:, None] == labels[columns]"
            )
        checked: Tensor = similar
        return checked

    def subset(self, items: Tensor) -> Custom:
        """Return the same function, asked about the original items."""
        return Custom(lambda rows, columns: self.function(items[rows], items[columns]), len(items))


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


def as_similarity(similar: Any, n_items: int) -> Similarity:
    """Return `similar` as a Similarity.

    Args:
        similar: a Similarity; one label for each item, (items,); several labels for each, (items, labels) of 0 and 1;
            or a function of item numbers.
        n_items: number of items.

    Raises:
        ShapeError: it does not speak of `n_items` items, or is neither one label nor a row of labels for each.
        DtypeError: a matrix does not hold numbers.
        InputError: a matrix holds other numbers than 0 and 1, or has a column for each item.
    """
    if isinstance(similar, Similarity):
        result = similar
    elif callable(similar):
        result = Custom(similar, n_items)
    else:
        result = _of_array(_array(similar), n_items)
    if result.n_items != n_items:
        raise ShapeError(f"similar speaks of {result.n_items:,} items; there are {n_items:,} inputs")
    return result


def _array(similar: Any) -> NDArray[Any]:
    try:
        return similar.cpu().numpy() if isinstance(similar, Tensor) else np.asarray(similar)
    except ValueError as error:
        raise ShapeError(
            f"similar holds lists of different lengths; {_SEVERAL_LABELS}. {_OTHER_LISTS}, in which items may have "
            "different numbers of partners"
        ) from error


def _of_array(values: NDArray[Any], n_items: int) -> Labels | MultiLabels:
    """Return labels as a Similarity, unless the array may well mean something else."""
    if values.ndim == 1:
        return Labels(values)
    found = f"similar has shape {values.shape}"
    if values.ndim != 2:
        raise ShapeError(f"{found}; expected (rows,), one label for each input, or (rows, labels) of 0 and 1")
    if values.shape[1] == 1:
        raise ShapeError(f"{found}; expected (rows,) for one label each: pass similar.ravel()")
    if values.dtype.kind not in "biuf":
        raise DtypeError(f"{found} and dtype {values.dtype}; {_SEVERAL_LABELS}")
    if not np.isin(values, (0, 1)).all():
        raise InputError(f"{found} and holds other numbers than 0 and 1; {_SEVERAL_LABELS}. {_OTHER_LISTS}")
    if values.shape == (n_items, n_items):
        raise InputError(
            f"{found}, a column for each input: it may tell which inputs are similar, or be as many labels. For the "
            "first pass SimilarPairs(np.argwhere(similar), n_items), for the second MultiLabels(similar)"
        )
    return MultiLabels(values)


@torch.no_grad()
def nearest_neighbors(
    vectors: Tensor | NDArray[Any],
    k: int,
    *,
    metric: MetricName = "l2",
    rows: Tensor | None = None,
    device: torch.device | str | None = None,
    progress: Progress | None = None,
) -> Tensor:
    """Return the k nearest other rows of each row, or of some rows, (rows, k), nearest first; exact.

    Args:
        vectors: a tensor or an array, (rows, ...).
        k: number of neighbours.
        metric: "l2": the smallest Euclidean distance; "cosine": the largest cosine; "dot": the largest inner product.
        rows: numbers of the rows whose neighbours are wanted. None: all rows.
        device: device to compute on; the result is there, too. None: that of a tensor, or the CPU.
        progress: called with the number of rows done and of all rows.

    Raises:
        InputError: there are not more than k rows, or a row of zeros under "cosine".

    Example:
        >>> nearest_neighbors(torch.tensor([[0.0], [1.0], [5.0]]), 1).tolist()
        [[1], [0], [1]]
    """
    check_metric(metric)
    if not isinstance(vectors, Tensor):
        vectors = torch.from_numpy(np.array(vectors))
    if not 1 <= k < len(vectors):
        raise InputError(f"k is {k}; expected 1 to {len(vectors) - 1}, fewer than the {len(vectors):,} rows")
    everything = vectors.to(device=device or vectors.device, dtype=torch.float32).flatten(1)
    squares = torch.zeros(len(everything), device=everything.device)
    if metric == "l2":
        # Distances are differences of large squares; around the mean the squares are smaller, and so is the rounding.
        everything = everything - everything.mean(dim=0)
        squares = everything.pow(2).sum(dim=1)
    elif metric == "cosine":
        everything = unit_length(everything)
    wanted = torch.arange(len(everything)) if rows is None else rows
    wanted = wanted.to(everything.device)
    result = []
    for some in wanted.split(max(1, _CELLS // len(everything))):
        distance = torch.addmm(squares[None, :], everything[some], everything.T, alpha=-2)
        distance.scatter_(1, some[:, None], torch.inf)
        result.append(distance.topk(k, dim=1, largest=False).indices)
        if progress is not None:
            progress(sum(map(len, result)), len(wanted))
    return torch.cat(result)


def unit_length(vectors: Tensor) -> Tensor:
    """Return vectors, (rows, columns), scaled to unit length.

    Raises:
        InputError: a row is all zeros, and has no direction; the error names the first.
    """
    lengths = vectors.norm(dim=1, keepdim=True)
    if bool((lengths == 0).any()):
        first = int((lengths[:, 0] == 0).nonzero()[0])
        raise InputError(f"row {first} is all zeros, which has no cosine; leave it out, or use metric 'l2' or 'dot'")
    scaled: Tensor = vectors / lengths
    return scaled


def _draw_places(sizes: Tensor, count: int, generator: torch.Generator) -> Tensor:
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
