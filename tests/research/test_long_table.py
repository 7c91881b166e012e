"""The table that is trained to the end: its trainings, and additions that every method can take."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from hamtarget.datasets import fashion_sample
from hamtarget.errors import InputError
from hamtarget.learn.networks.residual import SmallResNet
from research.comparators import FineTuner
from research.paper import long_table
from research.paper.image_bench import ImageBench
from research.paper.image_methods import LENGTHS, METHODS, Setting
from research.paper.image_runs import Run, is_kept, kept_runs
from research.paper.image_tasks import LabelledImages
from research.threads import one_thread
from research.trials import image_additions

SETTINGS = {
    (method, n_bits): Setting(pull=0.5, loss={"proxy_weight": 12.0} if method == "HDT" else {})
    for method in long_table.ADDED
    for n_bits in LENGTHS
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    with one_thread():
        yield


@pytest.fixture(scope="module")
def bench():
    sample = fashion_sample()
    images = np.concatenate([sample.images[:400], sample.query_images[:60]])
    labels = np.concatenate([sample.labels[:400], sample.query_labels[:60]]).astype(np.int64)
    source = LabelledImages(images, labels, 400, np.arange(300))

    def tuner(task):
        torch.manual_seed(0)
        return FineTuner(task.source.images, SmallResNet((1, *task.source.images.shape[1:]), width=4))

    return ImageBench(lambda: source, tuner)


def small_run(method, loss=None, pull=0.0):
    setting = Setting(learning_rate=4e-3, backbone_rate=1.0, batch_size=100, pull=pull, loss=loss or {})
    return Run(method, 16, "whole", setting, epochs=1, size=28)


def test_every_part_trains_each_cell_once():
    for part in long_table.PARTS:
        names = [run.name for training in long_table.trainings(part, SETTINGS) for run in training.runs]
        assert len(set(names)) == len(names)
    cells = {
        (training.runs[0].method, training.runs[0].n_bits, training.runs[0].seed)
        for training in long_table.trainings("own", SETTINGS)
    }
    assert len(cells) == len(METHODS) * len(LENGTHS) * long_table.SEEDS
    with pytest.raises(InputError, match="expected one of additions"):
        long_table.trainings("other", SETTINGS)


@pytest.mark.parametrize("method", ["HDT", "DBR", "CSQ", "OrthoHash"])
def test_one_training_gives_the_codes_of_every_pull(bench, method):
    loss = {"guide_bits": 32, "likeness": 1.0} | ({"proxy_weight": 12.0} if method == "HDT" else {})
    run = small_run(method, loss)
    pulled = [replace(run, setting=replace(run.setting, pull=pull)) for pull in (0.0, 2.0)]
    together = bench.do_pulled(run, pulled)
    for one, (facts, codes) in zip(pulled, together, strict=True):
        _, alone = bench.do(one)
        assert np.array_equal(codes.queries, alone.queries)
        assert codes.queries.shape == (60, 2)
        assert facts["run"]["setting"]["pull"] == one.setting.pull
    assert not np.array_equal(together[0][1].database, together[1][1].database)


def test_trainings_are_kept_and_summed_up(bench, tmp_path):
    runs = [small_run("DBR"), small_run("DBR", pull=1.0)]
    training = long_table.Training((replace(runs[0], variant="unpulled"), replace(runs[1], variant="added")))
    other = long_table.Training((replace(runs[0], variant="unpulled", seed=1),))
    assert long_table.do_missing([training, other], bench, tmp_path / "runs", until=-math.inf) == 2
    assert long_table.do_missing([training, other], bench, tmp_path / "runs", until=math.inf) == 0
    assert all(is_kept(run, tmp_path / "runs") for run in training.runs)
    assert len(kept_runs(tmp_path / "runs")) == 3
    written = long_table.write_table(tmp_path / "runs", tmp_path / "long.json")
    cell = written["summary"]["DBR-unpulled"]["16"]
    maps = [record["scores"]["database"]["map"] for record in written["records"] if record["run"]["variant"] != "added"]
    assert cell["seeds"] == 2
    assert cell["map"] == pytest.approx(np.mean(maps))
    assert cell["deviation"] == pytest.approx(np.std(maps, ddof=1))
    assert json.loads((tmp_path / "long.json").read_text())["summary"] == written["summary"]
    assert "DBR-added" in long_table.text(written["summary"])


def test_a_method_is_pulled_where_the_longest_trials_found_that_better(tmp_path):
    def trial(n_bits, pull, found):
        return {"method": "DBR", "n_bits": n_bits, "setting": {"pull": pull}, "map": found}

    short = [trial(16, 0.0, 0.5), trial(16, 1.0, 0.6), trial(32, 0.0, 0.5), trial(32, 1.0, 0.6), trial(32, 2.0, 0.55)]
    longer = [trial(32, 0.0, 0.8), trial(32, 1.0, 0.7), trial(32, 2.0, 0.9)]
    paths = [tmp_path / "short.json", tmp_path / "long.json"]
    for path, trials in zip(paths, (short, longer), strict=True):
        path.write_text(json.dumps({"trials": trials, "winners": image_additions.winners(trials)}))
    summary = {
        "DBR-added": {"16": {"map": 0.1}, "32": {"map": 0.2}},
        "DBR-unpulled": {"16": {"map": 0.3}, "32": {"map": 0.4}},
    }
    # A weight that only the long trials prefer was not encoded: it does not count.
    assert long_table.chosen(summary, paths) == {
        "DBR": {"16": {"map": 0.1, "pull": 1.0}, "32": {"map": 0.4, "pull": 0.0}}
    }


def test_additions_are_tried_alike_for_every_method(bench):
    counts = {
        (method, n_bits): len(image_additions.candidates(method, n_bits))
        for method in image_additions.METHODS
        for n_bits in LENGTHS
    }
    assert set(counts.values()) == {4}
    tried = image_additions.try_setting(bench, small_run("OrthoHash", {"likeness": 1.0}))
    assert [record["setting"]["pull"] for record in tried] == list(image_additions.PULLS)
    best = max(tried, key=lambda record: record["map"])
    assert image_additions.winners([*tried, {**best, "method": "CSQ", "map": 0.0}]) == [
        best,
        {**best, "method": "CSQ", "map": 0.0},
    ]
