"""Models of table 2 are packed into one file, and score again what they scored."""

import json

import numpy as np
import pytest

from hamtarget.errors import CorruptFileError, InputError
from hamtarget.evaluation import exact_neighbors
from research import artefact
from research.benchmarks.search_sets import data_folder
from research.datasets.vector_sets import VectorSet, open_vector_set
from research.figures import RESULTS
from research.paper import model_archive
from research.paper.model_archive import differences, pack_models
from research.paper.vector_models import FINE, Training, lookup_model, probing_model

QUICK = Training(steps=30, batch_size=64, group_size=2)
KEPT = RESULTS / "sift1m" / "models.tar.xz"
SIFT = data_folder() / "sift1m"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a set of vectors in `set` and three models in `models`, one of which is for probing."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(40, 12))
    folder = tmp_path_factory.mktemp("kept")
    parts = {
        name: (centres[random.integers(0, 40, rows)] + 0.2 * random.normal(size=(rows, 12))).astype(np.float32)
        for name, rows in (("learn", 300), ("base", 3000), ("query", 50))
    }
    (folder / "set").mkdir()
    for name, rows in parts.items():
        np.save(folder / "set" / f"{name}.npy", rows)
    vectors = open_vector_set(folder / "set", k=5)
    lookup_model(16, 0, 30.0, "soft_bits", QUICK).trained(vectors, folder / "models")
    lookup_model(64, 2, 30.0, "angle", QUICK).trained(vectors, folder / "models")
    probing_model(FINE, QUICK).trained(vectors, folder / "models")
    return folder


def test_models_are_scored_again(folder, capsys):
    file = folder / "models.tar.xz"
    data = ["--data", str(folder / "set")]
    assert model_archive.main(["pack", str(folder / "models"), str(file), *data]) == 0
    assert model_archive.main(["rescore", str(file), *data]) == 0
    told = capsys.readouterr().out
    assert "16-bits-r0-soft_bits-lambda30-seed0: as it was kept" in told
    assert "2 models, 0 of them not as they were kept" in told
    # Nothing that was scored is not a failure, but no success either.
    assert model_archive.main(["rescore", str(file), *data, "--only", "another"]) == 1


def test_another_figure_another_model_and_other_vectors_are_noticed(folder):
    vectors = open_vector_set(folder / "set", k=5)
    about, files = artefact.unpack(pack_models(folder / "models", vectors))
    assert all(not found for _, found in differences((about, files), vectors))
    kept = json.loads(files["scores.json"])
    names = list(kept["scores"])
    kept["scores"][names[0]]["comparisons"] *= 1.02
    kept["scores"][names[1]]["recall_at_100"] += 0.02
    forged = {**files, "scores.json": json.dumps(kept).encode()}
    found = dict(differences((about, forged), vectors))
    assert [each[0].split(":")[0] for each in found.values()] == ["comparisons", "recall_at_100"]
    other = {**files, f"{names[0]}/model.safetensors": files[f"{names[1]}/model.safetensors"]}
    assert dict(differences((about, other), vectors, only=names[:1]))[names[0]]
    queries = vectors.queries[:40]
    fewer = VectorSet(vectors.learn, vectors.base, queries, exact_neighbors(queries, vectors.base, 1), "generated")
    with pytest.raises(InputError, match="expected those that were scored"):
        list(differences((about, files), fewer))


def test_what_holds_no_models_is_refused(folder, tmp_path):
    vectors = open_vector_set(folder / "set", k=5)
    for content in (({"kind": "files"}, {}), ({"kind": "vector models"}, {"scores.json": b"[]"})):
        with pytest.raises(CorruptFileError, match="holds no models"):
            list(differences(content, vectors))
    with pytest.raises(InputError, match="no model for look-up"):
        pack_models(tmp_path, vectors)


def test_the_kept_file_is_read():
    _, files = artefact.read(KEPT)
    scores = json.loads(files["scores.json"])["scores"]
    assert scores
    assert {name.split("/")[0] for name in files} == {*scores, "scores.json"}


@pytest.mark.slow
@pytest.mark.skipif(not SIFT.is_dir(), reason="no sift1m: set HAMTARGET_DATA")
def test_a_kept_model_scores_what_it_scored():
    name = "64-bits-r2-soft_bits-lambda100-seed0"
    assert dict(differences(artefact.read(KEPT), open_vector_set(SIFT), only=[name])) == {name: []}
