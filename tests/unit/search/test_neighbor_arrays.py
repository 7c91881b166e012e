"""NeighborIndex takes arrays of every layout and type, whether rows are scanned or in cells, and refuses the rest."""

import numpy as np
import pytest

from hamtarget.errors import DtypeError, HamtargetError, ShapeError
from hamtarget.search import NeighborIndex, neighbor_index
from hamtarget.search.neighbors import cells

N_DIMS = 8
# Scanned, and in cells.
SIZES = [500, 12_000]


def whole_numbers(n_rows, seed=0):
    """Whole numbers from -40 to 87, in groups: every number type holds them."""
    random = np.random.default_rng(seed)
    groups = np.random.default_rng(99).integers(-20, 60, size=(100, N_DIMS))
    return groups[random.integers(100, size=n_rows)] + random.integers(-20, 28, size=(n_rows, N_DIMS))


def strided(rows):
    wide = np.zeros((3 * len(rows), 2 * rows.shape[1]), dtype=np.float32)
    wide[::3, ::2] = rows
    return wide[::3, ::2]


def read_only(rows):
    rows = rows.astype(np.float32)
    rows.flags.writeable = False
    return rows


def mapped(rows, folder):
    np.save(folder / "rows.npy", rows.astype(np.float32))
    return np.load(folder / "rows.npy", mmap_mode="r")


LAYOUTS = {
    "C": lambda rows: np.ascontiguousarray(rows, dtype=np.float32),
    "Fortran": lambda rows: np.asfortranarray(rows, dtype=np.float32),
    "Fortran float64": lambda rows: np.asfortranarray(rows, dtype=np.float64),
    "Fortran uint8": lambda rows: np.asfortranarray(rows % 128, dtype=np.uint8),
    "strided": strided,
    "negative strides": lambda rows: rows[::-1, ::-1].astype(np.float32)[::-1, ::-1],
    "read-only": read_only,
    "broadcast": lambda rows: np.broadcast_to(rows[0].astype(np.float32), rows.shape),
    "big-endian float32": lambda rows: rows.astype(">f4"),
    "big-endian float64": lambda rows: rows.astype(">f8"),
    "big-endian int16": lambda rows: rows.astype(">i2"),
    "float16": lambda rows: rows.astype(np.float16),
    "float64": lambda rows: rows.astype(np.float64),
    "longdouble": lambda rows: rows.astype(np.longdouble),
    "int8": lambda rows: rows.astype(np.int8),
    "uint8": lambda rows: (rows % 128).astype(np.uint8),
    "int64": lambda rows: rows,
    "uint32": lambda rows: (rows % 128).astype(np.uint32),
    "lists": lambda rows: rows.tolist(),
    "tuples of floats": lambda rows: tuple(map(tuple, rows.astype(float).tolist())),
    "list of arrays": lambda rows: list(rows.astype(np.float32)),
    "memory map": mapped,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Cells whatever the clock says, tuned on few rows."""
    monkeypatch.setattr(neighbor_index, "_why_slower", lambda *_: None)
    monkeypatch.setattr(cells, "N_QUERIES", 100)


@pytest.mark.parametrize(
    ("n_rows", "metric"), [(500, "cosine"), (500, "l2"), (500, "dot"), (12_000, "cosine"), (12_000, "l2")]
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_what_plain_float64_gives(layout, metric, n_rows, tmp_path):
    make = LAYOUTS[layout]

    def laid_out(rows):
        return make(rows, tmp_path) if make is mapped else make(rows)

    def plain(rows):
        return np.array(laid_out(rows), dtype=np.float64, order="C")

    rows, more, queries = (whole_numbers(count, seed) for count, seed in ((n_rows, 0), (40, 1), (30, 2)))
    answers = []
    for of in (plain, laid_out):
        index = NeighborIndex(metric, k=3).fit(of(rows))
        assert index.explain().way == ("scan" if n_rows < 10_000 else "cells")
        index.add(np.arange(n_rows, n_rows + 40), of(more))
        batch = index.nearest_batch(of(queries), 3)
        one = index.nearest(np.asarray(of(queries))[7], 3)
        np.testing.assert_array_equal(one.ids, batch.ids[7])
        answers.append((batch, index.get(np.arange(n_rows + 40))))
    # Queries of float32 are not made wider where the metric needs no more: the last digit may differ.
    np.testing.assert_allclose(answers[1][0].distances, answers[0][0].distances, rtol=1e-5, atol=1e-5)
    if layout != "broadcast":
        assert (answers[1][0].ids == answers[0][0].ids).mean() > 0.98
    np.testing.assert_array_equal(answers[1][1], answers[0][1])


@pytest.mark.parametrize("n_rows", SIZES)
def test_ids_and_numbers_of_every_type(n_rows):
    rows = whole_numbers(n_rows)
    index = NeighborIndex("l2", k=np.uint8(3), seed=np.int64(2)).fit(rows)
    for dtype in (np.int8, np.uint8, ">i8", np.uint32, np.int32):
        ids = np.arange(100, dtype=dtype)[::-2]
        index.delete(ids)
        index.add(ids.tolist(), rows[ids.astype(int)])
        index.delete(tuple(ids[:3].tolist()))
        index.add(ids[:3], rows[ids[:3].astype(int)])
        # By half a percent of 87, where rows are kept as int8.
        np.testing.assert_allclose(index.get(ids), rows[ids.astype(int)], atol=1e-5 if n_rows == 500 else 0.6)
        found = index.nearest_batch(
            rows[:5], np.int16(2), recall=np.float32(0.9), budget=np.uint16(n_rows), comparisons=np.int64(n_rows)
        )
        assert found.ids[:, 0].tolist() == [0, 1, 2, 3, 4]
        huge = index.nearest(rows[3], np.uint64(2), budget=2**70, comparisons=2**70)
        assert huge.ids[0] == 3
        assert index.setting(np.int8(3)) is None or n_rows > 10_000


@pytest.mark.parametrize("n_rows", SIZES)
def test_what_is_not_an_array_of_vectors_is_refused(n_rows):
    index = NeighborIndex("l2", k=3).fit(whole_numbers(n_rows))
    for bad, error in [
        ([[1.0] * N_DIMS, [1.0]], ShapeError),
        ([[1.0] * N_DIMS, 5.0], ShapeError),
        ([[[1.0] * N_DIMS], [[1.0]]], ShapeError),
        (np.ones((2, 2, N_DIMS)), ShapeError),
        (5.0, ShapeError),
        ([], ShapeError),
        (np.ones((2, N_DIMS + 1)), ShapeError),
        (None, DtypeError),
        (object(), DtypeError),
        ({1.0, 2.0}, DtypeError),
        ("abc", DtypeError),
        (np.ones((2, N_DIMS), dtype=bool), DtypeError),
        (np.ones((2, N_DIMS), dtype=complex), DtypeError),
        (np.ones((2, N_DIMS), dtype="datetime64[s]"), DtypeError),
        ([[10**400] * N_DIMS] * 2, DtypeError),
        ((vector for vector in np.ones((2, N_DIMS))), DtypeError),
    ]:
        for call in (index.nearest_batch, lambda bad: index.add([n_rows, n_rows + 1], bad)):
            with pytest.raises(error):
                call(bad)
        with pytest.raises((ShapeError, DtypeError)):
            index.nearest(bad)
        if not isinstance(bad, np.ndarray) or bad.shape != (2, N_DIMS + 1):
            with pytest.raises(error):
                NeighborIndex("l2").fit(bad)
        if bad is not None:
            with pytest.raises(error):
                NeighborIndex("l2").fit(whole_numbers(20), queries=bad)
    assert len(index) == n_rows


@pytest.mark.parametrize("n_rows", SIZES)
def test_no_rows(n_rows):
    index = NeighborIndex("l2", k=3).fit(whole_numbers(n_rows))
    for dtype in (np.float32, np.uint8, np.float64):
        nothing = np.empty((0, N_DIMS), dtype=dtype)
        index.add([], nothing)
        found = index.nearest_batch(nothing, 3)
        assert (found.ids.shape, found.distances.shape) == ((0, 3), (0, 3))
        for arguments in ({"vectors": nothing}, {"vectors": whole_numbers(9), "queries": nothing}):
            with pytest.raises(ShapeError, match="no rows"):
                NeighborIndex("l2").fit(**arguments)
    index.delete([])
    assert (index.get([]).shape, len(index)) == ((0, N_DIMS), n_rows)


@pytest.mark.parametrize("n_rows", SIZES)
def test_what_is_not_an_array_of_ids_is_refused(n_rows):
    rows = whole_numbers(n_rows)
    index = NeighborIndex("l2", k=3).fit(rows)
    for bad in (
        5,
        None,
        5.0,
        object(),
        {1, 2},
        {1: 2},
        "ab",
        ["a", "b"],
        [1.5, 2.5],
        [[1], [2, 3]],
        [[1, 2]],
        [None],
        [True],
    ):
        for call in (
            index.delete,
            index.get,
            lambda bad: index.add(bad, rows[:2]),
            lambda bad: NeighborIndex().fit(rows[:2] + 100, bad) if bad is not None else index.get(bad),
        ):
            with pytest.raises(HamtargetError):
                call(bad)
    for bad in ([2**64], [2**63], [-(2**70)]):
        with pytest.raises(HamtargetError):
            index.delete(bad)
    assert len(index) == n_rows


def test_more_neighbours_than_a_quarter_of_the_vectors_are_scanned(monkeypatch):
    monkeypatch.setattr(neighbor_index, "FEWEST_ROWS_OF_CELLS", 100)
    rows = whole_numbers(1000)
    index = NeighborIndex("l2", k=251).fit(rows)
    assert "k is 251" in str(index.explain())
    assert index.nearest(rows[0], 1000).ids.shape == (1000,)
    assert NeighborIndex("l2", k=250).fit(rows).explain().way == "cells"
