import json
import subprocess
import sys

import numpy as np
import pytest

from hamtarget.data import FASHION_CLASSES, fashion_sample
from hamtarget.learn import HashEncoder


def test_the_sample_is_balanced_and_its_queries_are_apart():
    sample = fashion_sample(1000)
    assert sample.images.shape == (5000, 28, 28)
    assert sample.query_images.shape == (1000, 28, 28)
    assert np.bincount(sample.labels).tolist() == [500] * len(FASHION_CLASSES)
    assert np.bincount(sample.query_labels).tolist() == [100] * len(FASHION_CLASSES)


@pytest.mark.slow
def test_the_demo_walks_the_whole_way(tmp_path):
    command = [sys.executable, "-m", "hamtarget.demo", "--out", str(tmp_path), "--steps", "40"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "HDT (hamtarget)" in done.stdout
    scores = {s["name"]: s for s in json.loads((tmp_path / "demo.json").read_text())["scores"]}
    # Even a tenth of the training finds more of a class than codes that never saw a label.
    assert scores["HDT (hamtarget)"]["mean_average_precision"] > scores["ITQ"]["mean_average_precision"]
    assert scores["ITQ"]["mean_average_precision"] > scores["LSH"]["mean_average_precision"]
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert HashEncoder.load(tmp_path / "model").n_bits == 32
