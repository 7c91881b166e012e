import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hamtarget import Store
from hamtarget import demo as walk
from hamtarget.datasets.sample import FASHION_CLASSES, fashion_sample
from hamtarget.demo import altered
from hamtarget.errors import FileError
from hamtarget.learn import HashEncoder
from page_examples import reader_folder


def test_the_sample_is_balanced_and_its_queries_are_apart():
    sample = fashion_sample(1000)
    assert sample.images.shape == (5000, 28, 28)
    assert sample.query_images.shape == (1000, 28, 28)
    assert np.bincount(sample.labels).tolist() == [500] * len(FASHION_CLASSES)
    assert np.bincount(sample.query_labels).tolist() == [100] * len(FASHION_CLASSES)


@pytest.mark.slow
def test_the_demo_walks_the_whole_way(tmp_path):
    out = tmp_path / "out"
    command = [Path(sys.executable).parent / "hamtarget", "demo", "--out", out, "--steps", "40"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "HDT (hamtarget)" in done.stdout
    *_, around, own = done.stdout.splitlines()
    assert around.startswith("Look around:")
    assert own.startswith("With your own:")
    # What it tells to type next works as it stands; FOLDER and DIR are the reader's.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    looked = around.removeprefix("Look around:").strip()
    subprocess.run(["bash", "-e", "-c", looked], env={**os.environ, "PATH": path}, capture_output=True, check=True)
    reader_folder(tmp_path)
    first = own.removeprefix("With your own:").partition("(")[0].replace("FOLDER", str(tmp_path / "photos"))
    subprocess.run(["bash", "-e", "-c", first], env={**os.environ, "PATH": path}, capture_output=True, check=True)
    result = json.loads((out / "demo.json").read_text())
    scores = {score["name"]: score for score in result["scores"]}
    # Even a tenth of the training finds more of a class than codes that never saw a label.
    assert scores["HDT (hamtarget)"]["mean_average_precision"] > scores["ITQ"]["mean_average_precision"]
    assert scores["ITQ"]["mean_average_precision"] > scores["LSH"]["mean_average_precision"]
    assert result["searched"]["hits"] == round(1000 * scores["HDT (hamtarget)"]["hits"])
    assert result["duplicates"]["planted"] == 100
    assert result["duplicates"]["found"] > 80
    assert result["problems"] == 0
    assert (out / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert HashEncoder.load(out / "model").n_bits == 32
    sample = fashion_sample()
    with Store.open(out / "store", read_only=True) as store:
        assert len(store) == 5000
        assert store.get([7])[0].payload == {"label": FASHION_CLASSES[sample.labels[7]]}
        found = walk.nearest_images(out / "store", sample, walk.shown_queries(sample))
        assert [len(hits) for hits in found] == [9] * 5


def test_copies_are_not_the_images_themselves():
    images = fashion_sample().images[:50]
    copies = altered(images, np.random.default_rng(0))
    assert (copies.dtype, copies.shape) == (np.uint8, images.shape)
    changed = (copies != images).mean(axis=(1, 2))
    assert (changed > 0.2).all()
    assert np.abs(copies.astype(int) - images).mean() < 30


def test_a_folder_of_someone_else_is_left_alone(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "mine.txt").write_text("mine")
    with pytest.raises(FileError, match="exists and is not a store"):
        walk.store_images(tmp_path / "store", HashEncoder(32), fashion_sample())
    assert (tmp_path / "store" / "mine.txt").read_text() == "mine"


def test_what_the_demo_lacks_is_told_before_it_learns(monkeypatch, tmp_path):
    from typer.testing import CliRunner

    from hamtarget.cli.main import app

    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: real(name, *more) if name != "matplotlib" else None
    )
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "out")])
    assert result.exit_code != 0
    assert "the demo needs matplotlib: pip install 'hamtarget[demo]'" in f"{result.output}{result.exception}"
    assert not (tmp_path / "out").exists()
