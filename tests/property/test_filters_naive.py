"""A filter of any kind and size leaves exactly what ten lines of numpy leave, and limits that suffice change nothing.

HAMTARGET_CASES sets the number of cases of this file (400 by default; `make soak` runs 10,000).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from hamtarget import FlatIndex, MultiIndex
from hamtarget.errors import LimitError
from hamtarget.query import Asked, Bounds, Query, Work
from hamtarget.search import Answer, Embeddings

CASES = int(os.environ.get("HAMTARGET_CASES", "400"))
SHARES = (0.0, 0.001, 0.02, 0.5, 0.95, 1.0)


class Case(NamedTuple):
    """An index, what it should hold, and queries for it: enough of them that gathering what passes may pay."""

    index: MultiIndex | FlatIndex
    ids: NDArray[np.int64]
    codes: NDArray[np.uint8]
    embeddings: NDArray[np.float32]
    queries: NDArray[np.uint8]
    query_embeddings: NDArray[np.float32]
    logits: NDArray[np.float32]


def make(rng: np.random.Generator, folder: Path) -> Case:
    """Return codes with many duplicates, added in pieces, some of them deleted; sometimes in a file."""
    n_bytes = int(rng.choice([1, 3, 8, 16]))
    kind = Embeddings(6, "float32", "l2")
    if rng.random() < 0.75:
        index: MultiIndex | FlatIndex = MultiIndex(8 * n_bytes, int(rng.integers(0, 5)), embeddings=kind)
    else:
        index = FlatIndex(8 * n_bytes, embeddings=kind)
    centres = rng.integers(0, 256, (int(rng.choice([1, 20, 5000])), n_bytes), dtype=np.uint8)
    flips = float(rng.choice([0.0, 0.02, 0.5]))

    def near(rows: int) -> NDArray[np.uint8]:
        noise = np.packbits(rng.random((rows, 8 * n_bytes)) < flips, axis=1, bitorder="little")
        return centres[rng.integers(0, len(centres), rows)] ^ noise

    sizes = rng.choice([0, 3, 40, 2100, 4500], int(rng.integers(1, 4)))
    n_rows = int(sizes.sum())
    first = int(rng.choice([0, 0, -900, 2**62]))
    ids = first + (rng.permutation(3 * n_rows)[:n_rows] if rng.random() < 0.5 else np.arange(n_rows))
    codes, embeddings = near(n_rows), rng.standard_normal((n_rows, 6)).astype(np.float32)
    for start, stop in zip(np.cumsum(sizes) - sizes, np.cumsum(sizes), strict=True):
        index.add(ids[start:stop], codes[start:stop], embeddings[start:stop])
    gone = rng.random(n_rows) < rng.choice([0.0, 0.0, 0.1, 0.45])
    index.delete(ids[gone])
    if n_rows and rng.random() < 0.3:
        index.save(folder / "index")
        index = type(index).open(folder / "index", verify=bool(rng.random() < 0.5))
    # A merge between two searches would change what they cost.
    index.core.settle()
    order = np.argsort(ids[~gone])
    n_queries = int(rng.choice([1, 2, 40, 90]))
    logits = rng.standard_normal((n_queries, 8 * n_bytes)).astype(np.float32)
    return Case(
        index,
        ids[~gone][order],
        codes[~gone][order],
        embeddings[~gone][order],
        near(n_queries),
        rng.standard_normal((n_queries, 6)).astype(np.float32),
        logits,
    )


def some_filter(rng: np.random.Generator, case: Case) -> tuple[Any, set[int]]:
    """Return a filter in one of its forms, and the ids that it allows."""
    share = rng.choice(SHARES)
    chosen = case.ids[rng.random(len(case.ids)) < share]
    if len(case.ids) and rng.random() < 0.1:
        chosen = rng.choice(case.ids, 1)
    allowed = set(chosen.tolist())
    # Ids that are not there are allowed to be in a filter, and ids may be there twice.
    others = rng.integers(-(10**6), 10**6, 5)
    form = rng.choice(["array", "set", "mask"])
    if form == "mask" and 0 <= min(allowed, default=0) and max(allowed, default=0) < 10**6:
        mask = np.zeros(max(allowed, default=int(rng.integers(0, 9))) + 1, dtype=bool)
        mask[sorted(allowed)] = True
        return mask, allowed
    everything = np.concatenate((chosen, others, chosen[:3]))
    return set(everything.tolist()) if form == "set" else rng.permutation(everything), allowed | set(others.tolist())


def naive(case: Case, q: int, radius: int, limit: int | None, allowed: set[int]) -> list[tuple[int, int]]:
    """Compare bit by bit, sort, cut."""
    distances = np.bitwise_count(case.codes ^ case.queries[q]).sum(axis=1, dtype=np.int64)
    order = np.lexsort((case.ids, distances))
    order = order[distances[order] <= radius]
    found = [(int(case.ids[row]), int(distances[row])) for row in order]
    return [hit for hit in found if hit[0] in allowed][:limit]


def rows_of(hits: Answer) -> list[list[tuple[int, int]]]:
    return [[(hit.id, hit.distance) for hit in query] for query in hits]


@pytest.mark.parametrize("case_number", range(max(1, CASES // 4)))
def test_filtered_searches_find_what_numpy_finds(case_number, tmp_path):
    rng = np.random.default_rng([case_number, 1])
    case = make(rng, tmp_path)
    filter, allowed = some_filter(rng, case)
    n_bits = case.index.n_bits
    radius = int(rng.choice([0, 2, n_bits // 3, n_bits - 1]))
    limit = rng.choice([None, 1, 7])
    threads = int(rng.integers(1, 3))
    hits = case.index.search_batch(case.queries, radius, limit=limit, filter=filter, work=Work(threads=threads))
    assert rows_of(hits) == [naive(case, q, radius, limit, allowed) for q in range(len(case.queries))]
    nearest = case.index.nearest_batch(case.queries, 5, filter=filter, work=Work(threads=threads))
    assert rows_of(nearest) == [naive(case, q, n_bits, 5, allowed) for q in range(len(case.queries))]
    one = case.index.search(case.queries[0], radius, limit=limit, filter=filter)
    assert [(hit.id, hit.distance) for hit in one] == rows_of(hits)[0]


@pytest.mark.parametrize("case_number", range(max(1, CASES // 4)))
def test_filtered_hits_are_reranked_as_without_a_filter(case_number, tmp_path):
    rng = np.random.default_rng([case_number, 2])
    case = make(rng, tmp_path)
    filter, allowed = some_filter(rng, case)
    radius = int(rng.choice([2, case.index.n_bits - 1]))
    limit = rng.choice([None, 20])
    hits = case.index.search_batch(
        Asked(case.queries, embeddings=case.query_embeddings), radius, limit=limit, filter=filter, rerank=4
    )
    place = {id: row for row, id in enumerate(case.ids.tolist())}
    for q, found in enumerate(hits):
        ids = [id for id, _ in naive(case, q, radius, limit, allowed)]
        rows = case.embeddings[[place[id] for id in ids]].reshape(-1, 6).astype(np.float64)
        far = np.sqrt(((rows - case.query_embeddings[q]) ** 2).sum(axis=1))
        assert len(found) == min(4, len(ids))
        np.testing.assert_allclose([hit.embedding_distance for hit in found], np.sort(far)[:4], rtol=1e-4)
        assert {hit.id for hit in found} <= set(ids)


@pytest.mark.parametrize("case_number", range(max(1, CASES // 4)))
def test_filtered_probes_are_probes_whose_hits_are_filtered(case_number, tmp_path):
    rng = np.random.default_rng([case_number, 3])
    case = make(rng, tmp_path)
    filter, allowed = some_filter(rng, case)
    budget = int(rng.choice([1, 50, 1000, 10**6]))
    radius = int(rng.choice([1, case.index.n_bits // 3, case.index.n_bits - 1]))
    every = case.index.search_batch(Asked(logits=case.logits), budget=budget, radius=radius)
    hits = case.index.search_batch(Asked(logits=case.logits), budget=budget, radius=radius, filter=filter)
    assert rows_of(hits) == [[hit for hit in query if hit[0] in allowed] for query in rows_of(every)]


def calls(rng: np.random.Generator, case: Case, filter: Any) -> dict[str, Callable[..., Answer]]:
    index, n_bits = case.index, case.index.n_bits
    radius = int(rng.choice([0, 2, n_bits // 3, n_bits - 1]))
    limit = rng.choice([None, 1, 7])
    threads = int(rng.integers(1, 3))
    ranked = Asked(case.queries, embeddings=case.query_embeddings)
    likely = Asked(logits=case.logits, embeddings=case.query_embeddings)
    wanted = {
        "search": (Asked(case.queries), Query(radius, limit, filter=filter)),
        "ranked": (ranked, Query(radius, rerank=3, filter=filter)),
        "nearest": (Asked(case.queries), Query(limit=5, filter=filter)),
        "probe": (Asked(logits=case.logits), Query(radius, budget=70, filter=filter)),
        "compared": (likely, Query(n_bits - 1, budget=70, comparisons=9, rerank=3, filter=filter)),
    }
    return {
        name: lambda bounds, question=question: index.answer(*question, Work(bounds, threads, costs=True))
        for name, question in wanted.items()
    }


@pytest.mark.parametrize("case_number", range(max(1, CASES // 4)))
def test_limits_are_exact(case_number, tmp_path):
    """What suffices changes nothing; one row or one hit less ends the search."""
    rng = np.random.default_rng([case_number, 4])
    case = make(rng, tmp_path)
    filter = some_filter(rng, case)[0] if rng.random() < 0.6 else None
    for name, call in calls(rng, case, filter).items():
        free = call(None)
        assert free.costs is not None
        rows = int(free.costs.candidates.sum())
        hits = int(free.costs.comparisons.sum()) if name in ("ranked", "compared") else len(free.rows)
        bound = call(Bounds(seconds=1000, rows=rows, hits=hits, bytes=0).start())
        for left, right in zip(free, bound, strict=True):
            assert left == right
        np.testing.assert_array_equal(free.costs.candidates, bound.costs.candidates)
        for what, count in (("rows", rows), ("hits", hits)):
            if count:
                with pytest.raises(LimitError) as caught:
                    call(Bounds(**{what: count - 1}).start())
                assert caught.value.limit == what, name
