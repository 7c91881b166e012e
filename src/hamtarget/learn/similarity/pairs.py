"""Similarity by lists: of each input's neighbours, or of similar pairs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.learn.similarity.relation import Similarity, draw_places


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
        places = draw_places(lengths, count, generator)
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
        place = draw_places(self._counts[markers], count, generator)
        drawn: Tensor = self._keys[self._starts[markers][:, None] + place] % self.n_items
        return drawn

    def subset(self, items: Tensor) -> SimilarPairs:
        """Return the pairs of which both are among the items."""
        number = torch.full((self.n_items,), -1, device=items.device)
        number[items] = torch.arange(len(items), device=items.device)
        edges = torch.stack([number[self._keys // self.n_items], number[self._keys % self.n_items]], dim=1)
        return SimilarPairs(edges[(edges >= 0).all(dim=1)], len(items), symmetric=False)
