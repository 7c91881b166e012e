"""Pairs of codes as pairs of items, with their ids: codes of one item are not duplicates of each other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native
from hamtarget.items import Id
from hamtarget.search.pairs import Pairs
from hamtarget.store.items.code_rows import FIRST_SEVERAL_ROW, item_rows
from hamtarget.store.reports import Pair

Rows = NDArray[np.int64]

# Pairs that get their ids at a time; limits are looked at in between.
_NAMED_PAIRS = 16_384


def pairs_of_items(blocks: Iterable[Pairs]) -> Iterator[Pairs]:
    """Yield pairs of first rows of items, each once, at the smallest distance of their codes.

    Args:
        blocks: pairs of codes, ascending by `a`; the codes of an item follow each other.
    """
    held: Pairs | None = None
    for pairs in blocks:
        if not len(pairs.b) or pairs.b.max() < FIRST_SEVERAL_ROW:
            # Rows of items with one code come before all others: nothing is held yet.
            yield pairs
            continue
        here = Pairs(item_rows(pairs.a), item_rows(pairs.b), pairs.distances)
        apart = here.a != here.b
        here = Pairs(*(column[apart] for column in here))
        if held is not None:
            here = Pairs(
                np.concatenate((held.a, here.a)),
                np.concatenate((held.b, here.b)),
                np.concatenate((held.distances, here.distances)),
            )
        if not len(here.a):
            continue
        # The item that comes last may have pairs in the next block.
        is_last = here.a == here.a[-1]
        held = _nearest_of_each(Pairs(*(column[is_last] for column in here)))
        yield _nearest_of_each(Pairs(*(column[~is_last] for column in here)))
    if held is not None:
        yield held


def _nearest_of_each(pairs: Pairs) -> Pairs:
    """Return each pair once, by `a` and then `b`, at its smallest distance."""
    order = np.lexsort((pairs.distances, pairs.b, pairs.a))
    a, b = pairs.a[order], pairs.b[order]
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
    return Pairs(a[is_first], b[is_first], pairs.distances[order][is_first])


def name_pairs(
    blocks: Iterable[Pairs], ids_of: Callable[[Rows], dict[int, Id]], limits: _native.Limits | None
) -> Iterator[Pair]:
    """Yield pairs of rows with the ids of these rows, without those of rows that are gone."""
    for pairs in blocks:
        for start in range(0, len(pairs.a), _NAMED_PAIRS):
            if limits is not None:
                limits.check()
            a, b, distances = (column[start : start + _NAMED_PAIRS] for column in pairs)
            ids = ids_of(np.concatenate((a, b)))
            for row_a, row_b, distance in zip(a.tolist(), b.tolist(), distances.tolist(), strict=True):
                if row_a in ids and row_b in ids:
                    yield Pair(ids[row_a], ids[row_b], distance)
