"""What both indexes refuse, and leave alone when they refuse; costs, files, and readers beside a writer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from hamtarget.answer import Cost
from hamtarget.errors import (
    CorruptFileError,
    DtypeError,
    InputError,
    NotFiniteError,
    ShapeError,
    UnsupportedFileError,
)
from hamtarget.query import Asked, Query, Work
from hamtarget.search import Answer, Embeddings, FlatIndex, Hit, MultiIndex, unit_int8

CODE = np.zeros(2, dtype=np.uint8)
VECTOR = np.zeros(3, dtype=np.float32)
LIKELY = Asked(logits=np.ones((1, 16)), embeddings=VECTOR)


@pytest.fixture(params=[MultiIndex, FlatIndex])
def index(request: pytest.FixtureRequest) -> MultiIndex | FlatIndex:
    kind = Embeddings(3)
    index = MultiIndex(16, 1, embeddings=kind) if request.param is MultiIndex else FlatIndex(16, embeddings=kind)
    vectors = np.array([[0, 0, 0], [3, 4, 0], [1, 0, 0]], dtype=np.float32)
    index.add([7, 3, 5], np.array([[0, 0], [1, 0], [255, 255]], dtype=np.uint8), vectors)
    return index


def many(n_rows: int, n_bits: int = 64, radius: int = 2, seed: int = 0) -> tuple[MultiIndex, np.ndarray]:
    """An index of random codes whose ids are their rows, and the codes."""
    codes = np.random.default_rng(seed).integers(0, 256, (n_rows, n_bits // 8), dtype=np.uint8)
    index = MultiIndex(n_bits, radius)
    index.add(np.arange(n_rows), codes)
    return index, codes


@pytest.mark.parametrize(
    ("ids", "codes", "embeddings", "error", "text"),
    [
        (
            [1, 1],
            np.ones((2, 2), np.uint8),
            np.ones((2, 3)),
            InputError,
            "hold 1 more than once; expected each id once",
        ),
        ([1, 5], np.ones((2, 2), np.uint8), np.ones((2, 3)), InputError, "id 5 is in this index already .1 of 2"),
        ([1.0], np.ones((1, 2), np.uint8), np.ones((1, 3)), DtypeError, "float64; expected int64"),
        (np.array([1], np.uint64), np.ones((1, 2), np.uint8), np.ones((1, 3)), DtypeError, "uint64; expected int64"),
        ([[1]], np.ones((1, 2), np.uint8), np.ones((1, 3)), ShapeError, "2 dimensions; expected 1"),
        ([1], np.ones((2, 2), np.uint8), np.ones((2, 3)), ShapeError, "1 ids for 2 codes"),
        ([1], np.ones((1, 3), np.uint8), np.ones((1, 3)), ShapeError, "3 bytes a row; 16 bits take 2"),
        ([1], np.ones((1, 2), np.int64), np.ones((1, 3)), DtypeError, "int64; expected packed uint8"),
        ([1], np.ones((1, 1, 2), np.uint8), np.ones((1, 3)), ShapeError, "3 dimensions; expected 2"),
        ([1], np.ones((1, 2), np.uint8), None, InputError, "embeddings are missing; this index keeps 3 numbers"),
        ([1], np.ones((1, 2), np.uint8), np.ones((1, 4)), ShapeError, "shape .1, 4.; expected .1, 3."),
        ([1], np.ones((1, 2), np.uint8), np.ones((2, 3)), ShapeError, "shape .2, 3.; expected .1, 3."),
        ([1], np.ones((1, 2), np.uint8), np.ones((1, 3), int), DtypeError, "int64; expected float32"),
        ([1, 2], np.ones((2, 2), np.uint8), [[0.0] * 3, [0, np.nan, 0]], NotFiniteError, "row 1 holds NaN"),
        ([1], np.ones((1, 2), np.uint8), [[0, np.inf, 0]], NotFiniteError, "row 0 holds NaN or infinity"),
        ([1], np.ones((1, 2), np.uint8), [[0, 1e300, 0]], NotFiniteError, "row 0 holds NaN or infinity"),
    ],
)
def test_a_refused_add_changes_nothing(
    index: MultiIndex, ids: object, codes: np.ndarray, embeddings: object, error: type[Exception], text: str
) -> None:
    before = index.nearest(CODE, 10)
    with pytest.raises(error, match=text):
        index.add(ids, codes, embeddings)
    assert len(index) == 3
    assert 1 not in index
    assert list(index) == [3, 5, 7]
    assert index.nearest(CODE, 10) == before


def test_a_refused_delete_or_replace_changes_nothing(index: MultiIndex) -> None:
    with pytest.raises(InputError, match="id 8 is not in this index; expected ids that were added"):
        index.delete([7, 8])
    with pytest.raises(InputError, match="hold 7 more than once"):
        index.delete([7, 3, 7])
    with pytest.raises(InputError, match="id 9 is not in this index"):
        index.replace([3, 9], np.zeros((2, 2), np.uint8), np.zeros((2, 3)))
    with pytest.raises(InputError, match="id 4 is not in this index"):
        index.get([3, 4])
    with pytest.raises(DtypeError, match="expected int64"):
        index.delete(["a"])
    assert index.search(CODE, 1) == (Hit(7, 0), Hit(3, 1))


def test_rows_are_deleted_replaced_and_added_again(index: MultiIndex) -> None:
    index.delete([7])
    assert 7 not in index
    assert index.search(CODE, 1) == (Hit(3, 1),)
    index.replace([3], np.array([[0, 128]], np.uint8), np.full((1, 3), 9.0))
    index.add([7], CODE, VECTOR)
    assert index.search(CODE, 1) == (Hit(7, 0), Hit(3, 1))
    codes, vectors = index.get([3, 7, 3])
    assert codes.tolist() == [[0, 128], [0, 0], [0, 128]]
    assert vectors.tolist() == [[9, 9, 9], [0, 0, 0], [9, 9, 9]]
    index.delete([])
    index.add([], np.empty((0, 2), np.uint8), np.empty((0, 3)))
    assert len(index) == 3
    index.delete(list(index))
    assert len(index.nearest(CODE, 5)) == len(index) == 0


def test_searches_say_what_is_wrong(index: MultiIndex) -> None:
    for radius in (-1, 16):
        with pytest.raises(InputError, match=f"radius is {radius}; expected 0 to 15"):
            index.search(CODE, radius)
    with pytest.raises(DtypeError, match="radius is 1.5"):
        index.search(CODE, 1.5)  # type: ignore[arg-type]
    for name, call in {
        "limit": lambda count: index.search(CODE, 1, limit=count),
        "k": lambda count: index.nearest(CODE, count),
        "rerank": lambda count: index.search(Asked(CODE, embeddings=VECTOR), 1, rerank=count),
        "threads": lambda count: index.search_batch(CODE[None], 1, work=Work(threads=count)),
        "budget": lambda count: index.search(Asked(logits=np.ones(16)), budget=count, radius=1),
        "comparisons": lambda count: index.answer(LIKELY, Query(1, budget=9, rerank=1, comparisons=count)),
    }.items():
        for count in (0, -1):
            with pytest.raises(InputError, match=f"{name} is {count}; expected at least 1"):
                call(count)
        with pytest.raises(DtypeError, match=f"{name} is 1.5; expected an integer"):
            call(1.5)
    with pytest.raises(ShapeError, match="3 bytes a row; 16 bits take 2"):
        index.nearest(np.zeros(3, np.uint8), 1)
    with pytest.raises(DtypeError, match="float64; expected packed uint8"):
        index.search(np.zeros(2), 1)
    with pytest.raises(ShapeError, match="8 columns; expected 16"):
        index.search(Asked(logits=np.zeros(8)), budget=10, radius=1)
    with pytest.raises(NotFiniteError, match="logits"):
        index.search(Asked(logits=np.full(16, np.nan)), budget=10, radius=1)
    with pytest.raises(InputError, match="comparisons is given without budget or rerank"):
        index.answer(Asked(logits=np.ones((1, 16))), Query(1, budget=9, comparisons=1))
    with pytest.raises(InputError, match="comparisons and limit are given"):
        index.answer(LIKELY, Query(1, 5, budget=9, rerank=1, comparisons=1))
    plain = MultiIndex(16, 2)
    with pytest.raises(InputError, match="comparisons is given; no embeddings are kept here"):
        plain.answer(Asked(logits=np.ones((1, 16))), Query(1, budget=9, rerank=1, comparisons=1))
    with pytest.raises(InputError, match="rerank and limit are given"):
        plain.search(Asked(logits=np.ones(16)), budget=9, rerank=1, limit=1)
    with pytest.raises(InputError, match="embeddings are given; none are kept here"):
        plain.search(Asked(logits=np.ones(16), embeddings=VECTOR), budget=9, rerank=1)
    with pytest.raises(InputError, match="rerank is given without an embedding"):
        index.search(CODE, 1, rerank=1)
    with pytest.raises(InputError, match="embeddings are given without rerank"):
        index.search(Asked(CODE, embeddings=VECTOR), 1)
    with pytest.raises(NotFiniteError, match="query embeddings: row 0"):
        index.search(Asked(CODE, embeddings=[np.nan, 0, 0]), 1, rerank=1)
    with pytest.raises(ShapeError, match="query embeddings have shape .1, 2."):
        index.search(Asked(CODE, embeddings=[0.0, 0.0]), 1, rerank=1)
    with pytest.raises(DtypeError, match="filter have dtype float64"):
        index.search(CODE, 1, filter=[1.5])
    with pytest.raises(ShapeError, match="filter has 2 dimensions"):
        index.search(CODE, 1, filter=np.ones((2, 2), bool))


def test_what_an_index_cannot_be() -> None:
    with pytest.raises(InputError, match="multiple of 8"):
        MultiIndex(12, 1)
    with pytest.raises(InputError, match="radius is 16; expected 0 to 15"):
        MultiIndex(16, 16)
    for substrings in (0, 4):
        with pytest.raises(InputError, match=f"substrings is {substrings}; expected 1 to 3, radius . 1"):
            MultiIndex(16, 2, substrings=substrings)
    with pytest.raises(DtypeError, match="substrings is 1.5"):
        MultiIndex(16, 2, substrings=1.5)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="n_dims is 0; expected 1"):
        Embeddings(0)
    with pytest.raises(InputError, match="dtype is 'float64'; expected one of float32"):
        Embeddings(3, "float64")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="metric is 'l1'"):
        Embeddings(3, metric="l1")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="radius is missing"):
        FlatIndex(16).search(CODE)
    plain = MultiIndex(16, 1)
    with pytest.raises(InputError, match="embeddings are given; this index keeps none"):
        plain.add([1], CODE, VECTOR)
    with pytest.raises(InputError, match="no embeddings are kept here"):
        plain.search(Asked(CODE, embeddings=VECTOR), rerank=3)
    eight = FlatIndex(16, embeddings=Embeddings(3, "int8"))
    with pytest.raises(DtypeError, match="float32; expected int8: scale and round"):
        eight.add([1], CODE, VECTOR)


@pytest.mark.slow
def test_refusals_do_not_depend_on_assertions() -> None:
    """Every test of this file that refuses something, again under `python -O`."""
    names = "refused or wrong or cannot_be"
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestConfigWarning", "-k", names]
    command = [sys.executable, "-O", "-m", "pytest", *options, __file__]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])
    # Without assertions, what the tests compare is not compared; what they expect to be raised still is.
    assert done.returncode == 0, done.stdout


def test_k_may_be_larger_than_the_index(index: MultiIndex) -> None:
    assert index.nearest(CODE, 10**30) == (Hit(7, 0), Hit(3, 1), Hit(5, 16))


def test_rerank_orders_by_embedding(index: MultiIndex) -> None:
    found = index.nearest(Asked(CODE, embeddings=VECTOR), 3, rerank=2)
    assert found == (Hit(7, 0, 0.0), Hit(5, 16, 1.0))
    batch = index.nearest_batch(Asked(CODE[None], embeddings=VECTOR[None]), 3, rerank=9)
    assert isinstance(batch, Answer)
    assert batch.embedding_distances is not None
    assert batch.embedding_distances.tolist() == [0, 1, 5]
    assert batch[0][2] == Hit(3, 1, 5.0)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_no_cosine_distance_is_negative(dtype):
    rows = np.random.default_rng(0).normal(size=(200, 8)).astype(dtype).astype(np.float32)
    codes = np.zeros((len(rows), 8), dtype=np.uint8)
    index = MultiIndex(64, radius=2, embeddings=Embeddings(8, dtype, "cosine"))
    index.add(range(len(rows)), codes, rows)
    for number, row in enumerate(rows):
        nearest = index.search(Asked(codes[0], embeddings=row), rerank=len(rows))[0]
        assert nearest.id == number
        assert 0 <= nearest.embedding_distance < 1e-6


def test_filter_takes_sets_arrays_and_masks(index: MultiIndex) -> None:
    for filter in ({3, 99}, [3], np.array([99, 3, 3]), np.arange(6) == 3):
        assert index.search(CODE, 1, filter=filter) == (Hit(3, 1),)
    for nothing in (set(), [], np.zeros(0, bool), np.zeros(99, bool)):
        assert index.search(CODE, 1, filter=nothing) == ()


def test_costs_are_counted() -> None:
    index, codes = many(5000)
    found = index.search(codes[0], work=Work(costs=True))
    assert isinstance(found.cost, Cost)
    assert found.cost.buckets == 3
    assert 3 <= found.cost.candidates < 100
    assert found.cost.comparisons == 0
    assert index.search(codes[0]).cost is None
    batch = index.search_batch(codes[:9], work=Work(costs=True))
    assert batch.costs is not None
    assert batch.costs.buckets.tolist() == [3] * 9
    assert batch[0].cost == found.cost
    assert index.search(codes[0], 60, work=Work(costs=True)).cost == Cost(0, 5000, 0)


def test_smaller_radius_reads_fewer_tables_and_skewed_codes_are_scanned() -> None:
    index, codes = many(5000)
    assert index.search(codes[0], 0, work=Work(costs=True)).cost.buckets == 1
    # Two of three substrings are the same everywhere.
    same = MultiIndex(64, 2)
    same.add(np.arange(5000), np.arange(5000, dtype="<u8").view(np.uint8).reshape(-1, 8))
    found = same.search(np.zeros(8, np.uint8), work=Work(costs=True))
    near = [id for id in range(5000) if id.bit_count() <= 2]
    assert [hit.id for hit in found] == sorted(near, key=lambda id: (id.bit_count(), id))
    assert found.cost == Cost(0, 5000, 0)


def test_equal_codes_are_stored_and_read_once(tmp_path) -> None:
    rng = np.random.default_rng(8)
    different = rng.integers(0, 256, (3000, 8), dtype=np.uint8)
    codes = different[rng.integers(0, 3000, 12_000)]
    codes[:500] = codes[0]
    index, scan = MultiIndex(64, 2), FlatIndex(64)
    for each in (index, scan):
        each.add(np.arange(100, 12_100), codes)
        each.delete([100, 107])
    n_different = len(np.unique(codes, axis=0))
    assert index.explain().n_codes == n_different
    assert f"{n_different:,} different codes, each stored once" in str(index.explain())
    index.save(tmp_path / "index")
    for each in (index, MultiIndex.open(tmp_path / "index"), MultiIndex.open(tmp_path / "index", verify=False)):
        found = each.search(codes[0], work=Work(costs=True))
        assert list(found) == list(scan.search(codes[0], 2))
        assert len(found) >= 498
        assert found.cost.candidates < 100
        assert each.search(codes[0], limit=3) == scan.search(codes[0], 2, limit=3)
        assert each.nearest(codes[9], 700) == scan.nearest(codes[9], 700)
        np.testing.assert_array_equal(each.get([101, 12_099]), codes[[1, 11_999]])
    index.replace([101], different[:1] ^ 255)
    index.compact()
    assert index.search(different[0] ^ 255)[0].id == 101


def test_many_small_adds_leave_few_parts() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 256, (30_000, 8), dtype=np.uint8)
    index = MultiIndex(64, 2)
    for start in range(0, len(codes), 100):
        index.add(np.arange(start, start + 100), codes[start : start + 100])
    index.core.settle()
    assert index.core.n_parts <= 6
    together, _ = many(1)
    together.delete([0])
    together.add(np.arange(len(codes)), codes)
    queries = codes[::100] ^ np.uint8(1)
    assert list(index.search_batch(queries, 9)) == list(together.search_batch(queries, 9))
    index.compact()
    assert index.core.n_parts == 1
    assert list(index.search_batch(queries, 9)) == list(together.search_batch(queries, 9))


def test_extreme_ids() -> None:
    low, high = -(2**63), 2**63 - 1
    for ids in ([low, high], [high - 1, high], [high], [low], [low, 0, high], [low, low + 2**32]):
        index = MultiIndex(16, 1)
        index.add(ids, np.zeros((len(ids), 2), np.uint8))
        index.compact()
        assert list(index) == sorted(ids)
        assert [hit.id for hit in index.search(CODE)] == sorted(ids)
        assert all(id in index for id in ids)
        assert high + 1 not in index
        assert "7" not in index


def test_memory_a_row() -> None:
    n_rows = 262_143  # the most that the directory is as small for
    index, codes = many(n_rows)
    assert index.memory / n_rows < 40
    spread = MultiIndex(64, 2)
    ids = np.arange(n_rows) * 0x5851F42D4C957F2D & (2**63 - 1)
    spread.add(ids, codes)
    assert spread.memory / n_rows < 48
    # Codes by id need a map that searches do not; it is made once.
    np.testing.assert_array_equal(spread.get(ids[[7, 5]]), codes[[7, 5]])
    assert spread.memory / n_rows < 52
    assert spread.get(ids).shape == codes.shape
    assert spread.memory / n_rows < 52


def test_large_results_are_independent_of_each_other() -> None:
    codes = np.zeros((100_000, 8), np.uint8)
    index = FlatIndex(64)
    index.add(np.arange(100_000), codes)
    first = index.search_batch(codes[:20], 0)
    second = index.search_batch(codes[:20], 0)
    expected = np.tile(np.arange(100_000), 20)
    # The memory of a result is used again only when nobody has it any more.
    del second
    third = index.search_batch(codes[:20], 0, limit=99_999)
    np.testing.assert_array_equal(first.ids, expected)
    np.testing.assert_array_equal(third.ids, np.tile(np.arange(99_999), 20))


def test_a_file_goes_to_the_kind_that_wrote_it(tmp_path: Path) -> None:
    index, codes = many(3000)
    index.save(tmp_path / "multi")
    again = MultiIndex.open(tmp_path / "multi")
    assert (again.n_bits, again.radius, again.substrings, again.embeddings) == (64, 2, 3, None)
    assert again.search(codes[5]) == index.search(codes[5])
    again.add([10**6], codes[5])
    assert Hit(10**6, 0) in again.search(codes[5])
    with pytest.raises(UnsupportedFileError, match="holds a MultiIndex; open it with MultiIndex.open"):
        FlatIndex.open(tmp_path / "multi")
    kind = Embeddings(2, "float16", "cosine")
    FlatIndex(8, embeddings=kind).save(tmp_path / "flat")
    assert FlatIndex.open(tmp_path / "flat").embeddings == kind
    with pytest.raises(UnsupportedFileError, match="FlatIndex.open"):
        MultiIndex.open(tmp_path / "flat")
    with pytest.raises(FileNotFoundError):
        MultiIndex.open(tmp_path / "nothing")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(CorruptFileError, match="5 bytes"):
        MultiIndex.open(tmp_path / "text")


def test_threads_give_the_same_hits() -> None:
    index, codes = many(20_000)
    for call in (
        lambda n: index.search_batch(codes[:3000], 12, work=Work(threads=n)),
        lambda n: index.nearest_batch(codes[:300], 7, work=Work(threads=n)),
    ):
        one, four = call(1), call(4)
        for name in ("offsets", "ids", "distances"):
            np.testing.assert_array_equal(getattr(one, name), getattr(four, name))


def test_searches_go_on_while_rows_come_and_go() -> None:
    """Every replacement moves all rows from one half of the space to the other: no search sees some in each."""
    rng = np.random.default_rng(5)
    low = rng.integers(0, 256, (3000, 8), dtype=np.uint8)
    low[:, 0] = 0
    high = low.copy()
    high[:, 0] = 255
    index = MultiIndex(64, 2)
    index.add(np.arange(3000), low)
    stopped: list[bool] = []
    wrong: list[object] = []

    def search() -> None:
        while not stopped:
            codes = index.nearest_batch(low[:1], 10_000)
            near = index.search_batch(np.zeros((1, 8), np.uint8), 60, filter=range(100))
            ids = np.sort(codes.ids)
            if len(ids) not in (2990, 3000) or len(np.unique(ids)) != len(ids) or len(near.ids) > 100:
                wrong.append(ids)
            distances = dict(zip(codes.ids.tolist(), codes.distances.tolist(), strict=True))
            # Row 0 is as near as its first byte is: 0 bits away, or 8.
            if distances.get(0, 0) not in (0, 8):
                wrong.append(distances[0])

    threads = [Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for version in range(40):
        index.replace(np.arange(3000), high if version % 2 == 0 else low)
        index.delete(np.arange(100, 110))
        index.add(np.arange(100, 110), low[100:110])
    stopped.append(True)
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(index) == 3000


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 7, 1e37])
def test_rows_as_int8_keep_their_directions(scale):
    rows = (np.random.default_rng(0).normal(size=(50, 64)) * scale).astype(np.float32).astype(float)
    rows[3] = 0
    found = unit_int8(rows)
    assert found.dtype == np.int8
    assert not found[3].any()
    kept = np.delete(rows, 3, axis=0)
    small = np.delete(found, 3, axis=0).astype(float)
    cosine = (kept * small).sum(axis=1) / np.linalg.norm(kept, axis=1) / np.linalg.norm(small, axis=1)
    assert cosine.min() > 0.9999
    assert (np.abs(small).max(axis=1) == 127).all()
    with pytest.raises(NotFiniteError):
        unit_int8([[1.0, np.nan]])
    with pytest.raises(ShapeError):
        unit_int8([1.0, 2.0])


def test_logits_become_embeddings_of_every_kind():
    logits = np.random.default_rng(1).normal(size=(200, 64)).astype(np.float32)
    unit = logits / np.linalg.norm(logits, axis=1, keepdims=True)
    for dtype in ("float32", "float16", "int8"):
        for metric in ("l2", "cosine", "dot"):
            found = Embeddings(64, dtype, metric).of_logits(logits)
            assert found.dtype == dtype
            if dtype == "int8" and metric == "cosine":
                assert np.array_equal(found, unit_int8(logits))
                continue
            # One scale for all rows: lengths mean something to l2 and dot.
            scale = 127 * 2.5 if dtype == "int8" else 1
            expected = np.clip(unit * scale, -127, 127)
            np.testing.assert_allclose(found.astype(float), expected, atol=0.51 if dtype == "int8" else 1e-3)
