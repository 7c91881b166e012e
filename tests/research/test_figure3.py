import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.errors import FileError, InputError
from research.__main__ import app
from research.paper.figure3 import curve, text, write_figure3
from research.paper.image_methods import Setting
from research.paper.image_runs import Run, RunCodes, save_run


def random_codes(n_bits, seed):
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, 90).astype(np.uint8)
    centres = random.integers(0, 256, (3, n_bits // 8), dtype=np.uint8)
    noise = np.packbits(random.random((90, n_bits)) < 0.1, axis=1)
    codes = centres[labels] ^ noise
    return RunCodes(n_bits, codes[:60], codes[60:], labels[:60], labels[60:], np.arange(60) < 30)


@pytest.fixture
def runs(tmp_path):
    for method, n_bits, seed in (("HDT", 16, 0), ("HDT", 16, 1), ("CSQ", 16, 0), ("HDT", 32, 0)):
        run = Run(method, n_bits, "whole", Setting(), 1, 64, seed)
        save_run(run, tmp_path / "runs", {"run": run.description()}, random_codes(n_bits, seed))
    return tmp_path / "runs"


def test_the_curve_counts_hits_at_every_radius():
    codes = random_codes(16, 0)
    found = curve(codes)
    bits = [np.unpackbits(rows, axis=1) for rows in (codes.queries, codes.database)]
    distance = (bits[0][:, None] != bits[1][None]).sum(axis=2)
    same = codes.query_labels[:, None] == codes.database_labels[None]
    assert found["radius"] == list(range(9))
    for radius in found["radius"]:
        within = distance <= radius
        assert found["recall"][radius] == pytest.approx((within & same).sum() / same.sum())
        assert found["precision"][radius] == pytest.approx((within & same).sum() / max(1, within.sum()))


def test_the_figure_is_drawn_from_the_runs_of_seed_0(runs, tmp_path):
    records = write_figure3(runs, tmp_path)
    assert [(record["method"], record["n_bits"]) for record in records] == [("CSQ", 16), ("HDT", 16), ("HDT", 32)]
    assert len(json.loads((tmp_path / "figure3.json").read_text())["records"]) == 3
    assert (tmp_path / "figure3.png").stat().st_size > 1000
    assert len(text(records).splitlines()) == 4
    assert [record["method"] for record in write_figure3(runs, tmp_path, methods=("CSQ",))] == ["CSQ"]


def test_the_verb_draws_and_shows(runs, tmp_path):
    result = CliRunner().invoke(app, ["figure3", "--runs", str(runs), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "within 4" in result.stdout


def test_wrong_folders_and_methods_are_refused(runs, tmp_path):
    with pytest.raises(FileError, match="holds no run of the whole task"):
        write_figure3(tmp_path, tmp_path)
    with pytest.raises(InputError, match="method is 'PQ'"):
        write_figure3(runs, tmp_path, methods=("PQ",))
