import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.encoders import LSH
from hamtarget.evaluation import exact_neighbors
from research.__main__ import app
from research.datasets.vector_sets import VectorSet
from research.paper import table2
from research.paper.lookup import exact_lookup
from research.paper.vector_codes import trained_encoder
from research.paper.vector_models import Training

QUICK = Training(steps=4, batch_size=32, group_size=2)


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    centres = random.normal(size=(40, 12))
    learn, base, queries = (
        (centres[random.integers(0, 40, rows)] + 0.2 * random.normal(size=(rows, 12))).astype(np.float32)
        for rows in (300, 3000, 50)
    )
    return VectorSet(learn, base, queries, exact_neighbors(queries, base, 5), "generated")


def naive_lookup(encoder, vectors, radius):
    """Every pair, bit by bit."""
    base, queries = encoder.logits(vectors.base), encoder.logits(vectors.queries)
    distance = ((queries > 0)[:, None] != (base > 0)[None]).sum(axis=2)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, base)]
    closeness = unit[0] @ unit[1].T
    recall = within = comparisons = 0
    for i, truth in enumerate(vectors.neighbors[:, 0]):
        inside = np.flatnonzero(distance[i] <= radius)
        comparisons += len(inside)
        within += truth in inside
        recall += truth in inside[np.argsort(-closeness[i, inside], kind="stable")][:100]
    return recall / len(queries), within / len(queries), comparisons / len(queries)


def test_exact_lookup_equals_its_definition(vectors):
    encoder = LSH(16, seed=1).fit(vectors.learn)
    found = exact_lookup(encoder, vectors, 2)
    recall, within, comparisons = naive_lookup(encoder, vectors, 2)
    # float16 embeddings may order two rows otherwise.
    assert found["recall_at_100"] == pytest.approx(recall, abs=0.021)
    assert found["nearest_within"] == within
    assert found["comparisons"] == comparisons
    assert found["candidates"] >= found["comparisons"]


def test_a_model_is_trained_once(vectors, tmp_path):
    setting = {"n_bits": 16, "radius": 1, "width": 8, **QUICK.setting()}
    told = []
    first = trained_encoder(vectors, setting, tmp_path / "a", name="a", progress=lambda *args: told.append(args))
    assert told[-1] == ("a", 4, 4)
    told.clear()
    again = trained_encoder(vectors, setting, tmp_path / "a", name="a", progress=lambda *args: told.append(args))
    assert not told
    assert again.seconds == first.seconds
    assert np.array_equal(again.encoder.encode(vectors.base), first.encoder.encode(vectors.base))
    trained_encoder(vectors, {**setting, "seed": 1}, tmp_path / "a", name="a", progress=lambda *args: told.append(args))
    assert told
    # Damaged neighbours are found anew.
    (tmp_path / "neighbors.npz").write_bytes(b"PK\x03\x04 no more")
    trained_encoder(vectors, {**setting, "seed": 2}, tmp_path / "a", name="a")
    with np.load(tmp_path / "neighbors.npz") as kept:
        assert kept["neighbors"].shape == (300, 10)


def test_every_cell_is_measured(vectors, tmp_path):
    records = table2.measure(vectors, tmp_path, QUICK, lengths=((16, 0), (32, 1)), lambdas=(100.0,))
    cells = [(r["way"], r["n_bits"], r["radius"]) for r in records]
    assert cells == [(way, n, r) for way in ("angle", "soft_bits") for n, r in ((16, 0), (32, 1))]
    shown = table2.text(records)
    assert "0.324, 1,463" in shown
    assert len(shown.splitlines()) == 5


def test_the_verb_writes_and_shows(vectors, tmp_path):
    (tmp_path / "data").mkdir()
    learn = np.tile(vectors.learn, (4, 1)) + np.repeat(np.linspace(0, 0.1, 4), len(vectors.learn))[:, None]
    for name, rows in (("base", vectors.base), ("learn", learn.astype(np.float32)), ("query", vectors.queries)):
        np.save(tmp_path / "data" / f"{name}.npy", rows)
    arguments = ["table2", "--data", str(tmp_path / "data"), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [*arguments, "--steps", "1", "--bits", "16"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("\n") == 7
    told = json.loads((tmp_path / "out" / "table2.json").read_text())
    assert len(told["records"]) == 6
    assert told["provenance"]["versions"]["hamtarget"]
    refused = CliRunner().invoke(app, [*arguments, "--bits", "24"])
    assert refused.exit_code == 2
    assert "expected 16, 32 or 64" in refused.stderr
