"""Pairs within a radius are those that comparing all codes with all others finds, whatever the codes are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hamtarget.codes import distances
from hamtarget.errors import DtypeError, InputError, LimitError, ShapeError
from hamtarget.query import Bounds, Work
from hamtarget.search import FlatIndex, MultiIndex, pairs, pairs_within


def naive(codes, radius):
    """(a, b, distance) of every pair, by comparing all."""
    found = distances(codes, codes, 8 * codes.shape[1])
    a, b = np.nonzero(np.triu(found <= radius, k=1))
    return list(zip(a.tolist(), b.tolist(), found[a, b].tolist(), strict=True))


def listed(blocks):
    return sorted(pair for block in blocks for pair in zip(*(column.tolist() for column in block), strict=True))


@given(
    n_rows=st.integers(0, 300),
    n_bytes=st.sampled_from([1, 3, 8, 9, 16]),
    n_centres=st.integers(1, 40),
    flip=st.floats(0, 0.1),
    radius=st.integers(0, 7),
    threads=st.integers(1, 2),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=60, deadline=None)
def test_all_pairs_and_no_other(n_rows, n_bytes, n_centres, flip, radius, threads, seed):
    random = np.random.default_rng(seed)
    codes = random.integers(0, 256, (n_centres, n_bytes), dtype=np.uint8)[random.integers(0, n_centres, n_rows)]
    codes ^= np.packbits(random.random((n_rows, 8 * n_bytes)) < flip, axis=1, bitorder="little")
    assert listed(pairs_within(codes, radius, work=Work(threads=threads))) == naive(codes, radius)


class Told:
    last = None

    def __call__(self, done, of):
        self.last = (done, of)


def test_many_rows_with_tables_and_ids():
    random = np.random.default_rng(0)
    codes = random.integers(0, 256, (300, 4), dtype=np.uint8)[random.integers(0, 300, 5000)]
    codes ^= np.packbits(random.random((5000, 32)) < 0.03, axis=1, bitorder="little")
    wanted = naive(codes, 2)
    assert listed(pairs_within(codes, 2)) == wanted
    for index in (MultiIndex(32, 2), FlatIndex(32)):
        index.add(np.arange(5000) * 7 - 9, codes)
        progress = Told()
        found = listed(pairs_within(index, 2, work=Work(progress=progress)))
        assert found == [(7 * a - 9, 7 * b - 9, distance) for a, b, distance in wanted]
        assert progress.last == (5000, 5000)
    for block in pairs_within(codes, 2):
        assert (block.a < block.b).all()
        assert (np.diff(block.a) >= 0).all()


@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_bounded_by_pairs_where_codes_repeat(monkeypatch, threads):
    monkeypatch.setattr(pairs, "_MOST_HITS", 1000)
    monkeypatch.setattr(pairs, "_EXPECTED_HITS", 500)
    random = np.random.default_rng(1)
    codes = random.integers(0, 256, (3000, 8), dtype=np.uint8)
    # Crowds of 400 and of 1,500 copies, which come at once: before, in and after a block of single codes.
    codes[100:500] = codes[0]
    codes[1000:2500] = codes[1]
    held = []
    find = MultiIndex.find

    def measured(self, request):
        hits = find(self, request)
        held.append((len(request.codes), len(hits.rows)))
        return hits

    monkeypatch.setattr(MultiIndex, "find", measured)
    limits = Bounds(seconds=60).start()
    blocks = list(pairs_within(codes, 2, work=Work(limits, threads=threads)))
    assert listed(blocks) == naive(codes, 2)
    assert max(len(block.a) for block in blocks) <= 1000
    assert all(n_hits <= 1000 for n_queries, n_hits in held if n_queries > 1)
    assert sum(n_queries for n_queries, _ in held) == len(codes)


def test_a_block_that_is_searched_again_counts_once(monkeypatch):
    codes = np.repeat(np.random.default_rng(2).integers(0, 256, (30, 8), dtype=np.uint8), 100, axis=0)
    n_hits = 30 * 100 * 100
    wanted = Bounds(hits=n_hits, rows=10 * n_hits).start()
    expected = listed(pairs_within(codes, 2, work=Work(wanted)))
    monkeypatch.setattr(pairs, "_MOST_HITS", 1000)
    monkeypatch.setattr(pairs, "_EXPECTED_HITS", 500)
    assert listed(pairs_within(codes, 2, work=Work(Bounds(hits=n_hits, rows=10 * n_hits)))) == expected
    with pytest.raises(LimitError, match="hits") as raised:
        listed(pairs_within(codes, 2, work=Work(Bounds(hits=n_hits - 1))))
    assert raised.value.limit == "hits"
    # Equal codes are read once: each of 3,000 queries reads its own in each of three tables.
    with pytest.raises(LimitError, match="rows"):
        listed(pairs_within(codes, 2, work=Work(Bounds(rows=3 * len(codes) - 1))))


def test_an_index_has_a_radius_and_codes_have_none():
    index = MultiIndex(16, 1)
    index.add([1, 2, 3], np.array([[0, 0], [1, 0], [3, 0]], dtype=np.uint8))
    assert listed(pairs_within(index)) == [(1, 2, 1), (2, 3, 1)]
    assert listed(pairs_within(MultiIndex(16, 1))) == []


@pytest.mark.parametrize(
    ("codes", "radius", "kind", "text"),
    [
        (np.zeros((3, 8), np.uint8), 64, InputError, "radius is 64"),
        (np.zeros((3, 8), np.uint8), None, InputError, "radius is missing"),
        ("flat", None, InputError, "radius is missing"),
        (np.zeros((3, 8)), 2, DtypeError, "dtype float64"),
        (np.zeros(8, np.uint8), 2, ShapeError, "1 dimensions"),
        (np.zeros((3, 0), np.uint8), 2, InputError, "n_bits is 0"),
    ],
)
def test_bad_input_is_refused_before_the_first_block(codes, radius, kind, text):
    with pytest.raises(kind, match=text):
        pairs_within(FlatIndex(16) if isinstance(codes, str) else codes, radius)
