"""A file of vectors from training to neighbours at a recall, on the command line."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.cli.main import app
from hamtarget.search import neighbor_index
from hamtarget.store import Store
from hamtarget.store.vectors import nearest_vectors

pytest.importorskip("torch")

FAST = ["--steps", "40", "--batch-size", "64", "--width", "16", "--device", "cpu"]
N_ROWS = 2600


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vectors")
    random = np.random.default_rng(0)
    centres = random.normal(size=(30, 10))
    rows = (centres[random.integers(0, 30, N_ROWS + 20)] + 0.4 * random.normal(size=(N_ROWS + 20, 10))).astype("f4")
    np.save(folder / "vectors.npy", rows[:N_ROWS])
    np.save(folder / "queries.npy", rows[N_ROWS:])
    result = run("train", folder / "vectors.npy", "--model", folder / "model", "--metric", "cosine", *FAST)
    assert result.exit_code == 0, result.output
    assert "for near vectors by cosine" in result.output
    return folder


def test_neighbours_come_at_a_recall(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(nearest_vectors, "FEWEST_ITEMS", 1000)
    monkeypatch.setattr(neighbor_index, "FEWEST_ROWS_OF_CELLS", 1000)
    monkeypatch.setattr(neighbor_index, "_why_slower", lambda *_: None)
    added = run("add", tmp_path / "store", folder / "vectors.npy", "--model", folder / "model")
    assert added.exit_code == 0, added.output
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert store.vectors == "cosine"
        assert [*store.tunings] == [10]
    rows, queries = np.load(folder / "vectors.npy"), np.load(folder / "queries.npy")
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    for arguments, k, least in (([], 10, 0.85), (["--nearest", "4", "--recall", "1"], 4, 0.97)):
        found = run("search", tmp_path / "store", folder / "queries.npy", *arguments, "--json")
        assert found.exit_code == 0, found.output
        lines = [json.loads(line) for line in found.stdout.splitlines()]
        shares = [
            len({hit["id"] for hit in line["hits"]} & {*np.argsort(-unit @ query)[:k].tolist()}) / k
            for line, query in zip(lines, queries, strict=True)
        ]
        assert np.mean(shares) > least
        assert all(len(line["hits"]) == k for line in lines)
    by_id = run("search", tmp_path / "store", "--id", "5", "--nearest", "3", "--json")
    assert json.loads(by_id.stdout)["hits"][0]["id"] == 5
    shown = run("info", tmp_path / "store")
    assert "tuned for 10" in shown.output
    assert "budget" in shown.output
    (cells,) = (tmp_path / "store").glob("cells-*")
    cells.unlink()
    found = run("search", tmp_path / "store", folder / "queries.npy", "--json")
    assert "not tuned: all vectors are compared" in found.stderr
    assert len(found.stdout.splitlines()) == len(queries)
    wrong = run("search", tmp_path / "store", folder / "queries.npy", "--text-column", "body")
    assert wrong.exit_code == 2
    assert "keeps no texts" in wrong.output


def test_the_explicit_ways_still_work(folder, tmp_path):
    added = run("add", tmp_path / "store", folder / "vectors.npy", "--model", folder / "model", "--embeddings", "int8")
    assert added.exit_code == 0, added.output
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert store.vectors is None
        assert store.embeddings.n_dims == 64
    found = run("search", tmp_path / "store", folder / "queries.npy", "--budget", "4000", "--rerank", "3", "--json")
    assert found.exit_code == 0, found.output
    assert all(len(json.loads(line)["hits"]) == 3 for line in found.stdout.splitlines())
    refused = run("search", tmp_path / "store", folder / "queries.npy", "--recall", ".9")
    assert refused.exit_code != 0
    assert "keeps no vectors" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--recall", "0"], "recall"),
        (["--recall", "1.2"], "recall"),
        (["--recall", ".9", "--budget", "100"], "--recall"),
        (["--recall", ".9", "--radius", "3"], "--recall"),
    ],
)
def test_a_wrong_recall_is_refused(folder, tmp_path, arguments, word):
    np.save(tmp_path / "few.npy", np.load(folder / "vectors.npy")[:30])
    assert run("add", tmp_path / "store", tmp_path / "few.npy", "--model", folder / "model").exit_code == 0
    result = run("search", tmp_path / "store", folder / "queries.npy", *arguments)
    assert result.exit_code != 0
    assert word in result.stderr


def test_a_metric_is_for_vectors_without_labels(folder, tmp_path):
    rows = np.load(folder / "vectors.npy")[:60]
    np.savez(tmp_path / "labelled.npz", vectors=rows, labels=np.arange(60) % 3)
    result = run("train", tmp_path / "labelled.npz", "--model", tmp_path / "model", "--metric", "cosine", *FAST)
    assert result.exit_code != 0
    assert "--metric" in result.stderr
    np.save(tmp_path / "zeros.npy", np.concatenate([rows, np.zeros((1, 10), dtype=np.float32)]))
    result = run("train", tmp_path / "zeros.npy", "--model", tmp_path / "model", "--metric", "cosine", *FAST)
    assert result.exit_code != 0
    assert "row 60" in result.stderr
