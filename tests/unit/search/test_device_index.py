"""FlatIndex on a device, beside a naive twin and FlatIndex in memory: hits, order, filters, changes, bounds.

Runs on the CPU, and on a GPU where there is one. With TRITON_INTERPRET=1 the kernels of the GPU run on the CPU, slowly.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from hamtarget import FlatIndex  # noqa: E402
from hamtarget.errors import DtypeError, InputError, LimitError, ShapeError  # noqa: E402
from hamtarget.query import Asked, Bounds, Work  # noqa: E402
from hamtarget.search import Hit, pairs_within  # noqa: E402
from hamtarget.search.device import searching  # noqa: E402

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
# Below, at and above whole words, powers of two of words, and blocks of bits.
LENGTHS = [8, 24, 32, 64, 72, 96, 128, 256, 320, 512, 1024, 4096]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if INTERPRETED:
        triton_scan = pytest.importorskip("hamtarget.search.device.triton_scan")
        monkeypatch.setattr("hamtarget.search.device.index.scan_for", lambda device: triton_scan.TritonScan())
    return str(request.param)


def crowded_codes(n_rows: int, n_bits: int, seed: int = 0) -> np.ndarray:
    """Codes with many equal distances: a few centres, and rows near them."""
    random = np.random.default_rng(seed)
    centres = random.integers(0, 256, (5, n_bits // 8), dtype=np.uint8)
    flips = np.packbits(random.random((n_rows, n_bits)) < 0.06, axis=1)
    return centres[random.integers(0, 5, n_rows)] ^ flips


def naive(ids: np.ndarray, codes: np.ndarray, query: np.ndarray, radius: int, limit: int | None = None) -> list[Any]:
    distances = np.bitwise_count(codes ^ query).sum(axis=1, dtype=np.int64)
    order = np.lexsort((ids, distances))
    hits = [(int(ids[row]), int(distances[row]), None) for row in order if distances[row] <= radius]
    return hits[:limit]


def filled(n_bits: int, device: str, n_rows: int = 700) -> tuple[FlatIndex, np.ndarray, np.ndarray]:
    random = np.random.default_rng(n_bits)
    ids = random.permutation(10 * n_rows)[:n_rows] - n_rows
    codes = crowded_codes(n_rows, n_bits)
    index = FlatIndex(n_bits, device=device)
    index.add(ids[:-100], codes[:-100])
    index.add(ids[-100:], codes[-100:])
    return index, ids, codes


# The last is more than bits are counted for.
@pytest.mark.parametrize("n_queries", [1, 3, 130])
@pytest.mark.parametrize("n_bits", LENGTHS)
def test_hits_and_their_order_are_those_of_a_naive_scan(n_bits: int, n_queries: int, device: str) -> None:
    index, ids, codes = filled(n_bits, device)
    queries = np.concatenate((codes[:60], crowded_codes(70, n_bits, seed=1)))[-n_queries:]
    for radius in (0, n_bits // 10, n_bits // 2):
        found = index.search_batch(queries, radius)
        assert found.rows.dtype == np.int64
        assert found.distances.dtype == np.uint16
        assert [list(hits) for hits in found] == [naive(ids, codes, query, radius) for query in queries]
    for limit in (1, 5, 400, 2000):
        expected = [naive(ids, codes, query, n_bits // 8, limit) for query in queries]
        assert [list(hits) for hits in index.search_batch(queries, n_bits // 8, limit=limit)] == expected
        expected = [naive(ids, codes, query, n_bits, limit) for query in queries]
        assert [list(hits) for hits in index.nearest_batch(queries, limit)] == expected
    assert list(index.search(queries[0], n_bits // 9)) == naive(ids, codes, queries[0], n_bits // 9)
    assert list(index.nearest(queries[0], 3)) == naive(ids, codes, queries[0], n_bits, 3)


@pytest.mark.parametrize("n_queries", [2, 70])
@pytest.mark.parametrize("n_bits", [8, 32, 64, 96])
def test_equal_and_opposite_codes_are_at_the_ends_of_what_a_radius_reaches(
    n_bits: int, n_queries: int, device: str
) -> None:
    code = np.random.default_rng(n_bits).integers(0, 256, n_bits // 8, dtype=np.uint8)
    queries = np.tile(code, (n_queries, 1))
    index = FlatIndex(n_bits, device=device)
    index.add([3, 4, 5, 6, 7], np.stack((~code, code, ~code, code, ~code)))
    equal, opposite = [(4, 0, None), (6, 0, None)], [(3, n_bits, None), (5, n_bits, None), (7, n_bits, None)]
    for radius in (0, n_bits - 1):
        assert [list(hits) for hits in index.search_batch(queries, radius)] == [equal] * n_queries
    assert [list(hits) for hits in index.search_batch(~queries, n_bits - 1, limit=2)] == [
        [(id, 0, None) for id in (3, 5)]
    ] * n_queries
    for k in (1, 2, 4, 5):
        assert [list(hits) for hits in index.nearest_batch(queries, k)] == [[*equal, *opposite][:k]] * n_queries
    index.delete([4, 6])
    assert [list(hits) for hits in index.nearest_batch(queries, 3)] == [opposite] * n_queries
    assert index.search_batch(queries, n_bits - 1).rows.tolist() == []


@pytest.mark.parametrize("n_bits", [64, 512])
def test_hits_that_do_not_fit_and_spans_that_grow_give_the_same(
    n_bits: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, ids, codes = filled(n_bits, device)
    queries = codes[:125]
    expected = [naive(ids, codes, query, n_bits // 3) for query in queries]
    nearest = [naive(ids, codes, query, n_bits, 7) for query in queries]
    monkeypatch.setattr(searching, "_CAPACITY", 300)
    monkeypatch.setattr(searching, "_QUERIES_AT_A_TIME", 110)
    monkeypatch.setattr(searching, "_FIRST_CELLS", 64)
    monkeypatch.setattr(searching, "_FEW_FIRST_CELLS", 16)
    assert [list(hits) for hits in index.search_batch(queries, n_bits // 3)] == expected
    assert [list(hits) for hits in index.nearest_batch(queries, 7)] == nearest
    assert list(index.search(queries[0], n_bits // 3)) == expected[0]


def test_a_filter_lets_only_its_ids_through(device: str) -> None:
    index, ids, codes = filled(64, device)
    some = np.sort(ids[::3])
    mask = np.zeros(900, dtype=bool)
    mask[100:800] = True
    in_mask = np.isin(ids, np.flatnonzero(mask))
    for allowed, filter in ((np.isin(ids, some), some), (np.isin(ids, some), {*some.tolist(), 10**9}), (in_mask, mask)):
        for query in (codes[0], codes[5]):
            expected = naive(ids[allowed], codes[allowed], query, 20)
            assert list(index.search(query, 20, filter=filter)) == expected
            assert list(index.nearest(query, 4, filter=filter)) == naive(ids[allowed], codes[allowed], query, 64, 4)
        batch = index.search_batch(codes[:120], 20, filter=filter)
        assert [list(hits) for hits in batch] == [naive(ids[allowed], codes[allowed], code, 20) for code in codes[:120]]


def test_changes_are_seen_and_refusals_change_nothing(device: str) -> None:
    index, ids, codes = filled(72, device, n_rows=300)
    for wrong in (lambda: index.add([5, 5], codes[:2]), lambda: index.add(ids[:1], codes[:1])):
        with pytest.raises(InputError, match="more than once|already"):
            wrong()
    for wrong in (lambda: index.delete([10**6]), lambda: index.get([10**6]), lambda: index.replace([10**6], codes[:1])):
        with pytest.raises(InputError, match="not in this index"):
            wrong()
    assert len(index) == 300
    assert index.ids().tolist() == sorted(ids.tolist())
    np.testing.assert_array_equal(index.get(ids[:50]), codes[:50])
    index.delete(ids[10:40])
    index.replace(ids[:5], ~codes[:5])
    index.compact()
    kept = np.r_[ids[:10], ids[40:]]
    now = np.concatenate((~codes[:5], codes[5:10], codes[40:]))
    assert int(ids[10]) not in index
    assert int(ids[0]) in index
    for query in (codes[0], ~codes[0]):
        assert list(index.search(query, 30)) == naive(kept, now, query, 30)


def test_a_search_that_began_before_a_change_does_not_see_it(device: str) -> None:
    index, ids, codes = filled(64, device)
    assert index._scanner is not None
    before = index._scanner.rows.snapshot()
    words = before.words.clone()
    index.add([10**7], codes[:1])
    index.replace(ids[:1], ~codes[:1])
    index.delete(ids[5:9])
    assert len(before.ids) == 700
    assert bool((before.words == words).all())


def test_costs_limits_and_empty_indexes_are_those_of_an_index_in_memory(device: str) -> None:
    there, ids, codes = filled(64, device)
    here = FlatIndex(64)
    assert there.search_batch(codes[:0], 3).offsets.tolist() == [0]
    here.add(ids, codes)
    for index in (here, there):
        assert index.search(codes[0], 3, work=Work(costs=True)).cost == (0, 700, 0)
        costs = index.nearest_batch(codes[:3], 2, work=Work(costs=True)).costs
        assert costs is not None
        assert costs.candidates.tolist() == [700] * 3
        with pytest.raises(LimitError, match="rows"):
            index.search_batch(codes[:3], 3, work=Work(Bounds(rows=2000)))
        with pytest.raises(LimitError, match="hits"):
            index.search(codes[0], 63, work=Work(Bounds(hits=100)))
        with pytest.raises(LimitError):
            index.search(codes[0], 3, work=Work(Bounds(seconds=0)))
    empty = FlatIndex(64, device=device)
    assert empty.search(codes[0], 3) == ()
    assert list(empty.nearest_batch(codes[:2], 3)) == [(), ()]
    assert 5 not in empty


def test_pairs_are_those_of_an_index_in_memory(device: str) -> None:
    there, ids, codes = filled(64, device, n_rows=200)
    here = FlatIndex(64)
    here.add(ids, codes)
    for a, b in zip(pairs_within(there, 9), pairs_within(here, 9), strict=True):
        for found, expected in zip(a, b, strict=True):
            np.testing.assert_array_equal(found, expected)


def test_an_index_goes_to_a_file_and_back(device: str, tmp_path: Path) -> None:
    index, ids, codes = filled(64, device)
    index.save(tmp_path / "rows.index")
    for again in (FlatIndex.open(tmp_path / "rows.index"), FlatIndex.open(tmp_path / "rows.index", device=device)):
        assert list(again.search(codes[0], 20)) == naive(ids, codes, codes[0], 20)
    assert again.device is not None
    assert again.device.startswith(device)


def test_what_a_device_cannot_do_is_refused() -> None:
    with pytest.raises(InputError, match="expected 'cpu' or 'cuda'"):
        FlatIndex(64, device="abacus")
    with pytest.raises(InputError, match="expected 'cpu' or 'cuda'"):
        FlatIndex(64, device="meta")
    with pytest.raises(InputError, match="CUDA GPUs here"):
        FlatIndex(64, device="cuda:99")
    with pytest.raises(DtypeError, match="string"):
        FlatIndex(64, device=3)  # type: ignore[arg-type]
    for n_bits in (0, 12, 4104):
        with pytest.raises(InputError, match="4,096"):
            FlatIndex(n_bits, device="cpu")
    index = FlatIndex(64, device="cpu")
    with pytest.raises(InputError, match="leave it out"):
        index.search(Asked(logits=np.ones(64)), budget=10, radius=3)
    with pytest.raises(ShapeError):
        index.add([1], np.zeros((1, 9), np.uint8))
    assert index.search(np.zeros(8, np.uint8), 3) == ()
    index.add([1], np.zeros((1, 8), np.uint8))
    assert index.search(np.zeros(8, np.uint8), 3) == (Hit(1, 0),)
