import json

import numpy as np
import pytest

from hamtarget.evaluation import exact_neighbors
from research.datasets.vector_sets import VectorSet
from research.paper import figure4
from research.paper.vector_models import Training

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    centres = random.integers(40, 200, size=(40, 72))
    learn, base, queries = (
        np.clip(centres[random.integers(0, 40, rows)] + random.normal(scale=10, size=(rows, 72)), 0, 255).astype(
            np.uint8
        )
        for rows in (700, 4000, 60)
    )
    return VectorSet(learn, base, queries, exact_neighbors(queries, base, 5), "generated")


def test_all_curves_are_measured_written_and_drawn(vectors, tmp_path, monkeypatch):
    peers = pytest.importorskip(
        "research.peers.faiss_peers", reason="faiss is not installed: pip install 'hamtarget[research]'"
    )
    monkeypatch.setattr(figure4, "figure4_peers", lambda whole_bytes: [peers.IVFVectors(cells=16)])
    monkeypatch.setattr(figure4, "BUDGETS", (200, 1000))
    told = []
    curves = figure4.write_figure4(
        vectors,
        tmp_path,
        tmp_path / "models",
        Training(steps=2, batch_size=64),
        Training(steps=1, batch_size=64),
        repeats=1,
        progress=lambda *args: told.append(args),
        report=lambda line: None,
    )
    methods = [curve["method"] for curve in curves]
    assert [name.split(",")[0].split()[0] for name in methods] == [
        *("hamtarget", "hamtarget", "hamtarget", "ITQ", "LSH", "faiss"),
        *("HDT-E", "HDT-E", "HDT-E"),
    ]
    written = json.loads((tmp_path / "figure4.json").read_text())
    assert [curve["method"] for curve in written["curves"]] == methods
    assert written["provenance"]["versions"]["faiss"]
    for name in ("figure4.png", "figure4_speed.png", "figure4_memory.png"):
        assert (tmp_path / name).read_bytes().startswith(PNG)
    assert told


def test_the_fastest_that_is_good_enough_counts():
    def point(recall, pace):
        return {"recall_at_100": recall, "queries_per_second": pace, "comparisons": 5.0, "bytes_per_row": 9.0}

    curves = [
        {"method": "slow", "points": [point(0.99, 10.0)]},
        {"method": "fast", "points": [point(0.94, 90.0), point(0.95, 30.0), point(0.97, 20.0)]},
        {"method": "poor", "points": [point(0.5, 1000.0)]},
    ]
    best = figure4.fastest(curves, 0.95)
    assert [(each["method"], each["queries_per_second"]) for each in best] == [("fast", 30.0), ("slow", 10.0)]
    assert "fast" in figure4.text(curves)
    assert "poor" not in figure4.text(curves)


def test_only_points_that_no_other_beats_are_drawn():
    points = [{"recall_at_100": recall, "cost": cost} for recall, cost in ((0.5, 1), (0.4, 2), (0.7, 3), (0.7, 4))]
    assert [point["cost"] for point in figure4._front(points, more_is_better=False)] == [1, 3]
    assert [point["cost"] for point in figure4._front(points, more_is_better=True)] == [4]


def test_floats_that_are_bytes_become_bytes(vectors):
    parts = (vectors.learn, vectors.base, vectors.queries)
    floats = VectorSet(*(part.astype(np.float32) for part in parts), vectors.neighbors, "floats")
    narrowed = figure4.as_bytes(floats)
    assert narrowed.base.dtype == np.uint8
    assert np.array_equal(narrowed.base, vectors.base)
    floats.base[-1, -1] = 0.5
    assert figure4.as_bytes(floats) is floats
