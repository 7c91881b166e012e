"""Every index finds exactly what ten lines of numpy find, in the same order, whatever happened to it before.

HAMTARGET_CASES sets the number of cases of this file (2,000 by default; `make soak` runs 100,000).
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hamtarget.query import Asked, Work
from hamtarget.search import Embeddings, FlatIndex, Hit, MultiIndex

CASES = int(os.environ.get("HAMTARGET_CASES", "2000"))
N_TESTS = 5
# Segments of at least 2,048 rows have tables; smaller ones are scanned.
TABLE_ROWS = 2048


class Case(NamedTuple):
    """An index, what it should hold, and queries for it."""

    index: MultiIndex | FlatIndex
    ids: NDArray[np.int64]
    codes: NDArray[np.uint8]
    embeddings: NDArray[np.generic]
    queries: NDArray[np.uint8]
    query_embeddings: NDArray[np.generic]


def naive(case: Case, query: NDArray[np.uint8], radius: int, limit: int | None, allowed: set[int] | None) -> list[Hit]:
    """Compare bit by bit, sort, cut."""
    distances = np.bitwise_count(case.codes ^ query).sum(axis=1, dtype=np.int64)
    order = np.lexsort((case.ids, distances))
    order = order[distances[order] <= radius]
    found = [Hit(int(case.ids[row]), int(distances[row])) for row in order]
    return [hit for hit in found if allowed is None or hit.id in allowed][:limit]


def closeness(metric: str, query: NDArray[np.generic], rows: NDArray[np.generic]) -> NDArray[np.float64]:
    """Distance of one embedding to others; smaller is closer."""
    query, rows = query.astype(np.float64), rows.astype(np.float64)
    if metric == "l2":
        return np.sqrt(((rows - query) ** 2).sum(axis=1))
    if metric == "dot":
        return -(rows @ query)
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(query)
    return 1 - np.divide(rows @ query, norms, out=np.zeros(len(rows)), where=norms > 0)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Codes with many duplicates, ids in any order; added in pieces, deleted, replaced, added again, reopened."""
    n_bytes = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 8, 8, 9, 12, 16, 16, 24, 32, 33, 64]))
    n_bits = 8 * n_bytes
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = Embeddings(
        draw(st.integers(1, 40)),
        draw(st.sampled_from(["float32", "float16", "int8"])),
        draw(st.sampled_from(["l2", "cosine", "dot"])),
    )
    radius = draw(st.integers(0, min(20, n_bits - 1)))
    substrings = draw(st.none() | st.integers(1, radius + 1))
    index: MultiIndex | FlatIndex
    if draw(st.sampled_from([True, True, True, False])):
        index = MultiIndex(n_bits, radius, substrings=substrings, embeddings=kind)
    else:
        index = FlatIndex(n_bits, embeddings=kind)
    centres = rng.integers(0, 256, (draw(st.sampled_from([1, 4, 1000])), n_bytes), dtype=np.uint8)
    flips = draw(st.sampled_from([0.0, 0.02, 0.1, 0.5]))

    def near(rows: int) -> NDArray[np.uint8]:
        noise = np.packbits(rng.random((rows, n_bits)) < flips, axis=1, bitorder="little")
        return centres[rng.integers(0, len(centres), rows)] ^ noise.reshape(rows, n_bytes)

    def embed(rows: int) -> NDArray[np.generic]:
        if kind.dtype == "int8":
            return rng.integers(-128, 128, (rows, kind.n_dims), dtype=np.int8)
        return rng.standard_normal((rows, kind.n_dims)).astype(kind.dtype)

    stored: dict[int, tuple[NDArray[np.uint8], NDArray[np.generic]]] = {}
    fresh = iter(rng.permutation(40_000) - 20_000) if draw(st.booleans()) else iter(range(40_000))

    def add(rows: int) -> None:
        ids, codes, embeddings = [int(next(fresh)) for _ in range(rows)], near(rows), embed(rows)
        index.add(ids, codes, embeddings)
        stored.update(zip(ids, zip(codes, embeddings, strict=True), strict=True))

    def some(share: float) -> list[int]:
        return [id for id in stored if rng.random() < share]

    for change in draw(st.lists(st.sampled_from(["few", "few", "many", "delete", "replace", "reopen"]), max_size=5)):
        if change == "few":
            add(draw(st.integers(0, 40)))
        elif change == "many":
            add(TABLE_ROWS + draw(st.integers(-3, 1500)))
        elif change == "delete":
            gone = some(draw(st.sampled_from([0.01, 0.3, 0.8, 1.0])))
            codes_gone = [stored.pop(id) for id in gone]
            index.delete(gone)
            # Some come back, under their own ids.
            back = gone[: len(gone) // 4]
            index.add(
                back,
                np.array([code for code, _ in codes_gone[: len(back)]], np.uint8).reshape(-1, n_bytes),
                np.array([e for _, e in codes_gone[: len(back)]], kind.dtype).reshape(-1, kind.n_dims),
            )
            stored.update(zip(back, codes_gone, strict=False))
        elif change == "replace":
            ids = some(0.1)
            codes, embeddings = near(len(ids)), embed(len(ids))
            index.replace(ids, codes, embeddings)
            stored.update(zip(ids, zip(codes, embeddings, strict=True), strict=True))
        else:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "index"
                index.save(path)
                index = type(index).open(path, mmap=draw(st.booleans()))
    ids = np.array(sorted(stored), np.int64)
    codes = np.array([stored[id][0] for id in ids.tolist()], np.uint8).reshape(-1, n_bytes)
    embeddings = np.array([stored[id][1] for id in ids.tolist()], kind.dtype).reshape(-1, kind.n_dims)
    n_queries = draw(st.integers(0, 3))
    return Case(index, ids, codes, embeddings, near(n_queries), embed(n_queries))


some_cases = settings(
    max_examples=max(1, CASES // N_TESTS),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def radii(case: Case) -> st.SearchStrategy[int]:
    """Smaller and larger than the one the index was built for."""
    return st.integers(0, min(25, case.index.n_bits - 1)) | st.integers(0, case.index.n_bits - 1)


def filters(data: st.DataObject, case: Case) -> tuple[object, set[int] | None]:
    """What to pass as `filter`, and the ids that it allows."""
    kind = data.draw(st.sampled_from(["none", "set", "array", "mask"]))
    if kind == "none":
        return None, None
    if kind == "mask":
        mask = np.random.default_rng(len(case.ids)).random(data.draw(st.sampled_from([0, 10, 5000]))) < 0.5
        return mask, set(np.flatnonzero(mask).tolist())
    ids = case.ids[:: data.draw(st.integers(1, 7))].tolist() + [10**15]
    return (set(ids) if kind == "set" else np.array(ids)), set(ids)


@some_cases
@given(cases(), st.data())
def test_search_finds_every_row_within_the_radius(case: Case, data: st.DataObject) -> None:
    radius = data.draw(radii(case))
    limit = data.draw(st.none() | st.integers(1, 50))
    filter, allowed = filters(data, case)
    expected = [naive(case, query, radius, limit, allowed) for query in case.queries]
    found = case.index.search_batch(
        case.queries, radius, limit=limit, filter=filter, work=Work(threads=data.draw(st.integers(1, 2)))
    )
    assert [list(hits) for hits in found] == expected
    for query, hits in zip(case.queries, expected, strict=True):
        assert list(case.index.search(query, radius, limit=limit, filter=filter)) == hits


@some_cases
@given(cases(), st.data())
def test_nearest_gives_the_first_k(case: Case, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, 20) | st.integers(1, 6_000))
    filter, allowed = filters(data, case)
    expected = [naive(case, query, case.index.n_bits, k, allowed) for query in case.queries]
    assert [list(hits) for hits in case.index.nearest_batch(case.queries, k, filter=filter)] == expected


@some_cases
@given(cases(), st.data())
def test_probing_grows_with_the_budget_to_the_exact_answer(case: Case, data: st.DataObject) -> None:
    radius = data.draw(radii(case))
    limit = data.draw(st.none() | st.integers(1, 50))
    filter, allowed = filters(data, case)
    rng = np.random.default_rng(0)
    bits = np.unpackbits(case.queries, axis=1, bitorder="little").astype(np.float32)
    logits = (2 * bits - 1) * (0.1 + rng.random(bits.shape, dtype=np.float32))
    expected = [naive(case, query, radius, limit, allowed) for query in case.queries]
    before: list[set[Hit]] = [set() for _ in case.queries]
    for budget in (1, 30, 1000, 10**9):
        found = case.index.search_batch(
            Asked(logits=logits), budget=budget, radius=radius, filter=filter, work=Work(costs=True)
        )
        for query, hits in enumerate(found):
            assert before[query] <= set(hits)
            assert set(hits) <= set(naive(case, case.queries[query], radius, None, allowed))
            assert list(hits) == sorted(hits, key=lambda hit: (hit.distance, hit.id))
            assert hits.cost is not None
            assert hits.cost.candidates <= budget
            before[query] = set(hits)
    full = case.index.search_batch(Asked(logits=logits), budget=10**9, radius=radius, limit=limit, filter=filter)
    assert [list(hits) for hits in full] == expected


@some_cases
@given(cases(), st.data())
def test_rerank_gives_the_closest_hits(case: Case, data: st.DataObject) -> None:
    radius = data.draw(radii(case))
    count = data.draw(st.integers(1, 60))
    filter, allowed = filters(data, case)
    kind = case.index.embeddings
    assert kind is not None
    rows = {id: row for row, id in enumerate(case.ids.tolist())}
    found = case.index.search_batch(
        Asked(case.queries, embeddings=case.query_embeddings),
        radius,
        filter=filter,
        rerank=count,
        work=Work(costs=True),
    )
    for query, hits in enumerate(found):
        within = naive(case, case.queries[query], radius, None, allowed)
        assert hits.cost is not None
        assert hits.cost.comparisons == len(within)
        assert len(hits) == min(count, len(within))
        exact = closeness(kind.metric, case.query_embeddings[query], case.embeddings[[rows[h.id] for h in within]])
        expected = dict(zip([(h.id, h.distance) for h in within], exact.tolist(), strict=True))
        got = [hit.embedding_distance for hit in hits]
        assert got == sorted(got)
        # Sums in another order round differently: the same distances, to within that.
        np.testing.assert_allclose(got, [expected[hit.id, hit.distance] for hit in hits], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(got, np.sort(exact)[: len(got)], rtol=1e-4, atol=1e-4)


@some_cases
@given(cases(), st.data())
def test_what_went_in_comes_out(case: Case, data: st.DataObject) -> None:
    assert len(case.index) == len(case.ids)
    assert list(case.index) == case.ids.tolist()
    wanted = (
        case.ids[data.draw(st.lists(st.integers(0, max(0, len(case.ids) - 1)), max_size=9))] if len(case.ids) else []
    )
    codes, embeddings = case.index.get(wanted)
    rows = np.searchsorted(case.ids, wanted)
    np.testing.assert_array_equal(codes, case.codes[rows])
    np.testing.assert_array_equal(embeddings, case.embeddings[rows])
    assert all(id in case.index for id in case.ids[:5].tolist())
    assert 10**15 not in case.index
    case.index.compact()
    assert list(case.index) == case.ids.tolist()
    assert [list(h) for h in case.index.nearest_batch(case.queries, 9)] == [
        naive(case, query, case.index.n_bits, 9, None) for query in case.queries
    ]
