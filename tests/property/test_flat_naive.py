"""FlatIndex finds exactly what ten lines of numpy find, in the same order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hamtarget.search import FlatIndex, Hit


class Case(NamedTuple):
    """An index's content and queries for it."""

    ids: NDArray[np.int64]
    codes: NDArray[np.uint8]
    queries: NDArray[np.uint8]
    index: FlatIndex


def naive(case: Case, query: NDArray[np.uint8], *, radius: int, limit: int | None) -> tuple[Hit, ...]:
    """Compare bit by bit, sort, cut."""
    bits = np.unpackbits(case.codes, axis=1)
    distances = (bits != np.unpackbits(query)).sum(axis=1)
    order = np.lexsort((case.ids, distances))
    first = order[distances[order] <= radius][:limit]
    return tuple(Hit(int(case.ids[row]), int(distances[row])) for row in first)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Codes with many duplicates and near duplicates, ids in any order, added in several calls."""
    n_bytes = draw(st.sampled_from([1, 2, 3, 5, 8, 9, 16, 32, 64, 65, 128]))
    # The scan works in blocks of 16 KiB or 2,048 rows: some cases have a few of them.
    n_rows = draw(st.integers(0, 100) | st.integers(0, min(5_000, 50_000 // n_bytes)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    centres = rng.integers(0, 256, (draw(st.integers(1, 8)), n_bytes), dtype=np.uint8)
    flips = draw(st.sampled_from([0.0, 0.01, 0.1]))

    def near(rows: int) -> NDArray[np.uint8]:
        noise = np.packbits(rng.random((rows, 8 * n_bytes)) < flips, axis=1, bitorder="little")
        return centres[rng.integers(0, len(centres), rows)] ^ noise.reshape(rows, n_bytes)

    codes, queries = near(n_rows), near(draw(st.integers(0, 4)))
    ids = rng.permutation(3 * n_rows)[:n_rows] - n_rows
    index = FlatIndex(8 * n_bytes)
    cuts = sorted(draw(st.lists(st.integers(0, n_rows), max_size=3)))
    for start, stop in zip([0, *cuts], [*cuts, n_rows], strict=True):
        index.add(ids[start:stop], codes[start:stop])
    return Case(ids, codes, queries, index)


@settings(max_examples=150, deadline=None)
@given(cases(), st.data())
def test_search_finds_every_code_within_the_radius(case: Case, data: st.DataObject) -> None:
    radius = data.draw(st.integers(0, case.index.n_bits - 1) | st.integers(0, 3))
    limit = data.draw(st.none() | st.integers(1, 50))
    expected = [naive(case, query, radius=radius, limit=limit) for query in case.queries]
    assert list(case.index.search_batch(case.queries, radius, limit=limit)) == expected
    assert [case.index.search(query, radius, limit=limit) for query in case.queries] == expected


@settings(max_examples=150, deadline=None)
@given(cases(), st.integers(1, 6_000) | st.integers(1, 50))
def test_nearest_gives_the_first_k(case: Case, k: int) -> None:
    expected = [naive(case, query, radius=case.index.n_bits, limit=k) for query in case.queries]
    assert list(case.index.nearest_batch(case.queries, k)) == expected
    assert [case.index.nearest(query, k) for query in case.queries] == expected
