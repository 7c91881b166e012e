"""Every library of the benchmark of nearest neighbours on small sets: built, opened again, it finds the neighbours."""

import sys

import numpy as np
import pytest

from hamtarget.errors import InputError
from hamtarget.evaluation import exact_neighbors
from research.benchmarks.neighbors_worker import recalls
from research.datasets.neighbor_sets import unit_rows
from research.peers.libraries import LIBRARIES, OURS, library_of
from research.peers.library import Shape, saved_bytes

# torch ships an OpenMP of its own, and on macOS two in a process end it.
pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="two OpenMP in one process")

N_ROWS, N_DIMS = 1200, 16
SHAPES = [
    Shape(N_ROWS, N_DIMS, "l2", "uint8"),
    Shape(N_ROWS, N_DIMS, "l2", "float32"),
    Shape(N_ROWS, N_DIMS, "cosine", "float32"),
]


def rows_of(shape):
    random = np.random.default_rng(0)
    centres = random.integers(30, 220, (40, N_DIMS))
    rows = centres[random.integers(0, len(centres), N_ROWS + 60)] + random.normal(0, 12, (N_ROWS + 60, N_DIMS))
    if shape.dtype == "uint8":
        rows = rows.clip(0, 255).astype(np.uint8)
    else:
        rows = (rows - 120).astype(np.float32)
    if shape.metric == "cosine":
        rows = unit_rows(rows)
    return rows[:N_ROWS], rows[N_ROWS:]


@pytest.mark.parametrize("shape", SHAPES, ids=["bytes", "l2", "cosine"])
@pytest.mark.parametrize("name", LIBRARIES)
def test_the_widest_settings_find_nearly_all(tmp_path, name, shape):
    library = LIBRARIES[name]
    if library.version() is None:
        pytest.skip(f"{library.package} is not installed")
    base, queries = rows_of(shape)
    neighbors = exact_neighbors(queries, base, 100)
    plans = library.plans(shape)
    assert len({plan.label for plan in plans}) == len(plans)
    for number, plan in enumerate(plans):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert library.build(plan, base, shape, folder, threads=1) > 0
        # At least half a byte for every second number of a row is kept.
        assert saved_bytes(folder) > N_ROWS * N_DIMS / 4
        searcher = library.open(plan, shape, folder)
        for k in (10, 100):
            best = 0.0
            for setting in plan.settings[k][-1], plan.settings[k][0]:
                found = searcher.search(queries, k, setting)
                assert found.shape == (60, k)
                best = max(best, recalls(found, neighbors, k)[1])
                size = searcher.bytes_per_row(setting)
                assert size is None or 0 < size < saved_bytes(folder) / N_ROWS
            # Rows that are kept in 4 to 8 bits a number lose some of the order, most of it in so few dimensions.
            assert best > 0.7, (plan.label, k)


def test_recalls_are_those_of_a_naive_count():
    random = np.random.default_rng(0)
    true = np.stack([random.permutation(30)[:10] for _ in range(50)])
    found = np.stack([random.permutation(30)[:10] for _ in range(50)])
    found[:5, 7:] = -1
    for k in (1, 5, 10):
        nearest, recall = recalls(found, true, k)
        assert nearest == np.mean([t[0] in f[:k] for t, f in zip(true, found, strict=True)])
        expected = np.mean([len(set(t[:k]) & set(f[:k])) / k for t, f in zip(true, found, strict=True)])
        assert recall == pytest.approx(expected)


def test_libraries_by_name():
    assert library_of("SCANN").name == "ScaNN"
    assert library_of(OURS).name == OURS
    with pytest.raises(InputError, match="library is 'annoy'; expected one of hamtarget, faiss"):
        library_of("annoy")
