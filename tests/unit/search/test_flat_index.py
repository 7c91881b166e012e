"""Kernels against numpy, what FlatIndex refuses, and what it leaves alone when it refuses."""

from __future__ import annotations

import importlib
import sys
from threading import Thread

import numpy as np
import pytest

import hamtarget
from hamtarget import _native
from hamtarget.codes import distances
from hamtarget.errors import DtypeError, InputError, MissingExtraError, ShapeError
from hamtarget.search import Answer, FlatIndex, Hit

KERNELS = _native.kernels()
# Around the widths of registers (4 and 8 rows), of groups (16), and of blocks (2,048 rows or 16 KiB).
ROW_COUNTS = [0, 1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 127, 128, 129, 2047, 2048, 2049, 4100]
BYTE_COUNTS = [*range(1, 34), 40, 47, 48, 63, 64, 65, 80, 95, 96, 97, 100, 127, 128]


def near_and_far_codes(rng: np.random.Generator, query: np.ndarray, n_rows: int) -> np.ndarray:
    """Codes at every scale of distance from `query`, itself and its complement included."""
    share = rng.random((n_rows, 1)) ** 3
    flipped = rng.random((n_rows, 8 * len(query))) < share
    codes = query ^ np.packbits(flipped, axis=1, bitorder="little")
    codes[:1] = ~query
    codes[1:2] = query
    return codes


@pytest.fixture
def index() -> FlatIndex:
    index = FlatIndex(16)
    index.add([7, 3, 5], np.array([[0, 0], [1, 0], [255, 255]], dtype=np.uint8))
    return index


def test_portable_kernel_is_always_there() -> None:
    assert KERNELS[-1] == "portable"
    assert len(set(KERNELS)) == len(KERNELS)


def test_unknown_kernel_is_refused() -> None:
    with pytest.raises(ValueError, match="'abacus'"):
        _native.distances(np.zeros(8, np.uint8), np.zeros((1, 8), np.uint8), "abacus")


@pytest.mark.parametrize("n_bytes", BYTE_COUNTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_agrees_with_numpy(kernel: str, n_bytes: int) -> None:
    rng = np.random.default_rng(n_bytes)
    query = rng.integers(0, 256, n_bytes, dtype=np.uint8)
    all_codes = near_and_far_codes(rng, query, max(ROW_COUNTS))
    all_expected = distances(query, all_codes, 8 * n_bytes)[0]
    for n_rows in ROW_COUNTS:
        codes, expected = all_codes[:n_rows], all_expected[:n_rows]
        np.testing.assert_array_equal(_native.distances(query, codes, kernel), expected)
        for radius in (0, n_bytes, 8 * n_bytes):
            rows = np.flatnonzero(expected <= radius)
            positions, found = _native.within(query, codes, radius, kernel)
            np.testing.assert_array_equal(positions, rows)
            np.testing.assert_array_equal(found, expected[rows])


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_reads_codes_at_any_address(kernel: str) -> None:
    rng = np.random.default_rng(0)
    memory = rng.integers(0, 256, 8 * 40 + 8, dtype=np.uint8)
    for shift in range(8):
        query, codes = memory[shift : shift + 8], memory[shift : shift + 8 * 40].reshape(40, 8)
        np.testing.assert_array_equal(_native.distances(query, codes, kernel), distances(query, codes, 64)[0])


def test_one_query_gives_hits_and_a_batch_gives_hits_by_query(index: FlatIndex) -> None:
    code = np.zeros(2, dtype=np.uint8)
    assert index.search(code, 1) == (Hit(7, 0), Hit(3, 1))
    assert index.nearest(code, 1) == (Hit(7, 0),)
    hits = index.search_batch(np.array([[0, 0], [15, 15], [254, 255]], dtype=np.uint8), 1)
    assert isinstance(hits, Answer)
    assert list(hits) == [(Hit(7, 0), Hit(3, 1)), (), (Hit(5, 1),)]
    assert hits[-1] == hits[2] == (Hit(5, 1),)
    assert (hits.offsets.dtype, hits.ids.dtype, hits.distances.dtype) == (np.int64, np.int64, np.uint16)
    for query in (3, -4):
        with pytest.raises(IndexError, match="batch of 3"):
            hits[query]


def test_limit_keeps_the_first_hits(index: FlatIndex) -> None:
    code = np.zeros(2, dtype=np.uint8)
    assert index.search(code, 1, limit=1) == (Hit(7, 0),)
    assert index.search(code, 1, limit=10**30) == (Hit(7, 0), Hit(3, 1))


def test_equal_distances_are_ordered_by_id() -> None:
    index = FlatIndex(8)
    index.add([9, -4, 2**62], np.full((3, 1), 255, dtype=np.uint8))
    assert index.nearest(np.array([255], dtype=np.uint8), 2) == (Hit(-4, 0), Hit(9, 0))


def test_empty_index_and_empty_batch(index: FlatIndex) -> None:
    empty = FlatIndex(16)
    empty.add([], np.empty((0, 2), dtype=np.uint8))
    assert len(empty) == 0
    for found in (empty.search(np.zeros(2, np.uint8), 15), empty.nearest(np.zeros(2, np.uint8), 3)):
        assert found == ()
    assert list(empty.nearest_batch(np.zeros((2, 2), np.uint8), 3)) == [(), ()]
    assert len(index.search_batch(np.empty((0, 2), dtype=np.uint8), 15)) == 0


def test_codes_are_copied() -> None:
    index = FlatIndex(16)
    codes = np.zeros((1, 2), dtype=np.uint8)
    index.add([1], codes)
    codes[:] = 255
    assert index.search(np.zeros(2, np.uint8), 0) == (Hit(1, 0),)


def test_codes_need_not_be_contiguous(index: FlatIndex) -> None:
    wide = np.zeros((6, 4), dtype=np.uint8)
    index.add([10, 11, 12], wide[::2, ::2])
    assert [len(found) for found in index.search_batch(wide[::3, ::2], 0)] == [4, 4]


def test_one_by_one_is_as_all_at_once() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, (300, 3), dtype=np.uint8)
    ids = rng.permutation(300)
    together, alone = FlatIndex(24), FlatIndex(24)
    together.add(ids, codes)
    for id, code in zip(ids, codes, strict=True):
        alone.add([id], code)
    assert len(together) == len(alone) == 300
    assert 299 in alone
    assert 300 not in alone
    assert list(alone.nearest_batch(codes[:20], 9)) == list(together.nearest_batch(codes[:20], 9))


@pytest.mark.parametrize(
    ("ids", "codes", "error", "text"),
    [
        ([1, 1], np.ones((2, 2), np.uint8), InputError, "hold 1 more than once"),
        ([1, 5], np.ones((2, 2), np.uint8), InputError, "id 5 is in this index already"),
        ([1.0], np.ones((1, 2), np.uint8), DtypeError, "float64; expected int64"),
        ([True], np.ones((1, 2), np.uint8), DtypeError, "bool; expected int64"),
        (np.array([1], np.uint64), np.ones((1, 2), np.uint8), DtypeError, "uint64; expected int64"),
        (["a"], np.ones((1, 2), np.uint8), DtypeError, "expected int64"),
        (1, np.ones((1, 2), np.uint8), ShapeError, "0 dimensions; expected 1"),
        ([[1]], np.ones((1, 2), np.uint8), ShapeError, "2 dimensions; expected 1"),
        ([1], np.ones((2, 2), np.uint8), ShapeError, "1 ids for 2 codes"),
        ([], np.ones((2, 2), np.uint8), ShapeError, "0 ids for 2 codes"),
        ([1], np.ones((1, 3), np.uint8), ShapeError, "3 bytes a row; 16 bits take 2"),
        ([1], np.ones((1, 2), np.int64), DtypeError, "int64; expected packed uint8"),
        ([1], np.ones((1, 1, 2), np.uint8), ShapeError, "3 dimensions; expected 2"),
    ],
)
def test_a_refused_add_changes_nothing(
    index: FlatIndex, ids: object, codes: np.ndarray, error: type[Exception], text: str
) -> None:
    query = np.ones(2, dtype=np.uint8)
    before = index.nearest(query, 10)
    with pytest.raises(error, match=text):
        index.add(ids, codes)
    assert len(index) == 3
    assert 1 not in index
    assert index.nearest(query, 10) == before


def test_searches_say_what_is_wrong(index: FlatIndex) -> None:
    code = np.zeros(2, dtype=np.uint8)
    for radius in (-1, 16):
        with pytest.raises(InputError, match=f"radius is {radius}; expected 0 to 15"):
            index.search(code, radius)
    with pytest.raises(DtypeError, match="radius is 1.5"):
        index.search(code, 1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="limit is 0; expected at least 1"):
        index.search(code, 1, limit=0)
    with pytest.raises(InputError, match="k is 0; expected at least 1"):
        index.nearest(code, 0)
    with pytest.raises(DtypeError, match="k is True; expected an integer"):
        index.nearest(code, True)
    with pytest.raises(ShapeError, match="3 bytes a row; 16 bits take 2"):
        index.nearest(np.zeros(3, np.uint8), 1)
    with pytest.raises(DtypeError, match="float64; expected packed uint8"):
        index.search(np.zeros(2), 1)
    with pytest.raises(InputError, match="multiple of 8"):
        FlatIndex(12)


def test_searches_go_on_while_codes_are_added() -> None:
    index = FlatIndex(64)
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 256, (2000, 8), dtype=np.uint8)
    index.add([0], codes[0])
    wrong: list[object] = []

    def search() -> None:
        while len(index) < len(codes):
            seen = len(index)
            found = [hit.id for hit in index.nearest(codes[0], len(codes))]
            if len(found) < seen or sorted(found) != list(range(len(found))):
                wrong.append(found)

    threads = [Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for id in range(1, len(codes)):
        index.add([id], codes[id])
    for thread in threads:
        thread.join()
    assert not wrong


def test_missing_native_core_is_said_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [
        name for name in sys.modules if name.startswith(("hamtarget.search", "hamtarget._core", "hamtarget.query"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(hamtarget, "search")
    monkeypatch.delattr(hamtarget, "_native")
    monkeypatch.setitem(sys.modules, "hamtarget._native", None)
    search = importlib.import_module("hamtarget.search")
    for use in (
        lambda: search.MultiIndex(64, 2),
        lambda: search.FlatIndex(64),
        lambda: search.FlatIndex.open("rows.index"),
        lambda: search.FlatIndex(64, embeddings=search.Embeddings(3)),
        lambda: search.pairs_within(np.zeros((2, 8), np.uint8), 2),
        lambda: importlib.import_module("hamtarget.query").Bounds(rows=1).start(),
        lambda: importlib.import_module("hamtarget.search.tables").choose_substrings(10**6, 64, 2),
    ):
        with pytest.raises(MissingExtraError, match="pip install"):
            use()
    index = search.FlatIndex(16, device="cpu")
    index.add([7], np.zeros((1, 2), np.uint8))
    assert [tuple(hit)[:2] for hit in index.search(np.ones(2, np.uint8), 3)] == [(7, 2)]
    assert importlib.import_module("hamtarget.search.planning").plan(10**6, 64).radius == 2
