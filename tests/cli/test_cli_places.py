"""Every verb that takes a store takes a folder or an address of PostgreSQL; codes for probing are of use everywhere."""

import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.cli.main import app
from hamtarget.client import Client
from hamtarget.encoders import open_encoder
from hamtarget.store import Store

START = "from hamtarget.cli import start; start()"
CODES = ("0000", "0001", "0003", "ff00", "ff01", "aaaa")


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def run_command(*arguments):
    """What the command says; it must succeed."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def place(stores):
    """The folder or address of a store that `hamtarget add` has filled."""
    lines = [json.dumps({"id": f"n{k}", "code": code, "payload": {"k": k}}) for k, code in enumerate(CODES)]
    result = run("add", stores.place(), "-", input="\n".join(lines))
    assert result.exit_code == 0, result.output
    assert result.stdout.endswith(": 6 stored, 0 skipped; 6 in all\n")
    return str(stores.place())


def test_add_goes_on(place):
    result = run("add", place, "-", input='{"id": "n0", "code": "ffff"}\n{"id": "new", "code": "1234"}\n')
    assert result.stdout.endswith(": 1 stored, 1 skipped; 7 in all\n"), result.output
    assert "--bits is 32" in run("add", place, "-", "--bits", "32", input="0000\n").stderr


def test_search_dups_info_and_verify(place):
    told = json.loads(run("search", place, "0000", "--radius", "2", "--json").stdout)
    assert [(hit["id"], hit["distance"]) for hit in told["hits"]] == [("n0", 0), ("n1", 1), ("n2", 2)]
    told = json.loads(run("search", place, "--id", "n4", "-k", "2", "--filter", "k=..3", "--json").stdout)
    assert [hit["id"] for hit in told["hits"]] == ["n3", "n1"]
    assert sorted(run("dups", place, "--radius", "1").stdout.splitlines()) == ["n0\tn1\t1", "n1\tn2\t1", "n3\tn4\t1"]
    told = json.loads(run("info", place, "--json").stdout)
    assert (told["kind"], told["items"], told["n_bits"], told["radius"]) == ("store", 6, 16, 2)
    result = run("verify", place)
    assert (result.exit_code, result.stdout.endswith(": whole (store, 6 rows)\n")) == (0, True), result.output


def test_a_password_is_not_shown(postgres_stores):
    parts = postgres_stores.place().partition("://")
    user, at, rest = parts[2].partition("@")
    secret = f"postgresql://{user}:opensesame@{rest}" if at else None
    if secret is None:
        secret = postgres_stores.place(password="opensesame")
    for result in (run("add", secret, "-", input="00ff\n"), run("info", secret), run("verify", secret)):
        assert result.exit_code == 0, result.output
        assert "opensesame" not in result.output


def test_serve(place):
    """The command serves the store, and a client finds, adds and deletes items."""
    command = [sys.executable, "-c", START, "serve", place, "--port", "0", "--writable", "--no-token"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with Client(process.stdout.readline().split()[2]) as client:
            assert [hit.id for hit in client.search(code="0000", radius=2)] == ["n0", "n1", "n2"]
            assert [hit.id for hit in client.nearest(id="n5", k=1)] == ["n5"]
            client.delete("n5")
            assert client.stats()["items"] == 5
        process.terminate()
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def probing(tmp_path_factory):
    """Vectors, a model that `hamtarget train` made of them, and a store of their codes alone."""
    folder = tmp_path_factory.mktemp("probing")
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 12))
    vectors = (centres[rng.integers(0, 40, 1500)] + 0.4 * rng.normal(size=(1500, 12))).astype(np.float32)
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "queries.npy", vectors[:3] + 0.01)
    run_command("train", folder / "vectors.npy", "--model", folder / "model", "--steps", "60", "--device", "cpu")
    Store.create(folder / "store", encoder=open_encoder(folder / "model"), vectors=None).close()
    made = run_command("add", folder / "store", folder / "vectors.npy")
    assert "1,500 stored" in made
    return SimpleNamespace(vectors=vectors, queries=folder / "queries.npy", store=folder / "store", folder=folder)


def hits_of(result):
    assert result.exit_code == 0, result.output
    return [json.loads(line)["hits"] for line in result.stdout.splitlines()]


def test_codes_for_probing_from_training_to_searching(probing):
    """Codes of vectors alone are of use at once: `search` probes, and tells how."""
    result = run("search", probing.store, probing.queries, "--json")
    by_default = hits_of(result)
    assert "the model was trained for probing: at most 1,000 of 1,500 items are read" in result.stderr
    assert [len(hits) for hits in by_default] == [10] * 3
    assert all(hits[0]["embedding_distance"] <= hits[-1]["embedding_distance"] for hits in by_default)
    near = np.argsort(((probing.vectors[:, None] - np.load(probing.queries)) ** 2).sum(axis=2), axis=0)[:10]
    found = [len({hit["id"] for hit in hits} & set(near[:, query].tolist())) for query, hits in enumerate(by_default)]
    assert sum(found) >= 12, found
    # Asked for, nothing is told.
    result = run("search", probing.store, probing.queries, "--budget", "1000", "--json")
    assert (hits_of(result), result.stderr) == (by_default, "")
    exact = hits_of(run("search", probing.store, probing.queries, "--nearest", "10", "--json"))
    assert [[hit["distance"] for hit in hits] == sorted(hit["distance"] for hit in hits) for hits in exact] == [
        True
    ] * 3
    whole = hits_of(run("search", probing.store, probing.queries, "--budget", "9999", "--limit", "10", "--json"))
    assert whole == exact
    few = hits_of(run("search", probing.store, probing.queries, "--budget", "20", "--rerank", "4", "--json"))
    assert [len(hits) for hits in few] == [4] * 3
    near = hits_of(
        run("search", probing.store, "--id", "7", "--budget", "50", "--radius", "3", "--limit", "5", "--json")
    )
    assert near[0][0]["id"] == 7
    assert all(hit["distance"] <= 3 for hit in near[0])


def test_probing_ranks_by_embeddings_where_the_store_keeps_them(probing):
    store = probing.folder / "ranked"
    arguments = ("--model", probing.folder / "model", "--embeddings", "float16")
    run_command("add", store, probing.folder / "vectors.npy", *arguments)
    hits = hits_of(run("search", store, probing.queries, "--budget", "300", "--rerank", "5", "--json"))
    assert [len(each) for each in hits] == [5] * 3
    fewer = ("--budget", "300", "--comparisons", "30", "--rerank", "5", "--json")
    assert [len(each) for each in hits_of(run("search", store, probing.queries, *fewer))] == [5] * 3
    code = json.loads(run("encode", probing.folder / "model", probing.queries, "--json").stdout.splitlines()[0])["code"]
    assert len(hits_of(run("search", store, code, "--budget", "300", "--json"))[0]) == 10


def test_codes_for_probing_are_served(probing):
    command = [sys.executable, "-c", START, "serve", str(probing.store), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        with Client(process.stdout.readline().split()[2]) as client:
            assert client.stats()["advised"] == "probe"
            hits = client.probe(np.load(probing.queries)[0], rerank=10)
            wanted = hits_of(run("search", probing.store, probing.queries, "--json"))[0]
            assert [hit.id for hit in hits] == [hit["id"] for hit in wanted]
            assert hits.cost.candidates <= 1000
        process.terminate()
        assert "trained for probing: POST /v1/probe" in process.communicate(timeout=30)[1]
    finally:
        process.kill()
        process.communicate()


def test_a_store_of_codes_for_probing_in_a_database(probing, postgres_stores):
    """It is probed there by SQL: within a budget, and exactly where the budget is all items."""
    Store.create(postgres_stores.place(), encoder=open_encoder(probing.folder / "model"), vectors=None).close()
    run_command("add", postgres_stores.place(), probing.folder / "vectors.npy")
    exact = hits_of(run("search", probing.store, probing.queries, "--nearest", "10", "--json"))
    place = postgres_stores.place()
    assert hits_of(run("search", place, probing.queries, "--nearest", "10", "--json")) == exact
    assert hits_of(run("search", place, probing.queries, "--budget", "9999", "--limit", "10", "--json")) == exact
    result = run("search", place, probing.queries, "--json")
    assert "trained for probing" in result.stderr
    assert [len(hits) for hits in hits_of(result)] == [10] * 3
