"""Arrays of every layout, type and size mean the same to an index; what cannot be an array raises a typed error.

Each argument is tried as whatever numpy has for the same numbers, at sizes on both sides of every shortcut.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hamtarget import codes as helpers
from hamtarget._checks import check_ids
from hamtarget.errors import HamtargetError, InputError
from hamtarget.query import Asked, Query, Work
from hamtarget.search import Embeddings, FlatIndex, MultiIndex, pairs_within, unit_int8
from hamtarget.search.row_names import RowNames
from hamtarget.search.tables import choose_substrings

N_BITS = 72
RADIUS = 3
SIZES = [0, 1, 700, 70_000]
# Lists of so many numbers only take long.
MOST_LISTED = 1000


class OnlyArray:
    """What pandas and pyarrow look like to numpy."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype)


def every_other(array, axis):
    wide = np.zeros([2 * n if place == axis else n for place, n in enumerate(array.shape)], array.dtype)
    view = wide[(slice(None),) * axis + (slice(None, None, 2),)]
    view[...] = array
    return view


def window(array):
    wide = np.zeros([n + 3 for n in array.shape], array.dtype)
    view = wide[tuple(slice(1, -2) for _ in array.shape)]
    view[...] = array
    return view


def unaligned(array):
    moved = np.frombuffer(bytearray(array.nbytes + 1), array.dtype, offset=1, count=array.size).reshape(array.shape)
    moved[...] = array
    return moved


def read_only(array):
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def mapped(array):
    # An empty file cannot be mapped. A file that is mapped must not be written again, so each has its own name.
    if not array.size:
        return array
    path = mapped.folder / f"{len(list(mapped.folder.iterdir()))}"
    path.write_bytes(array.tobytes())
    return np.memmap(path, array.dtype, "r", shape=array.shape)


LAYOUTS = {
    "C": np.ascontiguousarray,
    "Fortran": np.asfortranarray,
    "reversed rows": lambda array: np.ascontiguousarray(array[::-1])[::-1],
    "reversed columns": lambda array: np.ascontiguousarray(array[..., ::-1])[..., ::-1],
    "every other row": lambda array: every_other(array, 0),
    "every other column": lambda array: every_other(array, array.ndim - 1),
    "window": window,
    "unaligned": unaligned,
    "read-only": read_only,
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "memory map": mapped,
    "__array__": OnlyArray,
    "rows in a list": lambda array: list(array) if len(array) else array,
    "rows in a tuple": lambda array: tuple(array) if len(array) else array,
}
IS_LISTED = ("rows in a list", "rows in a tuple")
INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8"]
FLOATS = ["f2", "f4", "f8", "g"]

every_layout = pytest.mark.parametrize("layout", LAYOUTS)
every_size = pytest.mark.parametrize("n_rows", SIZES)
INDEXES = {
    "multi": lambda: MultiIndex(N_BITS, RADIUS),
    "flat": lambda: FlatIndex(N_BITS),
    "device": lambda: FlatIndex(N_BITS, device="cpu"),
}
every_index = pytest.mark.parametrize("kind", INDEXES)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    mapped.folder = tmp_path


def laid_out(layout, array):
    if layout in IS_LISTED and len(array) > MOST_LISTED:
        pytest.skip("a list")
    return LAYOUTS[layout](array)


def index_of(kind, layout="C", n_rows=0):
    if kind == "device":
        pytest.importorskip("torch")
        if n_rows > MOST_LISTED and layout not in ("C", "Fortran"):
            pytest.skip("torch on the CPU takes long")
    return INDEXES[kind]()


def rows(n_rows, seed=0):
    """Ids in no order, and codes of which many are near each other."""
    rng = np.random.default_rng(seed)
    near = rng.integers(0, 256, (max(1, n_rows // 5), N_BITS // 8), dtype=np.uint8)
    codes = near[rng.integers(0, len(near), n_rows)]
    codes[:, 0] ^= rng.integers(0, 4, n_rows, dtype=np.uint8)
    return rng.permutation(3 * n_rows)[:n_rows], codes


def naive(ids, codes, query, radius, allowed=None):
    distances = np.bitwise_count(codes ^ query).sum(axis=1)
    here = [
        (int(distances[row]), int(ids[row]))
        for row in np.flatnonzero(distances <= radius)
        if allowed is None or int(ids[row]) in allowed
    ]
    return sorted(here)


def pairs_of(found):
    return [[(hit.distance, hit.id) for hit in hits] for hits in found]


@every_size
@every_layout
@every_index
def test_codes(kind, layout, n_rows):
    ids, codes = rows(n_rows)
    queries = np.concatenate((codes[:5], rows(3, seed=1)[1]))
    index = index_of(kind, layout, n_rows)
    index.add(ids, laid_out(layout, codes[::-1].copy()))
    index.replace(ids, laid_out(layout, codes))
    assert np.array_equal(index.get(ids), codes)
    expected = [naive(ids, codes, query, RADIUS) for query in queries]
    asked = laid_out(layout, queries)
    assert pairs_of(index.search_batch(asked, RADIUS)) == expected
    assert pairs_of(index.nearest_batch(asked, 1))[0] == naive(ids, codes, queries[0], 30)[:1]
    for query, hits in zip(queries[:2], expected, strict=False):
        one = laid_out(layout, query)
        assert pairs_of([index.search(one, RADIUS), index.search(one, RADIUS, limit=10**6)]) == [hits, hits]


@every_size
@every_layout
@every_index
def test_ids(kind, layout, n_rows):
    ids, codes = rows(n_rows)
    index = index_of(kind, layout, n_rows)
    index.add(laid_out(layout, ids), codes)
    assert index.ids().tolist() == sorted(ids.tolist())
    assert np.array_equal(index.get(laid_out(layout, ids)), codes)
    some, query = ids[::2].copy(), codes[:1] if n_rows else np.zeros((1, N_BITS // 8), np.uint8)
    hits = [naive(ids, codes, query[0], RADIUS, set(some.tolist()))]
    assert pairs_of(index.search_batch(query, RADIUS, filter=laid_out(layout, some))) == hits
    mask = np.zeros(int(ids.max(initial=0)) + 1, bool)
    mask[some] = True
    assert pairs_of(index.search_batch(query, RADIUS, filter=laid_out(layout, mask))) == hits
    index.delete(laid_out(layout, some))
    assert index.ids().tolist() == sorted(ids[1::2].tolist())


@pytest.mark.parametrize("dtype", INTEGERS)
@every_index
def test_ids_of_every_integer(kind, dtype):
    ids, codes = np.arange(100)[::-1].astype(dtype), rows(100)[1]
    index = index_of(kind)
    for given in (ids, ids.astype(ids.dtype.newbyteorder(">")), ids.tolist(), tuple(ids), range(99, -1, -1)):
        index.add(given, codes)
        assert np.array_equal(index.get(given), codes)
        assert len(index.nearest(codes[0], 100, filter=given)) == 100
        index.delete(given)
    assert len(index) == 0


def test_a_broadcast_is_its_rows():
    _, codes = rows(1)
    same = np.broadcast_to(codes, (5000, codes.shape[1]))
    index = MultiIndex(N_BITS, RADIUS, embeddings=Embeddings(4))
    index.add(np.arange(5000), same, np.broadcast_to(np.float32(2.5), (5000, 4)))
    found, kept = index.get(np.arange(5000))
    assert np.array_equal(found, same)
    assert (kept == 2.5).all()
    assert [len(hits) for hits in index.search_batch(same[:7])] == [5000] * 7
    assert len(index.search(same[0], filter=np.broadcast_to(np.int64(3), 9))) == 1
    assert len(index.search(same[0], filter=np.broadcast_to(True, 9))) == 9
    assert (
        len(index.search(Asked(logits=np.broadcast_to(np.float32(-1), N_BITS)), budget=10**6, radius=N_BITS - 1))
        == 5000
    )


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "u8", "?"])
@every_layout
def test_logits(layout, dtype):
    for n_rows in (0, 1, 700):
        ids, codes = rows(n_rows)
        index = MultiIndex(N_BITS, RADIUS)
        index.add(ids, codes)
        noise = np.random.default_rng(2).uniform(0.6, 9, (8, N_BITS))
        wanted = helpers.unpack(np.concatenate((codes[:5], rows(3, seed=1)[1]))[:8], N_BITS).astype(bool)
        logits = np.where(wanted, noise[: len(wanted)], 0).round().astype(dtype)
        if np.dtype(dtype).kind in "fi":
            logits -= np.where(wanted, 0, 1).astype(dtype)
        queries = np.packbits(wanted, axis=1, bitorder="little")
        expected = [naive(ids, codes, query, RADIUS) for query in queries]
        asked = laid_out(layout, logits)
        assert pairs_of(index.search_batch(Asked(logits=asked), budget=10**6, radius=RADIUS)) == expected
        assert (
            pairs_of([index.search(Asked(logits=laid_out(layout, logits[0])), budget=10**6, radius=RADIUS)])
            == expected[:1]
        )
        assert np.array_equal(helpers.from_logits(asked), queries)
        assert helpers.from_logits(asked).flags.c_contiguous


@every_size
@every_layout
@pytest.mark.parametrize(("element", "dtype"), [("float32", d) for d in FLOATS] + [("float16", "f8"), ("int8", "i1")])
def test_embeddings(layout, n_rows, element, dtype):
    ids, codes = rows(n_rows)
    vectors = np.random.default_rng(3).integers(-100, 100, (n_rows, 6)).astype(dtype)
    index = MultiIndex(N_BITS, RADIUS, embeddings=Embeddings(np.int64(6), element))
    index.add(ids, codes, laid_out(layout, vectors))
    assert np.array_equal(index.get(ids)[1], vectors)
    if n_rows:
        first, one = laid_out(layout, vectors[:3]), laid_out(layout, vectors[0])
        found = index.search_batch(Asked(codes[:3], embeddings=first), N_BITS - 1, rerank=1)
        assert [hits[0].embedding_distance for hits in found] == [0] * min(3, n_rows)
        assert index.nearest(Asked(codes[0], embeddings=one), n_rows, rerank=1) == found[0]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "u8", "?"])
@every_layout
def test_helpers(layout, dtype):
    for n_rows in (0, 1, 900):
        numbers = np.random.default_rng(4).integers(0, 2, (n_rows, N_BITS)).astype(dtype)
        codes = helpers.pack(laid_out(layout, numbers))
        assert np.array_equal(codes, np.packbits(numbers != 0, axis=1, bitorder="little"))
        assert codes.flags.c_contiguous
        given = laid_out(layout, codes)
        assert np.array_equal(helpers.unpack(given, N_BITS), numbers)
        expected = np.bitwise_count(codes[:, None] ^ codes[None, :20]).sum(axis=2)
        assert np.array_equal(helpers.distances(given, laid_out(layout, codes[:20]), N_BITS), expected)
        assert np.array_equal(unit_int8(laid_out(layout, numbers)), 127 * (numbers != 0))
        if n_rows:
            assert np.array_equal(helpers.pack(laid_out(layout, numbers[0])), codes[0])


@pytest.mark.parametrize("n_rows", [0, 1, 700])
@every_layout
def test_pairs(layout, n_rows):
    _, codes = rows(n_rows)
    away = np.bitwise_count(codes[:, None] ^ codes).sum(axis=2)
    a, b = np.nonzero(np.triu(away <= RADIUS, 1))
    found = list(pairs_within(laid_out(layout, codes), RADIUS, work=Work(threads=np.int8(2))))
    assert sorted((int(x), int(y)) for pairs in found for x, y in zip(pairs.a, pairs.b, strict=True)) == sorted(
        zip(a.tolist(), b.tolist(), strict=True)
    )


@every_layout
def test_row_names(layout):
    names = RowNames(100)
    names.add({np.int64(row): f"name {row}" for row in range(100, 110)})
    known = np.array([105, 3, 100])
    assert names.of(np.asarray(laid_out(layout, known))).tolist() == ["name 105", 3, "name 100"]
    given = np.array([5, 104, 110])
    assert names.are_known(np.asarray(laid_out(layout, given))).tolist() == [True, True, False]
    assert not names.know(np.asarray(laid_out(layout, given)))


def small(kind=MultiIndex, embeddings=None):
    index = MultiIndex(N_BITS, RADIUS, embeddings=embeddings) if kind is MultiIndex else FlatIndex(N_BITS)
    ids, codes = rows(50)
    index.add(ids, codes, None if embeddings is None else np.zeros((50, 4), np.float32))
    return index, codes


def with_embeddings():
    return small(embeddings=Embeddings(4))


ZEROS = np.zeros(4, np.float32)
LOGITS = np.ones(N_BITS, np.float32)
# Calls by the whole number that they take.
NUMBERS = {
    "radius": lambda n: (lambda index, codes: index.search(codes[0], n))(*small()),
    "radius of a batch": lambda n: (lambda index, codes: index.search_batch(codes, n))(*small()),
    "radius of a probe": lambda n: (lambda index, _: index.search(Asked(logits=LOGITS), budget=9, radius=n))(*small()),
    "limit": lambda n: (lambda index, codes: index.search(codes[0], 9, limit=n))(*small()),
    "k": lambda n: (lambda index, codes: index.nearest(codes[0], n))(*small()),
    "threads": lambda n: (lambda index, codes: index.search_batch(codes, 9, work=Work(threads=n)))(*small()),
    "rerank": lambda n: (lambda index, codes: index.search(Asked(codes[0], embeddings=ZEROS), 9, rerank=n))(
        *with_embeddings()
    ),
    "budget": lambda n: (lambda index, _: index.search(Asked(logits=LOGITS), budget=n))(*small()),
    "comparisons": lambda n: with_embeddings()[0].answer(
        Asked(logits=LOGITS[None], embeddings=ZEROS[None]), Query(9, budget=9, rerank=1, comparisons=n)
    ),
    "pairs: radius": lambda n: list(pairs_within(rows(50)[1], n)),
    "pairs: threads": lambda n: list(pairs_within(rows(0)[1], 2, work=Work(threads=n))),
    "radius of an index": lambda n: MultiIndex(N_BITS, n),
    "substrings": lambda n: MultiIndex(N_BITS, 9, substrings=n),
    "n_dims": lambda n: Embeddings(n),
    "bits of codes": lambda n: helpers.unpack(np.zeros((5, 1), np.uint8), n),
    "bits of an index": lambda n: FlatIndex(n),
    "bits of a device": lambda n: FlatIndex(n, device="cpu"),
    "substrings of a code": lambda n: helpers.substring_bounds(N_BITS, n),
    "bits of a substring": lambda n: helpers.substring_bounds(n, 1),
    "rows of a plan": lambda n: choose_substrings(n, N_BITS, RADIUS),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_whole_numbers_of_numpy_are_whole_numbers(name):
    if "device" in name:
        pytest.importorskip("torch")
    expected = str(NUMBERS[name](8))
    for dtype in [*INTEGERS, "u8"]:
        assert str(NUMBERS[name](np.dtype(dtype).type(8))) == expected


@pytest.mark.parametrize("value", [True, np.True_, 8.0, np.float64(8), "8", [8], np.array([8]), {8}, 8j], ids=repr)
@pytest.mark.parametrize("name", NUMBERS)
def test_other_numbers_are_refused(name, value):
    with pytest.raises(HamtargetError, match="expected"):
        NUMBERS[name](value)


@pytest.mark.parametrize("value", [-1, 10**30, -(10**30), 10**5000], ids=["-1", "10^30", "-10^30", "10^5000"])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_out_of_range_are_refused_or_as_good_as_the_largest(name, value):
    if value > 0 and name in ("limit", "k", "threads", "rerank", "budget", "comparisons", "pairs: threads"):
        NUMBERS[name](value)
        return
    if name == "bits of a substring" and value > 0:
        assert helpers.substring_bounds(value, 1) == [(0, value)]
        return
    with pytest.raises(InputError, match="expected"):
        NUMBERS[name](value)


class Refusing:
    """An object of another library that has no array to give."""

    def __array__(self, dtype=None, copy=None):
        raise ValueError("no array here")


NOT_ARRAYS: dict[str, Any] = {
    "None": None,
    "a number": 5,
    "a float": 5.5,
    "a bool": True,
    "a text": "abc",
    "bytes": b"abc",
    "an object": object(),
    "a set of texts": {"a", "b"},
    "a dict": {1: 2},
    "a generator": (number for number in range(3)),
    "a list of None": [None],
    "texts": ["a", "b"],
    "complex": np.array([1 + 2j]),
    "dates": np.array(["2020"], "M8[Y]"),
    "times": np.array([3], "m8[s]"),
    "records": np.zeros(3, [("a", int)]),
    "void": np.zeros((3, 9), "V1"),
    "objects": np.array([{}, []], dtype=object),
    "a huge number": [2**70],
    "more than int64": np.array([2**63], np.uint64),
    "three dimensions": np.zeros((2, 2, 2), np.uint8),
    "no columns": np.zeros((1, 0), np.uint8),
    "NaN": np.array([np.nan] * N_BITS),
    "infinity": [[float("inf")] * 4],
    "beyond float32": np.full((1, 4), 1e300),
    "ragged": [[1, 2], [3]],
    "raggedly nested": [[[1]], [2]],
    "a number and a list": [1, [2]],
    "ragged arrays": [np.zeros(2), np.zeros(3)],
    "__array__ that fails": Refusing(),
}


# Calls by the array that they take.
ARRAYS = {
    "add: ids": lambda x: small()[0].add(x, rows(2, 5)[1]),
    "add: codes": lambda x: small()[0].add([1000, 1001], x),
    "add: embeddings": lambda x: with_embeddings()[0].add([1000], rows(1, 5)[1], x),
    "replace: ids": lambda x: small()[0].replace(x, rows(2, 5)[1]),
    "replace: codes": lambda x: small()[0].replace([1, 2], x),
    "delete": lambda x: small()[0].delete(x),
    "get": lambda x: small()[0].get(x),
    "search": lambda x: small()[0].search(x),
    "search of a scan": lambda x: small(FlatIndex)[0].search(x, 3),
    "search_batch": lambda x: small()[0].search_batch(x),
    "nearest": lambda x: small()[0].nearest(x),
    "nearest_batch": lambda x: small()[0].nearest_batch(x),
    "probe": lambda x: small()[0].search(Asked(logits=x), budget=9),
    "probe_batch": lambda x: small()[0].search_batch(Asked(logits=x), budget=9),
    "embedding": lambda x: with_embeddings()[0].search(Asked(rows(1)[1][0], embeddings=x), rerank=1),
    "embeddings": lambda x: with_embeddings()[0].search_batch(Asked(rows(1)[1], embeddings=x), rerank=1),
    "filter": lambda x: small()[0].search(rows(1)[1][0], filter=x),
    "pairs_within": lambda x: list(pairs_within(x, 2)),
    "pack": lambda x: helpers.pack(x),
    "unpack": lambda x: helpers.unpack(x, N_BITS),
    "from_logits": lambda x: helpers.from_logits(x),
    "distances": lambda x: helpers.distances(x, rows(2)[1], N_BITS),
    "distances, of codes": lambda x: helpers.distances(rows(2)[1], x, N_BITS),
    "unit_int8": lambda x: unit_int8(x),
    "check_ids": lambda x: check_ids(x),
}
# What is an array to some of them.
GOOD = {("pack", "NaN"), ("filter", "None"), ("filter", "a bool"), ("unit_int8", "no columns")}


@pytest.mark.parametrize("value", NOT_ARRAYS)
@pytest.mark.parametrize("call", ARRAYS)
def test_what_is_not_an_array_is_refused(call, value):
    if (call, value) in GOOD:
        pytest.skip("an array to this call")
    with pytest.raises(InputError, match=r"expected|holds|missing|not in|have|without|array"):
        ARRAYS[call](NOT_ARRAYS[value])


@pytest.mark.parametrize("kind", [MultiIndex, FlatIndex])
@pytest.mark.parametrize("value", [5, "float32", {"n_dims": 3}, np.zeros(3)], ids=str)
def test_kinds_of_embeddings_that_are_none(kind, value):
    radius = {"radius": 2} if kind is MultiIndex else {}
    with pytest.raises(InputError, match="embeddings are .*; expected Embeddings"):
        kind(N_BITS, **radius, embeddings=value)


@pytest.mark.parametrize("value", [None, 5, np.float32, np.dtype("float32"), np.zeros(2), "float64"], ids=str)
def test_names_of_kinds_that_are_none(value):
    for options in ({"dtype": value}, {"metric": value}):
        with pytest.raises(InputError, match="expected one of"):
            Embeddings(3, **options)
