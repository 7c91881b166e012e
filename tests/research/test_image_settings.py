"""The settings of table 1 are those that its trials found, and every method had as many trials."""

import json
from collections import Counter
from pathlib import Path

import pytest

from research.paper.image_methods import LENGTHS, METHODS, Setting, chosen_setting, read_settings
from research.trials import image_trials

RESULTS = Path(__file__).parents[2] / "research" / "results" / "table1"
CELLS = [(method, n_bits) for method in METHODS for n_bits in LENGTHS]


def test_the_chosen_settings_are_the_best_trials():
    found = read_settings([RESULTS / "trials.json"])
    assert found == {cell: chosen_setting(*cell) for cell in CELLS}


def test_every_method_had_as_many_trials():
    trials = json.loads((RESULTS / "trials.json").read_text())["trials"]
    assert Counter((trial["method"], trial["n_bits"]) for trial in trials) == dict.fromkeys(CELLS, 14)
    for cell in CELLS:
        stages = image_trials.tuning_stages(*cell)
        assert [len(stage(Setting())) for stage in stages] == [4, 2, 2, 4, 2]


def test_the_table_was_measured_with_them():
    records = json.loads((RESULTS / "table1.json").read_text())["records"]
    for run in (record["run"] for record in records):
        if run["method"] in METHODS and not run["variant"]:
            assert Setting(**run["setting"]) == chosen_setting(run["method"], run["n_bits"])


@pytest.mark.parametrize("cell", CELLS)
def test_a_stage_starts_from_the_best_so_far(cell):
    best = Setting(learning_rate=1e-4, backbone_rate=0.5, group_size=3, pull=0.25, loss={"kept": 1})
    first, *later = image_trials.tuning_stages(*cell)
    for changed in (setting for stage in later for setting in stage(best)):
        assert changed != best
        assert changed.loss["kept"] == 1
    assert not any("kept" in setting.loss for setting in first(best))
