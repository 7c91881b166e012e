"""Probing reads exactly the rows that a sorted list of all buckets would have it read.

HAMTARGET_CASES sets the number of cases of this file (2,000 by default).
"""

from __future__ import annotations

import os
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hamtarget import _native
from hamtarget.codes import substring_bounds
from hamtarget.query import Asked, Query, Work
from hamtarget.search import Embeddings, MultiIndex

CASES = int(os.environ.get("HAMTARGET_CASES", "2000"))
N_TESTS = 4
# A segment of so many rows has tables of at most 2^10 buckets: few enough to sort them all.
N_ROWS = 2048

some_cases = settings(
    max_examples=max(1, CASES // N_TESTS // 5),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class Case(NamedTuple):
    """An index of one segment whose ids are row numbers, and queries for it."""

    index: MultiIndex
    bits: NDArray[np.bool_]  # of the rows
    embeddings: NDArray[np.int8]
    logits: NDArray[np.float32]
    queries: NDArray[np.int8]
    radius: int

    @property
    def n_tables(self) -> int:
        """Tables of the segment; an index may have chosen their number by the rows."""
        ((_, count, *_),) = self.index.core.parts
        return count

    @property
    def bucket_bits(self) -> int:
        """Bits of a bucket number, if the substring has as many."""
        return max(4, len(self.codes).bit_length()) - 2

    @property
    def has_excerpts(self) -> bool:
        """Whether all tables but the first hold excerpts of codes."""
        ((_, _, excerpt_bytes, _),) = self.index.core.parts
        return excerpt_bytes > 0

    @property
    def codes(self) -> list[list[int]]:
        """Rows of each code, in the order of their first rows; each row has its own code unless many are equal."""
        ((n_rows, _, _, n_codes),) = self.index.core.parts
        if n_codes == n_rows:
            return [[row] for row in range(n_rows)]
        rows: dict[bytes, list[int]] = {}
        for row, code in enumerate(np.packbits(self.bits, axis=1)):
            rows.setdefault(code.tobytes(), []).append(row)
        assert len(rows) == n_codes <= 0.75 * n_rows
        return list(rows.values())


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Clustered codes, int8 embeddings, and logits with many ties, a few of them, or none."""
    n_bits = 8 * draw(st.sampled_from([1, 2, 4, 8, 8, 8, 12, 16, 32, 40]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    built_for = draw(st.integers(0, min(8, n_bits - 1)))
    kind = Embeddings(
        draw(st.sampled_from([1, 5, 64, 70, 128])), "int8", draw(st.sampled_from(["l2", "cosine", "dot"]))
    )
    index = MultiIndex(n_bits, built_for, substrings=draw(st.none() | st.integers(1, built_for + 1)), embeddings=kind)
    n_rows = N_ROWS + draw(st.integers(0, N_ROWS - 1))
    centres = rng.random((draw(st.sampled_from([1, 30])), n_bits)) < 0.5
    bits = centres[rng.integers(0, len(centres), n_rows)] ^ (rng.random((n_rows, n_bits)) < 0.1)
    if draw(st.booleans()):  # each code several times
        bits = bits[rng.integers(0, draw(st.sampled_from([3, 100, n_rows // 2])), n_rows)]
    embeddings = rng.integers(-128, 128, (n_rows, kind.n_dims), dtype=np.int8)
    index.add(np.arange(n_rows), np.packbits(bits, axis=1, bitorder="little"), embeddings)
    index.compact()
    n_queries = draw(st.integers(1, 3))
    sizes = draw(st.sampled_from(["real", "whole", "zero", "wide"]))
    logits = rng.standard_normal((n_queries, n_bits)).astype(np.float32)
    if sizes == "whole":
        logits = np.rint(2 * logits)
    elif sizes == "zero":
        logits[:] = 0
    elif sizes == "wide":
        logits = logits * np.float32(10) ** rng.integers(-30, 30, logits.shape).astype(np.float32)
    queries = rng.integers(-128, 128, (n_queries, kind.n_dims), dtype=np.int8)
    radius = draw(st.integers(0, min(25, n_bits - 1)) | st.integers(0, n_bits - 1))
    return Case(index, bits, embeddings, logits, queries, radius)


def in_units(logits: NDArray[np.float32], largest: int) -> NDArray[np.int64]:
    """|logit| in whole numbers; the largest of them is `largest`."""
    sizes = np.abs(logits).astype(np.float64)
    if not sizes.any():
        return np.zeros(len(sizes), np.int64)
    return np.floor(sizes * (largest / sizes.max()) + 0.5).astype(np.int64)


def bucket_numbers(bits: NDArray[np.bool_], bucket_bits: int) -> NDArray[np.int64]:
    """Numbers of the buckets in which codes lie, by the bits of a substring."""
    length = min(bits.shape[1], bucket_bits)
    folded = np.zeros((len(bits), length), bool)
    for bit in range(min(bits.shape[1], 2 * length)):
        folded[:, bit % length] ^= bits[:, bit]
    return folded @ (1 << np.arange(length))


def naive_rows(case: Case, logits: NDArray[np.float32], budget: int) -> tuple[list[int], int, int]:
    """Rows in the order in which they are read, buckets, and codes read: every bucket is listed, sorted and read."""
    n_tables, codes, bucket_bits = case.n_tables, case.codes, case.bucket_bits
    bits = case.bits[[rows[0] for rows in codes]]
    costs = np.maximum(1, in_units(logits, 2**24))
    wanted = logits > 0
    listed: list[tuple[int, int, int, list[int]]] = []
    bounds = substring_bounds(len(logits), n_tables)
    # A bucket of excerpts has its rows in the order in which they lie in the first table.
    in_first = np.argsort(bucket_numbers(bits[:, slice(*bounds[0])], bucket_bits), kind="stable")
    for table, (start, stop) in enumerate(bounds[: case.radius + 1]):
        length = min(stop - start, bucket_bits)
        flip_costs = [2**24] * length
        for bit in range(min(stop - start, 2 * length)):
            flip_costs[bit % length] = min(flip_costs[bit % length], int(costs[start + bit]))
        numbers = bucket_numbers(bits[:, start:stop] ^ wanted[start:stop], bucket_bits)
        inside: dict[int, list[int]] = {}
        for code in in_first.tolist() if table and case.has_excerpts else range(len(numbers)):
            inside.setdefault(int(numbers[code]), []).append(code)
        for flipped in range(2**length):
            if flipped.bit_count() <= (case.radius - table) // n_tables:
                cost = sum(flip_costs[bit] for bit in range(length) if flipped >> bit & 1)
                listed.append((cost, table, flipped, inside.get(flipped, [])))
    read: list[int] = []
    buckets, left = 0, budget
    for *_, found in sorted(listed):
        if left == 0:
            break
        buckets += 1
        read += found[:left]
        left -= min(left, max(1, len(found)))
    return [row for code in read for row in codes[code]], buckets, len(read)


def naive_hits(case: Case, query: int, budget: int) -> tuple[dict[int, int], int, int]:
    """Distances of the rows that are found, by id; buckets and rows read."""
    read, buckets, candidates = naive_rows(case, case.logits[query], budget)
    distances = (case.bits ^ (case.logits[query] > 0)).sum(axis=1)
    return {row: int(distances[row]) for row in read if distances[row] <= case.radius}, buckets, candidates


def all_within(case: Case, query: int) -> dict[int, int]:
    """Distances of all rows within the radius, by id."""
    distances = (case.bits ^ (case.logits[query] > 0)).sum(axis=1)
    return {row: int(distances[row]) for row in np.flatnonzero(distances <= case.radius).tolist()}


@some_cases
@given(cases(), st.data())
def test_a_budget_reads_the_cheapest_buckets(case: Case, data: st.DataObject) -> None:
    budget = data.draw(st.integers(1, len(case.bits) - 1))
    found = case.index.search_batch(Asked(logits=case.logits), budget=budget, radius=case.radius, work=Work(costs=True))
    for query, hits in enumerate(found):
        expected, buckets, candidates = naive_hits(case, query, budget)
        assert [(hit.distance, hit.id) for hit in hits] == sorted((d, id) for id, d in expected.items())
        assert hits.cost is not None
        assert (hits.cost.buckets, hits.cost.candidates) == (buckets, candidates)


@some_cases
@given(cases(), st.data())
def test_comparisons_take_the_nearest_by_logits(case: Case, data: st.DataObject) -> None:
    budget = data.draw(st.integers(1, 2 * len(case.bits)))
    comparisons = data.draw(st.integers(1, 50) | st.integers(1, 3000))
    filter = case.index.core.ids()[:: data.draw(st.integers(1, 3))] if data.draw(st.booleans()) else None
    wanted = Query(case.radius, budget=budget, comparisons=comparisons, filter=filter, rerank=10_000)
    found = case.index.answer(Asked(logits=case.logits, embeddings=case.queries), wanted, Work(costs=True))
    for query, hits in enumerate(found):
        expected = naive_hits(case, query, budget)[0] if budget < len(case.bits) else all_within(case, query)
        allowed = set(expected) if filter is None else set(expected) & set(filter.tolist())
        units = (case.bits ^ (case.logits[query] > 0)) @ in_units(case.logits[query], 63)
        nearest = sorted(allowed, key=lambda id: (units[id], id))[:comparisons]
        assert {(hit.id, hit.distance) for hit in hits} == {(id, expected[id]) for id in nearest}
        assert hits.cost is not None
        assert hits.cost.comparisons == len(nearest)


@some_cases
@given(cases(), st.data())
def test_rerank_gives_the_closest_of_what_is_found(case: Case, data: st.DataObject) -> None:
    budget = data.draw(st.integers(1, 2 * len(case.bits)))
    count = data.draw(st.integers(1, 30) | st.integers(1, 2000))
    found = case.index.search_batch(
        Asked(logits=case.logits, embeddings=case.queries), budget=budget, radius=case.radius, rerank=count
    )
    all_found = case.index.search_batch(
        Asked(logits=case.logits, embeddings=case.queries), budget=budget, radius=case.radius, rerank=100_000
    )
    assert case.index.embeddings is not None
    for query, (hits, all_hits) in enumerate(zip(found, all_found, strict=True)):
        # Sums of int8 are exact: ties are ties, and the smaller id comes first.
        assert list(hits) == sorted(all_hits, key=lambda hit: (hit.embedding_distance, hit.id))[:count]
        wanted = case.queries[query].astype(np.int64)
        for hit in hits[:5]:
            row = case.embeddings[hit.id].astype(np.int64)
            product = int(row @ wanted)
            norms = np.sqrt(float(row @ row)) * np.sqrt(float(wanted @ wanted))
            exact = {
                "l2": np.sqrt(((row - wanted) ** 2).sum()),
                "dot": -product,
                "cosine": 1 - product / norms if norms else 1,
            }[case.index.embeddings.metric]
            assert hit.embedding_distance == pytest.approx(exact, rel=1e-5, abs=1e-5)


@some_cases
@given(cases(), st.data())
def test_without_embeddings_logits_rank_the_hits(case: Case, data: st.DataObject) -> None:
    budget = data.draw(st.integers(1, 2 * len(case.bits)))
    count = data.draw(st.integers(1, 50) | st.integers(1, 5000))
    plain = MultiIndex(case.index.n_bits, case.index.radius or 0, substrings=case.n_tables)
    plain.add(np.arange(len(case.bits)), np.packbits(case.bits, axis=1, bitorder="little"))
    plain.compact()
    case = case._replace(index=plain)  # which may have tables of another kind
    found = plain.search_batch(Asked(logits=case.logits), budget=budget, radius=case.radius, rerank=count)
    for query, hits in enumerate(found):
        logits = case.logits[query]
        expected = naive_hits(case, query, budget)[0] if budget < len(case.bits) else all_within(case, query)
        units = (case.bits ^ (logits > 0)) @ in_units(logits, 63)
        ranked = sorted(expected, key=lambda id: (units[id], id))[:count]
        assert [(hit.id, hit.distance) for hit in hits] == [(id, expected[id]) for id in ranked]
        unit = float(np.abs(logits).max()) / 63
        assert [hit.embedding_distance for hit in hits] == pytest.approx([units[id] * unit for id in ranked], rel=1e-5)


@pytest.mark.parametrize("kernel", _native.kernels())
@pytest.mark.parametrize("n_bytes", [1, 8, 9, 16, 32])
def test_every_kernel_probes_alike(kernel: str, n_bytes: int) -> None:
    rng = np.random.default_rng(n_bytes)
    codes = rng.integers(0, 256, (5000, n_bytes), dtype=np.uint8) & rng.integers(
        0, 256, (5000, n_bytes), dtype=np.uint8
    )
    embeddings = rng.integers(-128, 128, (5000, 70), dtype=np.int8)
    logits = rng.standard_normal((20, 8 * n_bytes)).astype(np.float32)
    queries = np.packbits(logits > 0, axis=1, bitorder="little")
    results = []
    for name in (kernel, "portable"):
        core = _native.MultiIndex(n_bytes, 3, 2, 70, _native.Element.int8, _native.Metric.cosine, kernel=name)
        core.add(np.arange(5000), codes, embeddings.view(np.uint8))
        for comparisons in (None, 40):
            wanted = _native.Search(
                queries, 4 * n_bytes, None, None, None, 9, embeddings[:20].view(np.uint8), logits, 700, comparisons
            )
            results.append([np.asarray(part) for part in core.search(wanted, 1)])
    for one, other in zip(results[:2], results[2:], strict=True):
        for left, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(left, right)
