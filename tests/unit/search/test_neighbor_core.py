"""The native index of vectors against plain numpy."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from hamtarget._native import Limits, NeighborCore, nearest_centres, neighbor_kernels
from hamtarget.errors import InputError, LimitError
from hamtarget.query import Bounds

N_DIMS = 22
EVERYTHING = 10**9


def vectors_of(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, N_DIMS)).astype(np.float32)


def new_core(
    metric: str = "l2", row_type: str = "float32", part_dims: int = 3, n_cells: int = 19, **options: Any
) -> NeighborCore:
    random = np.random.default_rng(1)
    n_parts = -(-N_DIMS // part_dims)
    codebooks = random.normal(size=(n_parts, 16, part_dims)).astype(np.float32)
    # Dimensions that fill up the last part are zero in every row.
    codebooks.transpose(1, 0, 2).reshape(16, -1)[:, N_DIMS:] = 0
    centres = random.normal(size=(n_cells, N_DIMS)).astype(np.float32)
    return NeighborCore(N_DIMS, metric, row_type, centres, codebooks, **options)


def exact(metric: str, queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    if metric == "dot":
        return -(queries @ rows.T)
    return np.sqrt(((queries[:, None] - rows[None]) ** 2).sum(-1))


class Twin:
    """Do what the core does, one row at a time, with float scores in place of 8-bit tables."""

    def __init__(self, core: NeighborCore, rows: np.ndarray, metric: str) -> None:
        state = core.state()
        self.rows, self.metric = rows, metric
        self.centres = state["centres"].reshape(-1, N_DIMS)
        part_dims = state["part_dims"]
        codebooks = state["codebooks"].reshape(-1, 16, part_dims)
        self.cells = ((rows[:, None] - self.centres[None]) ** 2).sum(-1).argmin(1)
        padded = np.zeros((len(rows), len(codebooks) * part_dims), np.float32)
        padded[:, :N_DIMS] = rows - self.centres[self.cells]
        parts = padded.reshape(len(rows), -1, part_dims)
        for part, entries in enumerate(codebooks):
            parts[:, part] = entries[((parts[:, part, None] - entries) ** 2).sum(-1).argmin(1)]
        self.sketches = self.centres[self.cells] + padded[:, :N_DIMS]

    def scores(self, query: np.ndarray, vectors: np.ndarray) -> np.ndarray:
        bias = (vectors**2).sum(1) / 2 if self.metric == "l2" else 0
        return bias - vectors @ query

    def candidates(self, query: np.ndarray, budget: int) -> list[int]:
        order = np.argsort(self.scores(query, self.centres), kind="stable")
        return [int(row) for cell in order for row in np.flatnonzero(self.cells == cell)][:budget]

    def search(self, query: np.ndarray, k: int, budget: int, comparisons: int) -> list[int]:
        candidates = np.array(self.candidates(query, budget), dtype=int)
        chosen = candidates[np.argsort(self.scores(query, self.sketches[candidates]))[:comparisons]]
        return [int(row) for row in chosen[np.argsort(self.scores(query, self.rows[chosen]))[:k]]]


@pytest.mark.parametrize("kernel", neighbor_kernels())
@pytest.mark.parametrize("metric", ["l2", "dot"])
@pytest.mark.parametrize("row_type", ["int8", "uint8", "float16", "float32"])
def test_comparing_everything_is_exact(kernel: str, metric: str, row_type: str) -> None:
    rows, queries = vectors_of(900), vectors_of(7, seed=3)
    if row_type == "uint8":
        rows = np.clip(rows * 40 + 128, 0, 255).round()
        queries = queries * 40 + 128
    core = new_core(metric, row_type, kernel=kernel)
    core.add(np.arange(900) * 7, rows.astype(np.uint8) if row_type == "uint8" else rows, threads=2)
    ids, distances, costs = core.search(queries, 12, EVERYTHING, EVERYTHING)
    stored = rows
    if row_type == "int8":
        scales = np.abs(rows).max(1, keepdims=True) / np.float32(127)
        stored = (rows / scales).round() * scales
    elif row_type == "float16":
        stored = rows.astype(np.float16).astype(np.float32)
    expected = exact(metric, queries, stored)
    order = np.argsort(expected, axis=1, kind="stable")[:, :12]
    np.testing.assert_allclose(distances, np.take_along_axis(expected, order, 1), rtol=1e-5, atol=1e-5)
    assert (ids == order * 7).mean() > 0.98  # the last digit may swap two rows
    assert (costs == 900).all()
    asked = np.array([7 * 899, 0, 7 * 3, 0])
    np.testing.assert_array_equal(core.get(asked), stored.astype(np.float32)[asked // 7])
    assert core.get(asked[:0]).shape == (0, N_DIMS)
    with pytest.raises(InputError, match="id 8 is not in this index"):
        core.get(np.array([7, 8]))


@pytest.mark.parametrize("kernel", neighbor_kernels())
@pytest.mark.parametrize("metric", ["l2", "dot"])
@pytest.mark.parametrize("part_dims", [1, 2, 3, 5, 8])
def test_search_finds_what_its_twin_finds(kernel: str, metric: str, part_dims: int) -> None:
    rows, queries = vectors_of(1500), vectors_of(20, seed=3)
    core = new_core(metric, part_dims=part_dims, kernel=kernel)
    core.add(np.arange(1500), rows)
    twin = Twin(core, rows, metric)
    ids, _, costs = core.search(queries, 10, 400, 60)
    assert (costs == [400, 60]).all()
    shared = 0
    for query, found in zip(queries, ids, strict=True):
        # Cells are chosen by 8-bit scores: the last one may be another than the twin's.
        assert set(found) <= set(twin.candidates(query, 400 + np.bincount(twin.cells).max()))
        shared += len(set(found) & set(twin.search(query, 10, 400, 60)))
    # Tables of 8 bits choose a few other rows than floats do, the more so the more rows have nearly equal sketches.
    assert shared >= (0.95 if part_dims < 8 else 0.9) * ids.size


def test_kernels_agree() -> None:
    rows, queries = vectors_of(3000), vectors_of(30, seed=3)
    found = []
    for kernel in neighbor_kernels():
        core = new_core(kernel=kernel)
        core.add(np.arange(3000), rows)
        found.append(core.search(queries, 10, 1000, 50)[0])
    for ids in found[1:]:
        assert (ids == found[0]).mean() > 0.99


def test_one_query_finds_what_a_batch_finds() -> None:
    core = new_core()
    core.add(np.arange(2000), vectors_of(2000))
    core.add(np.arange(2000, 2100), vectors_of(100, seed=5))
    queries = vectors_of(300, seed=3)
    ids, distances, _ = core.search(queries, 5, 600, 40)
    for threads in (2, 5):
        np.testing.assert_array_equal(core.search(queries, 5, 600, 40, threads)[0], ids)
    for q in range(0, 300, 7):
        one = core.search(queries[q : q + 1], 5, 600, 40)
        np.testing.assert_array_equal(one[0][0], ids[q])
        np.testing.assert_array_equal(one[1][0], distances[q])


def test_given_cells_are_searched_and_no_others() -> None:
    rows, queries = vectors_of(1000), vectors_of(6, seed=3)
    core = new_core()
    core.add(np.arange(1000), rows)
    twin = Twin(core, rows, "l2")
    cells = np.array([[3, 5, -1]] * 6, dtype=np.int32)
    ids, distances, costs = core.search_cells(queries, cells, 8, EVERYTHING, EVERYTHING)
    inside = np.flatnonzero(np.isin(twin.cells, [3, 5]))
    assert (costs == len(inside)).all()
    order = np.argsort(exact("l2", queries, rows[inside]), axis=1)[:, :8]
    np.testing.assert_array_equal(ids, inside[order])
    ids, distances, _ = core.search_cells(queries, np.full((6, 0), 0, np.int32), 2, 10, 10)
    assert (ids == -1).all()
    assert np.isinf(distances).all()
    with pytest.raises(InputError, match="cell 19 does not exist"):
        core.search_cells(queries, np.full((6, 1), 19, np.int32), 2, 10, 10)


def test_a_rotation_leaves_distances_as_they_are() -> None:
    rows, queries = vectors_of(800), vectors_of(5, seed=3)
    rotation = np.linalg.qr(np.random.default_rng(2).normal(size=(N_DIMS, N_DIMS)))[0].astype(np.float32)
    plain, rotated = new_core(), new_core(rotation=rotation)
    for core in (plain, rotated):
        core.add(np.arange(800), rows)
    np.testing.assert_array_equal(
        plain.search(queries, 4, EVERYTHING, EVERYTHING)[0], rotated.search(queries, 4, EVERYTHING, EVERYTHING)[0]
    )
    opened = NeighborCore.from_state(rotated.state())
    np.testing.assert_array_equal(rotated.search(queries, 4, 200, 30)[0], opened.search(queries, 4, 200, 30)[0])


@pytest.mark.parametrize("seed", range(4))
def test_a_life_of_adding_and_removing(seed: int) -> None:
    random = np.random.default_rng(seed)
    core = new_core(row_type="float32", n_cells=7)
    known: dict[int, np.ndarray] = {}
    queries = vectors_of(3, seed=100 + seed)
    for _ in range(60):
        if random.random() < 0.6 or not known:
            count = int(random.choice([1, 3, 40]))
            ids = np.setdiff1d(random.integers(0, 2**34 if seed % 2 else 5000, count), list(known))
            rows = random.normal(size=(len(ids), N_DIMS)).astype(np.float32)
            core.add(ids, rows)
            known.update(zip(ids.tolist(), rows, strict=True))
        else:
            gone = random.choice(list(known), size=min(len(known), int(random.integers(1, 30))), replace=False)
            assert core.remove(np.append(gone, 2**40)) == len(gone)
            for id in gone:
                del known[int(id)]
        if random.random() < 0.1:
            core = NeighborCore.from_state(core.state())
        assert len(core) == len(known)
        assert core.n_generations <= 12
        names = np.array(sorted(known), dtype=np.int64)
        np.testing.assert_array_equal(core.ids(), names)
        found, distances, costs = core.search(queries, 5, EVERYTHING, EVERYTHING)
        count = min(5, len(known))
        if known:
            expected = exact("l2", queries, np.array([known[int(name)] for name in names]))
            order = np.argsort(expected, axis=1, kind="stable")[:, :5]
            np.testing.assert_array_equal(found[:, :count], names[order])
        assert (found[:, count:] == -1).all()
        assert np.isinf(distances[:, count:]).all()
        assert (costs[:, 1] == len(known)).all()


@pytest.mark.parametrize("largest", [4000, 2**34])
def test_single_changes_among_many_rows(largest: int) -> None:
    random = np.random.default_rng(largest % 7)
    names = random.choice(largest, 3000, replace=False).astype(np.int64)
    core = new_core(row_type="float32", n_cells=7)
    core.add(names, vectors_of(3000))
    known = set(names.tolist())
    for _ in range(150):
        # One of four is there.
        (id,) = ids = random.choice(np.append(random.integers(0, largest, 3), random.choice(list(known))), 1)
        asked = np.array([id, largest + 1, *random.choice(list(known), 2)], dtype=np.int64)
        assert core.contains(asked).tolist() == [int(each) in known for each in asked]
        if int(id) in known:
            with pytest.raises(InputError, match=f"id {id} is in the index already"):
                core.add(ids, vectors_of(1))
            assert core.remove(ids) == 1
            known.discard(int(id))
        else:
            assert core.remove(ids) == 0
            core.add(ids, vectors_of(1, seed=int(id) % 1000))
            known.add(int(id))
        np.testing.assert_array_equal(core.ids(), sorted(known))
    many = np.arange(0, 6000, dtype=np.int64)
    assert core.contains(many).tolist() == [each in known for each in range(6000)]


def test_equal_rows_come_by_id() -> None:
    core = new_core()
    core.add(np.arange(500)[::-1].copy(), np.repeat(vectors_of(1), 500, axis=0))
    ids, _, costs = core.search(vectors_of(1), 9, EVERYTHING, EVERYTHING)
    np.testing.assert_array_equal(ids[0], np.arange(9))
    again, _, costs = core.search(vectors_of(1), 9, EVERYTHING, 20)
    assert len(set(again[0])) == 9
    assert (costs == [[500, 20]]).all()


def test_an_empty_core_and_a_budget_of_nothing() -> None:
    core = new_core()
    for ids, distances, costs in (core.search(vectors_of(2), 3, 10, 10), core.search(vectors_of(0), 3, 10, 10)):
        assert (ids == -1).all()
        assert np.isinf(distances).all()
        assert (costs == 0).all()
    core.add(np.arange(50), vectors_of(50))
    for budget, comparisons in ((0, 10), (10, 0)):
        ids, _, costs = core.search(vectors_of(2), 3, budget, comparisons)
        assert (ids == -1).all()
        assert (costs[:, 0] == budget).all()
    assert (core.search(vectors_of(2), 60, EVERYTHING, 5)[2] == 50).all()  # at least k are compared
    assert core.remove(np.arange(50)) == 50
    assert len(core) == 0
    assert (core.search(vectors_of(2), 3, 10, 10)[0] == -1).all()
    assert len(NeighborCore.from_state(core.state())) == 0


def test_wrong_arguments_are_named() -> None:
    core = new_core()
    core.add(np.arange(10), vectors_of(10))
    with pytest.raises(InputError, match="id 4 is in the index already"):
        core.add(np.array([11, 4]), vectors_of(2))
    with pytest.raises(InputError, match="id 12 is given twice"):
        core.add(np.array([12, 12]), vectors_of(2))
    with pytest.raises(InputError, match="id -3 is negative"):
        core.add(np.array([-3]), vectors_of(1))
    with pytest.raises(InputError, match="2 ids and 3 vectors"):
        core.add(np.array([20, 21]), vectors_of(3))
    with pytest.raises(InputError, match="vectors have 5 dimensions; expected 22"):
        core.add(np.array([20]), np.zeros((1, 5), np.float32))
    with pytest.raises(InputError, match="queries have 5 dimensions"):
        core.search(np.zeros((1, 5), np.float32), 1, 1, 1)
    with pytest.raises(InputError, match="k is 0"):
        core.search(vectors_of(1), 0, 1, 1)
    with pytest.raises(InputError, match="expected 0 to 255"):
        new_core(row_type="uint8").add(np.array([0]), vectors_of(1) - 300)
    assert len(core) == 10
    centres, codebooks = np.zeros((2, 4), np.float32), np.zeros((2, 16, 2), np.float32)
    for arguments, text in (
        ((4, "l3", "int8", centres, codebooks), "metric is 'l3'"),
        ((4, "l2", "int9", centres, codebooks), "row_type is 'int9'"),
        ((4, "l2", "int8", centres[:0], codebooks), "at least one"),
        ((3, "l2", "int8", centres, codebooks), "centres have 4 dimensions; expected 3"),
        ((4, "l2", "int8", centres, codebooks[:1]), "expected 2 parts"),
        ((4, "l2", "int8", centres, codebooks[:, :8].copy()), "8 entries a part; expected 16"),
        ((4, "l2", "int8", centres, np.zeros((1, 16, 9), np.float32)), "parts of 9 dimensions; expected 1 to 8"),
        ((4, "l2", "int8", centres, codebooks, np.zeros((3, 3), np.float32)), "rotation has 9 elements"),
    ):
        with pytest.raises(InputError, match=text):
            NeighborCore(*arguments)


def test_limits_end_a_search() -> None:
    core = new_core()
    core.add(np.arange(20_000), vectors_of(20_000))
    queries = vectors_of(200, seed=3)
    for limits, name in (
        (Bounds(seconds=0.0, rows=10**12, hits=10**12, bytes=10**12).start().core, "seconds"),
        (Bounds(seconds=0.002, rows=10**12, hits=10**12, bytes=10**12).start().core, "seconds"),
        (Limits(seconds=float("inf"), rows=50_000, hits=10**12, bytes=10**12), "rows"),
    ):
        with pytest.raises(LimitError) as error:
            core.search(queries, 5, EVERYTHING, EVERYTHING, 2, limits)
        assert error.value.limit == name
    plenty = Bounds(seconds=600.0, rows=10**12, hits=10**12, bytes=10**12).start().core
    assert (core.search(queries[:2], 5, 100, 10, 1, plenty)[0] >= 0).all()


def test_searches_run_while_rows_change() -> None:
    core = new_core()
    core.add(np.arange(2000), vectors_of(2000))
    queries, failures = vectors_of(20, seed=3), []
    done = threading.Event()

    def search() -> None:
        try:
            while not done.is_set():
                ids, _, _ = core.search(queries, 5, EVERYTHING, EVERYTHING)
                assert (ids[:, 0] >= 0).all()
        except BaseException as error:  # told to the main thread
            failures.append(error)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for i in range(15):
        core.add(np.arange(2000 + 50 * i, 2050 + 50 * i), vectors_of(50, seed=i))
        core.remove(np.arange(100 * i, 100 * i + 60))
    done.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(core) == 2000 + 15 * 50 - 15 * 60


@pytest.mark.parametrize("row_type", ["int8", "float32"])
def test_a_damaged_state_is_refused_or_harmless(row_type: str) -> None:
    core = new_core(row_type=row_type)
    core.add(np.arange(300), vectors_of(300))
    state = {key: np.array(value) if isinstance(value, np.ndarray) else value for key, value in core.state().items()}
    queries = vectors_of(3, seed=3)
    random = np.random.default_rng(0)
    refused = 0
    for _ in range(400):
        damaged: dict[str, Any] = {
            key: value.copy() if isinstance(value, np.ndarray) else value for key, value in state.items()
        }
        key = str(random.choice(list(damaged)))
        value = damaged[key]
        if not isinstance(value, np.ndarray):
            damaged[key] = random.choice([0, 1, 3, 2**31, "l2", "dot", None]) if random.random() < 0.8 else 1e30
        elif random.random() < 0.3 and len(value):
            damaged[key] = value[: int(random.integers(len(value)))]
        elif random.random() < 0.1:
            del damaged[key]
        elif len(value):
            bytes_of = value.view(np.uint8)
            bytes_of[random.integers(len(bytes_of), size=3)] = random.integers(256, size=3)
        try:
            opened = NeighborCore.from_state(damaged)
        except InputError:
            refused += 1
            continue
        ids, _, _ = opened.search(queries, 5, 150, 20)
        assert ids.shape == (3, 5)
        opened.add(np.array([2**50]), queries[:1])
        opened.compact()
    assert refused > 100


def test_int8_rows_are_stored_as_they_are() -> None:
    rows = np.random.default_rng(0).integers(-128, 128, size=(40, N_DIMS)).astype(np.int8)
    core = new_core(row_type="int8")
    core.add(np.arange(40), rows)
    ids, distances, _ = core.search(rows.astype(np.float32), 1, EVERYTHING, EVERYTHING)
    np.testing.assert_array_equal(ids[:, 0], np.arange(40))
    assert (distances == 0).all()


def test_nearest_centres() -> None:
    rows, centres = vectors_of(3000), vectors_of(333, seed=9)
    squares = ((rows[:, None] - centres[None]) ** 2).sum(-1)
    nearest, distances = nearest_centres(rows, centres, 2)
    np.testing.assert_allclose(squares[np.arange(3000), nearest], squares.min(1), rtol=1e-4)
    np.testing.assert_allclose(distances, squares.min(1), rtol=1e-3, atol=1e-4)
    with pytest.raises(InputError, match="0 centres"):
        nearest_centres(rows, centres[:0])


def test_bytes_of_a_row() -> None:
    random = np.random.default_rng(0)
    rows = random.integers(0, 256, size=(20_000, 128)).astype(np.uint8)
    codebooks = random.normal(size=(43, 16, 3)).astype(np.float32)
    core = NeighborCore(128, "l2", "uint8", rows[:64].astype(np.float32), codebooks)
    core.add(np.arange(20_000), rows)
    assert sum(core.bytes().values()) < 160 * 20_000
