"""Files of NeighborIndex that were ever released open, and hold what was put into them.

The files beside this test are never rewritten: see golden_neighbors.py.
"""

import hashlib

import golden_neighbors
import numpy as np
import pytest

from hamtarget.search import NeighborIndex

# Whoever changes one of these has broken the files that people have.
SHA256 = {
    "neighbors_cells_cosine_1.npz": "a0403a803c753240709924e6d29eef69a9e9ffa66e8f69008a15dfcdbcea4385",
    "neighbors_cells_l2_1.npz": "a1c493a4c9e46c244de0ca1a817ccf330d3a6fdfd7cf9a043ae4d8f9235e42a0",
    "neighbors_scan_dot_1.npz": "bd51d690fb65f5b355f69662e1da21f7d1ab68af92bd40793e50c44c45c620e8",
}


@pytest.mark.parametrize("name", golden_neighbors.FILES)
def test_the_file_is_the_one_that_was_released(name):
    assert hashlib.sha256((golden_neighbors.FOLDER / name).read_bytes()).hexdigest() == SHA256[name]


@pytest.mark.parametrize("name", golden_neighbors.FILES)
def test_every_row_is_found(name):
    metric, way = golden_neighbors.FILES[name]
    index = NeighborIndex.open(golden_neighbors.FOLDER / name)
    kept = golden_neighbors.kept()
    rows, ids = golden_neighbors.vectors()[kept].astype(np.float64), golden_neighbors.ids()[kept]
    assert (len(index), index.metric, index.k, index.explain().way) == (len(ids), metric, 3, way)
    queries = golden_neighbors.vectors()[:40].astype(np.float64)
    if metric == "l2":
        away = np.sqrt(((queries[:, None] - rows[None]) ** 2).sum(axis=2))
    elif metric == "dot":
        away = -queries @ rows.T
    else:
        away = 1 - (queries / np.linalg.norm(queries, axis=1)[:, None]) @ (rows.T / np.linalg.norm(rows, axis=1))
    found, distances, _ = index.nearest_batch(queries, len(ids), budget=1000, comparisons=1000)
    assert (np.sort(found, axis=1) == np.sort(ids)).all()
    place = np.argsort(ids)[np.searchsorted(np.sort(ids), found)]
    # Cosines are those of rows that int8 has rounded.
    np.testing.assert_allclose(distances, np.take_along_axis(away, place, axis=1), rtol=1e-5, atol=0.01)


@pytest.mark.parametrize("name", golden_neighbors.FILES)
def test_settings_are_there(name):
    index = NeighborIndex.open(golden_neighbors.FOLDER / name)
    ids = index.nearest_batch(golden_neighbors.vectors()[:20], k=3).ids
    kept = golden_neighbors.kept()[:20]
    if index.metric != "dot":
        assert (ids[kept, 0] == golden_neighbors.ids()[:20][kept]).mean() > 0.9
    assert set(index.explain().settings) == ({1, 3} if index.explain().way == "cells" else set())
