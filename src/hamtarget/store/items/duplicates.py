"""Near duplicates: pairs with their ids."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from hamtarget._core import _native
from hamtarget.items import Id
from hamtarget.search.pairs import Pairs
from hamtarget.store.reports import Pair

Rows = NDArray[np.int64]

# Pairs that get their ids at a time; limits are looked at in between.
_NAMED_PAIRS = 16_384


def name_pairs(
    blocks: Iterable[Pairs], ids_of: Callable[[Rows], dict[int, Id]], limits: _native.Limits | None
) -> Iterator[Pair]:
    """Yield pairs of rows with the ids of these rows, without those that were deleted meanwhile."""
    for pairs in blocks:
        for start in range(0, len(pairs.a), _NAMED_PAIRS):
            if limits is not None:
                limits.check()
            a, b, distances = (column[start : start + _NAMED_PAIRS] for column in pairs)
            ids = ids_of(np.concatenate((a, b)))
            for row_a, row_b, distance in zip(a.tolist(), b.tolist(), distances.tolist(), strict=True):
                if row_a in ids and row_b in ids:
                    yield Pair(ids[row_a], ids[row_b], distance)
