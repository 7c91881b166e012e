"""A file of vectors becomes a store without a model, and without torch."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.cli.add import with_learned_codes
from hamtarget.cli.inputs.new_stores import WantedStore
from hamtarget.cli.inputs.records import Records
from hamtarget.cli.main import app
from hamtarget.encoders import itq
from hamtarget.search import neighbor_index
from hamtarget.store import Store
from hamtarget.store.vectors import nearest_vectors

N_ROWS = 2600


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def refused(*arguments, input=None):
    """What the command says when it refuses."""
    result = run(*arguments, input=input)
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    return result.stderr


@pytest.fixture(scope="module")
def rows():
    random = np.random.default_rng(0)
    centres = random.normal(size=(30, 70))
    return (centres[random.integers(0, 30, N_ROWS + 20)] + 0.4 * random.normal(size=(N_ROWS + 20, 70))).astype("f4")


def nearest(rows, queries, metric, k):
    """The numbers of the k nearest rows of each query, by brute force."""
    if metric == "cosine":
        rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    far = -queries @ rows.T
    if metric == "l2":
        far = ((queries[:, None] - rows[None]) ** 2).sum(axis=2)
    return np.argsort(far, axis=1)[:, :k]


@pytest.mark.parametrize(
    ("metric", "columns", "method"), [("cosine", 70, "ITQ"), ("l2", 12, "LSH"), ("dot", 70, "ITQ")]
)
def test_the_nearest_are_found_without_a_model(rows, tmp_path, monkeypatch, metric, columns, method):
    monkeypatch.setattr(nearest_vectors, "FEWEST_ITEMS", 1000)
    monkeypatch.setattr(neighbor_index, "FEWEST_ROWS_OF_CELLS", 1000)
    monkeypatch.setattr(neighbor_index, "_why_slower", lambda *_: None)
    monkeypatch.setattr(itq, "MOST_LEARNED_FROM", 1000)
    rows, queries = rows[:N_ROWS, :columns], rows[N_ROWS:, :columns]
    np.save(tmp_path / "vectors.npy", rows)
    np.save(tmp_path / "queries.npy", queries)
    added = run("add", tmp_path / "store", tmp_path / "vectors.npy", "--metric", metric)
    assert added.exit_code == 0, added.output
    assert f"no --model: codes by {method}, learned from 1,000 of 2,600 vectors" in added.stderr
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert (store.vectors, store.n_bits, [*store.tunings]) == (metric, 64, [10])
    found = run("search", tmp_path / "store", tmp_path / "queries.npy", "--nearest", 10, "--recall", ".95", "--json")
    assert found.exit_code == 0, found.output
    hits = [{hit["id"] for hit in json.loads(line)["hits"]} for line in found.stdout.splitlines()]
    true = nearest(rows, queries, metric, 10)
    assert np.mean([len(ids & {*near.tolist()}) / 10 for ids, near in zip(hits, true, strict=True)]) > 0.9
    again = run("add", tmp_path / "store", tmp_path / "vectors.npy", "--metric", metric)
    assert "0 stored, 2,600 skipped" in again.output
    assert "2,600 skipped, because their ids are in the store already; --prefix TEXT adds them" in again.stderr
    assert "no --model" not in again.output


def test_neither_torch_nor_onnxruntime_is_needed(rows, tmp_path):
    pytest.importorskip("fastapi")
    np.save(tmp_path / "vectors.npy", rows[:300])
    program = """
import sys
for blocked in ("torch", "onnxruntime", "onnx"):
    sys.modules[blocked] = None
from typer.testing import CliRunner
from hamtarget.cli.main import app
from hamtarget.encoders import itq
for arguments in (["add", "store", "vectors.npy", "--metric", "cosine"], ["search", "store", "vectors.npy", "--json"],
                  ["info", "store"], ["verify", "store"]):
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
import numpy as np
from hamtarget.client import Client
from hamtarget.serve import ServiceSettings, serving
from hamtarget.store import Store
store = Store.open("store", read_only=True)
with serving(store, ServiceSettings(port=0)) as address, Client(address) as client:
    assert client.nearest(np.load("vectors.npy")[7], k=1)[0].id == 7
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=120)


def test_lines_are_learned_from_as_they_come(rows, tmp_path, monkeypatch):
    monkeypatch.setattr(itq, "MOST_LEARNED_FROM", 50)
    lines = "".join(
        json.dumps({"id": f"row {number}", "vector": row.tolist(), "payload": {"even": number % 2 == 0}}) + "\n"
        for number, row in enumerate(rows[:120])
    )
    added = run("add", tmp_path / "store", "-", input=lines)
    assert added.exit_code == 0, added.output
    assert "learned from 50 vectors; the nearest by l2" in added.stderr
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert len(store) == 120
        true = nearest(rows[:120], rows[7:8], "l2", 5)[0]
        assert [hit.id for hit in store.nearest(rows[7], k=5, recall=1)] == [f"row {number}" for number in true]
        assert store.get(["row 7"])[0].payload == {"even": False}


def test_rows_of_bytes_are_codes_unless_a_metric_is_given(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (40, 16), dtype=np.uint8)
    np.save(tmp_path / "bytes.npy", rows)
    for name, options, bits, vectors in (("codes", [], 128, None), ("vectors", ["--metric", "l2"], 64, "l2")):
        assert run("add", tmp_path / name, tmp_path / "bytes.npy", *options).exit_code == 0
        with Store.open(tmp_path / name, read_only=True) as store:
            assert (store.n_bits, store.vectors, len(store)) == (bits, vectors, 40)
    assert "--metric is l2" in refused("add", tmp_path / "codes", tmp_path / "bytes.npy", "--metric", "l2")
    assert "no vectors; leave it out" in refused(
        "add", tmp_path / "new", "-", "--metric", "l2", input="00ff00ff00ff00ff\n"
    )
    assert not (tmp_path / "new").exists()


def test_options_of_codes_and_embeddings_are_kept(rows, tmp_path):
    np.save(tmp_path / "vectors.npy", rows[:100])
    added = run(
        "add", tmp_path / "store", tmp_path / "vectors.npy", "--bits", 32, "--radius", 5, "--embeddings", "int8"
    )
    assert added.exit_code == 0, added.output
    assert "found by the vectors" not in added.stderr
    with Store.open(tmp_path / "store", read_only=True) as store:
        assert (store.n_bits, store.radius, store.vectors, store.embeddings.n_dims) == (32, 5, None, 32)
    options = ("--metric", "l2", "--embeddings", "int8")
    assert "both given" in refused("add", tmp_path / "other", tmp_path / "vectors.npy", *options)


@pytest.mark.parametrize(
    ("place", "words"),
    [("store", "found by the vectors themselves"), ("postgresql://host/db?store=name", "see hamtarget train")],
)
def test_it_is_said_what_the_codes_are_for(rows, place, words, capsys):
    wanted, records = with_learned_codes(place, WantedStore(None, None, None, None), Records(9, [], rows[:9]))
    assert (wanted.encoder.neighbor_metric, records.total) == ("l2", 9)
    assert words in capsys.readouterr().err


def test_wrong_vectors_leave_no_store(rows, tmp_path):
    wrong = {"nan": rows[:20].copy(), "zeros": rows[:20].copy(), "one": rows[:1]}
    wrong["nan"][3, 4] = np.nan
    wrong["zeros"][5] = 0
    for (name, array), words in zip(
        wrong.items(), ("row 3 holds NaN", "row 5 is all zeros", "at least 2"), strict=True
    ):
        np.save(tmp_path / f"{name}.npy", array)
        assert words in refused("add", tmp_path / "store", tmp_path / f"{name}.npy", "--metric", "cosine")
    for lines, words in (
        ("[1, 2]\n[1, 2, 3]\n", "shape (3,)"),
        ("[1, 2]\n[1, [2]]\n", "line 2: the vector has parts of different lengths"),
        ('[1, 2]\n["a", "b"]\n', "expected numbers"),
        ("[1, 2]\n[1, 1e300]\n", "row 1 holds NaN or infinity"),
        ("[1, 2]\n[0, 0]\n", "row 1 is all zeros"),
        ("[1, 2]\n", "at least 2"),
    ):
        assert words in refused("add", tmp_path / "store", "-", "--metric", "cosine", input=lines)
    np.save(tmp_path / "good.npy", rows[:20])
    assert "n_bits is 12" in refused("add", tmp_path / "store", tmp_path / "good.npy", "--bits", "12")
    assert not (tmp_path / "store").exists()


def test_a_store_refuses_other_vectors(rows, tmp_path):
    np.save(tmp_path / "vectors.npy", rows[:100])
    np.save(tmp_path / "short.npy", rows[:100, :30])
    np.save(tmp_path / "zeros.npy", np.zeros((3, 70), dtype=np.float32))
    store = tmp_path / "store"
    assert run("add", store, tmp_path / "vectors.npy", "--metric", "cosine").exit_code == 0
    assert "shape (30,); the store takes (70,)" in refused("add", store, tmp_path / "short.npy")
    assert "--metric is l2" in refused("add", store, tmp_path / "vectors.npy", "--metric", "l2")
    assert "all zeros" in refused("add", store, tmp_path / "zeros.npy", "--prefix", "new-")
    assert "has shape (2,)" in refused("add", store, "-", input='{"id": "new", "vector": [1, 2]}\n')
    with Store.open(store, read_only=True) as opened:
        assert len(opened) == 100
