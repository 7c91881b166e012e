"""The table that is trained to the end: its trainings, and additions that every method can take."""

import json
import math
import sys
from dataclasses import asdict, replace
from itertools import permutations

import numpy as np
import pytest
import torch

from hamtarget.datasets import fashion_sample
from hamtarget.errors import InputError
from hamtarget.learn.losses.proxies import cosine_cross_entropy
from hamtarget.learn.networks.builder import SmallResNet
from research.comparators import FineTuner
from research.paper import long_table
from research.paper.image_bench import ImageBench
from research.paper.image_methods import (
    LENGTHS,
    METHODS,
    NAMES,
    PAPER_SETTING,
    PULLS,
    LossTask,
    Setting,
    chosen_setting,
)
from research.paper.image_runs import Run, is_kept, kept_runs
from research.paper.image_scores import independent_bits
from research.paper.image_tasks import TASKS, LabelledImages, held_out_task
from research.paper.long_curve import draw_curve
from research.threads import one_thread
from research.trials import image_additions, image_trials, long_settings, paper_loss

SETTINGS = {
    (method, n_bits): Setting(pull=0.5, loss={"proxy_weight": 12.0} if method == "HDT" else {})
    for method in long_table.ADDED
    for n_bits in LENGTHS
}
SETTLED = {cell: replace(setting, backbone_rate=0.001, pull=0.25) for cell, setting in SETTINGS.items()}


def written_settings(path, settings):
    """Write settings as the files of trials have them, and return the file's name."""
    winners = [{"method": method, "n_bits": bits, "setting": asdict(each)} for (method, bits), each in settings.items()]
    path.write_text(json.dumps({"winners": winners}))
    return str(path)


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

    tasks = {**TASKS, "held_out": lambda images: held_out_task(images, n_rows=100, n_queries=20)}
    return ImageBench(lambda: source, tuner, tasks=tasks)


def small_run(method, loss=None, pull=0.0):
    setting = Setting(learning_rate=4e-3, backbone_rate=1.0, batch_size=100, pull=pull, loss=loss or {})
    return Run(method, 16, "whole", setting, epochs=1, size=28)


def test_every_part_trains_each_cell_once():
    for part in long_table.PARTS:
        trained = long_table.trainings(part, SETTINGS, settled=SETTLED, paper={("HDT", 32): PAPER_SETTING})
        names = [run.name for training in trained for run in training.runs]
        assert names
        assert len(set(names)) == len(names)
    cells = {
        (training.runs[0].method, training.runs[0].n_bits, training.runs[0].seed)
        for training in long_table.trainings("own", SETTINGS, settled=SETTLED)
    }
    assert len(cells) == len(NAMES) * len(LENGTHS) * long_table.SEEDS
    with pytest.raises(InputError, match="expected one of settled, sizes"):
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
    untrained = long_table.Training((replace(runs[0], method="LSH", epochs=0),))
    wanted, folder = [training, other, untrained], tmp_path / "runs"
    assert long_table.do_missing(wanted, lambda size: bench, folder, until=-math.inf) == 3
    assert long_table.do_missing(wanted, lambda size: bench, folder, until=math.inf) == 0
    assert all(is_kept(run, folder) for run in training.runs)
    assert len(kept_runs(folder)) == 4
    written = long_table.write_table(tmp_path / "runs", tmp_path / "long.json")
    cell = written["summary"]["DBR-unpulled"]["16"]
    maps = [
        record["scores"]["database"]["map"] for record in written["records"] if record["run"]["variant"] == "unpulled"
    ]
    assert cell["seeds"] == 2
    assert cell["map"] == pytest.approx(np.mean(maps))
    assert cell["deviation"] == pytest.approx(np.std(maps, ddof=1))
    assert json.loads((tmp_path / "long.json").read_text())["summary"] == written["summary"]
    assert "DBR-added" in long_table.text(written["summary"])


def test_a_training_that_would_end_too_late_is_not_begun(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(long_table.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(bench, "do_pulled", lambda run, pulled: [({"training_seconds": 30 * run.epochs}, None)])
    monkeypatch.setattr(long_table, "save_run", lambda *_: None)
    monkeypatch.setattr(long_table, "quick_map", lambda _: 0.0)
    run = small_run("DBR")
    short, long, larger = (
        long_table.Training((one,)) for one in (run, replace(run, epochs=30), replace(run, epochs=8, size=56))
    )
    # It is judged by epochs and by pixels: 30 s for an epoch of the first.
    for wanted, seconds in ((long, 900), (larger, 960)):
        for spare, left in ((1, 0), (-1, 1)):
            clock = iter(range(0, 10_000, 100))
            until = 200 + seconds + long_table._AROUND + spare
            assert long_table.do_missing([short, wanted], lambda size: bench, tmp_path, until=until) == left


def test_the_command_trains_only_what_is_asked_for(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(long_table, "open_bench", lambda *_, **__: bench)
    monkeypatch.setattr(long_table, "EPOCHS", 0.3)
    files = [
        *("--settings", written_settings(tmp_path / "added.json", SETTINGS)),
        *("--settled", written_settings(tmp_path / "settled.json", SETTLED)),
        *(
            "--paper",
            written_settings(tmp_path / "paper.json", {("HDT", 16): PAPER_SETTING, ("HDT", 64): PAPER_SETTING}),
        ),
    ]
    folder = tmp_path / "runs"
    common = ["--data", "a", "--weights", "b", *files, "--runs", str(folder)]
    assert long_table.main([*common, "--parts", "pairs", "paper"]) == 0
    assert long_table.main([*common, "--parts", "own", "--methods", "DHN", "LSH", "--seeds", "1"]) == 0
    pairs = ("pairs-one-radius", "pairs", "without-pairs", "without-pairs-pull0")
    assert {path.stem for path in folder.glob("*.json")} == {
        *(f"HDT-settled-{variant}-{bits}-whole-seed2" for variant in pairs for bits in LENGTHS),
        *("HDT-paper-16-whole-seed0", "HDT-paper-64-whole-seed0"),
        *(f"{method}-{bits}-whole-seed0" for method in ("DHN", "LSH") for bits in LENGTHS),
    }


def test_the_papers_loss_is_trained_with_the_settings_that_won():
    assert long_table.trainings("paper", SETTINGS) == []
    paper = {("HDT", 32): PAPER_SETTING}
    ((run,),) = (training.runs for training in long_table.trainings("paper", SETTINGS, paper=paper))
    assert (run.name, run.setting, run.epochs) == ("HDT-paper-32-whole-seed0", PAPER_SETTING, long_table.EPOCHS)


def test_without_pairs_only_proxies_and_their_guide_cost_anything(bench):
    torch.manual_seed(0)
    task = LossTask(16, 10, 1, lambda: torch.randn(10, 40))
    loss = METHODS["HDT"].build(task, {"proxy_weight": 12.0, "guide_bits": 32, "pairs": False})
    logits, labels = torch.randn(20, 48), torch.eye(10).repeat(2, 1)
    parts = [
        12.0 * cosine_cross_entropy(logits[:, rows], labels, of.proxies, scale=of.scale, margin=of.margin)
        for rows, of in ((slice(16), loss.code), (slice(16, None), loss.guide))
    ]
    torch.testing.assert_close(loss(logits, labels).total, parts[0] + 0.5 * parts[1])
    assert "no pairs" in loss.extra_repr()
    _, codes = bench.do(small_run("HDT", {"proxy_weight": 12.0, "guide_bits": 32, "pairs": False}, pull=1.0))
    assert codes.queries.shape == (60, 2)


def test_the_papers_loss_has_as_many_trials_as_every_method_and_then_longer_ones(bench, tmp_path, monkeypatch):
    best = Setting(learning_rate=0.01)
    assert sum(len(stage(best)) for stage in paper_loss.stages()) == sum(
        len(stage(best)) for stage in image_trials.tuning_stages("HDT", 16)
    )
    for setting in (setting for stage in paper_loss.stages() for setting in stage(PAPER_SETTING)):
        assert setting.loss.items() >= {"probability": "angle", "radius": 2, "sharpness": 1.0}.items()
    printed = paper_loss.stages()[0](best)[0]
    assert replace(printed, loss={**printed.loss, "pair_average": "per_kind"}) == printed
    records = [
        {"n_bits": 16, "map": 0.1, "setting": asdict(printed)},
        {"n_bits": 16, "map": 0.3, "setting": asdict(replace(printed, group_size=4))},
        {"n_bits": 16, "map": 0.2, "setting": asdict(replace(printed, group_size=8))},
        {"n_bits": 32, "map": 0.9, "setting": asdict(printed)},
    ]
    assert [setting.group_size for setting in paper_loss.finalists(records, 16)] == [4, 8, 2]
    assert paper_loss.finalists(records, 32) == [printed]
    monkeypatch.setattr(paper_loss, "open_bench", lambda *_, **__: bench)
    monkeypatch.setattr(paper_loss, "TUNING_EPOCHS", 0.3)
    monkeypatch.setattr(paper_loss, "LONG_EPOCHS", 0.6)
    arguments = ["--data", "a", "--weights", "b", "--out", str(tmp_path), "--bits", "16", "--size", "28"]
    monkeypatch.setattr(sys, "argv", ["paper_loss", *arguments])
    paper_loss.main()
    assert len(json.loads((tmp_path / "short.json").read_text())["trials"]) == 14
    longer = json.loads((tmp_path / "long.json").read_text())
    assert {record["epochs"] for record in longer["trials"]} == {0.6}
    assert longer["winners"] == [max(longer["trials"], key=lambda record: record["map"])]


def test_the_curve_has_the_settled_settings_of_one_seed_length_and_size(tmp_path):
    settled = {cell: setting for cell, setting in SETTLED.items() if cell[1] == 32}

    def record(method, pull, epochs, found, rate=0.001, **other):
        setting = replace(SETTLED[method, 32], pull=pull, backbone_rate=rate)
        run = asdict(Run(method, 32, "whole", setting, epochs, 160, 2))
        return {"run": {**run, **other}, "scores": {"database": {"map": found}, "never_trained": {"map": found - 0.1}}}

    records = [
        record("HDT", 0.25, 24.0, 0.7),
        record("HDT", 0.25, 6.0, 0.5),
        record("HDT", 0.0, 24.0, 0.6),
        record("HDT", 0.0, 6.0, 0.4),
        record("HDT", 0.25, 24.0, 0.0, seed=1),
        record("HDT", 0.25, 24.0, 0.0, n_bits=16),
        record("HDT", 0.25, 24.0, 0.0, size=224),
        record("HDT", 0.25, 24.0, 0.0, task="mosaic"),
        record("HDT", 0.5, 24.0, 0.0),
        record("HDT", 0.25, 24.0, 0.0, rate=0.002),
        record("DBR", 0.25, 24.0, 0.0),
        record("CSQ", 0.25, 24.0, 0.0),
        record("CSQ", 0.25, 6.0, 0.0),
    ]
    found = long_table.curve(records, settled)
    assert {way: {epochs: cell["map"] for epochs, cell in cells.items()} for way, cells in found["HDT"].items()} == {
        "pulled": {"24": 0.7, "6": 0.5},
        "unpulled": {"24": 0.6, "6": 0.4},
    }
    # Of DBR there is one point only, and CSQ is not in the curve.
    assert list(found) == ["HDT"]
    assert found["HDT"]["pulled"]["6"]["map_never_trained"] == pytest.approx(0.4)
    assert long_table.curve(records, {}) == {}
    draw_curve(found, tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_look_ups_are_compared_at_one_precision():
    settled = {("HDT", 64): SETTLED["HDT", 64], ("DBR", 64): SETTLED["DBR", 64]}

    def record(method, pull, precision, recall, **other):
        run = asdict(Run(method, 64, "whole", replace(SETTLED[method, 64], pull=pull), 24.0, 160, 2))
        figures = {"map": 0.5, "precision": precision, "recall": recall}
        return {"run": {**run, **other}, "scores": {"database": figures}}

    records = [
        record("HDT", 0.0, 1.0, 0.2),
        record("HDT", 0.25, 0.96, 0.4),
        record("HDT", 0.5, 0.86, 0.6),
        record("HDT", 0.5, 0.1, 0.1, seed=1),
        record("HDT", 0.5, 0.1, 0.1, size=224),
        record("HDT", 0.5, 0.1, 0.1, epochs=60.0),
        record("HDT", 0.5, 0.1, 0.1, setting=asdict(replace(SETTLED["HDT", 64], backbone_rate=0.5))),
        record("DBR", 0.25, 0.8, 0.4),
        record("CSQ", 0.25, 0.9, 0.4),
    ]
    found = long_table.by_pull(records, settled)
    assert found["HDT"]["64"]["0.25"] == {"map": 0.5, "precision": 0.96, "recall": 0.4}
    assert set(found["HDT"]["64"]) == {"0", "0.25", "0.5", "recall_at_precision"}
    assert found["HDT"]["64"]["recall_at_precision"] == pytest.approx(0.4 + 0.2 * 0.6)
    # No weight of the pull is as precise.
    assert set(found["DBR"]["64"]) == {"0.25"}
    assert set(found) == {"HDT", "DBR"}


@pytest.mark.parametrize("n_bits", [8, 32])
def test_independent_bits_are_counted_by_the_correlations_of_all_pairs(n_bits):
    random = np.random.default_rng(0)
    bits = random.integers(0, 2, (50, n_bits))
    bits[:, 1] = 1 - bits[:, 0]
    bits[:, 2] = 1
    total = float(n_bits)
    for one, other in permutations(bits.T, 2):
        if one.std() and other.std():
            total += np.corrcoef(one, other)[0, 1] ** 2
    codes = np.packbits(bits.astype(np.uint8), axis=1, bitorder="little")
    assert independent_bits(codes) == pytest.approx(n_bits**2 / total)


def test_a_settled_setting_is_trained_unless_another_part_has_trained_it():
    added = SETTINGS["DBR", 16]
    settled = {
        ("DBR", 16): added,
        ("DBR", 32): replace(SETTINGS["DBR", 32], pull=0.0),
        ("DBR", 64): replace(SETTINGS["DBR", 64], backbone_rate=0.001, pull=0.25),
    }
    trained = long_table.trainings("settled", SETTINGS, settled=settled)
    runs = [each.runs[0] for each in trained]
    assert [(run.n_bits, run.seed, run.variant) for run in runs] == [
        (n_bits, seed, variant)
        for seed in range(long_table.SEEDS)
        for n_bits, variant in ((16, "added"), (32, "unpulled"), (64, "settled"))
    ]
    assert all(run.setting == settled[run.method, run.n_bits] for run in runs)
    assert long_table.trainings("settled", SETTINGS) == []
    # The last training of its own is encoded with every pull.
    assert [len(each.runs) for each in trained] == [1] * 8 + [len(PULLS)]
    assert {run.setting.pull: run.variant for run in trained[-1].runs} == {
        pull: "settled" if pull == 0.25 else f"settled-pull{pull:g}" for pull in PULLS
    }
    assert all(replace(run.setting, pull=0.25) == settled["DBR", 64] for run in trained[-1].runs)


def test_what_is_trained_once_has_the_settled_settings():
    for part in ("sizes", "curve"):
        first = [training.runs[0] for training in long_table.trainings(part, SETTINGS, settled=SETTLED)]
        assert first
        assert all(run.setting == SETTLED[run.method, 32] and run.seed == long_table.ONE_SEED for run in first)
        assert long_table.trainings(part, SETTINGS) == []
    own = {
        (run.method, run.n_bits): run.setting
        for training in long_table.trainings("own", SETTINGS, settled=SETTLED)
        for run in training.runs
    }
    none = {"guide_bits": 0, "likeness": None}
    for cell, setting in SETTLED.items():
        assert own[cell] == replace(setting, pull=0.0, loss={**setting.loss, **none})
    assert own["DHN", 16] == chosen_setting("DHN", 16)


def test_the_chosen_cells_are_those_of_the_settled_settings():
    def record(variant, seed, found, setting, **other):
        run = asdict(replace(small_run("DBR"), variant=variant, seed=seed, setting=setting, epochs=24.0, size=160))
        figures = {"map": found, "precision": 0.5, "recall": 0.5, "independent_bits": 9.0}
        return {"run": {**run, **other}, "scores": {"database": figures, "never_trained": figures}}

    best, other = Setting(pull=0.25), Setting(pull=0.5)
    records = [
        record("settled", 0, 0.5, best),
        record("added", 1, 0.7, best),
        record("added", 0, 0.9, other),
        record("added-6epochs", 0, 0.9, best, epochs=6.0),
        record("added-224px", 0, 0.9, best, size=224),
    ]
    ((cell,),) = (cells.values() for cells in long_table.chosen(records, {("DBR", 16): best}).values())
    assert (cell["seeds"], cell["pull"]) == (2, 0.25)
    assert cell["map"] == pytest.approx(0.6)
    assert long_table.chosen(records, {("CSQ", 16): best}) == {}


def test_rates_are_halved_as_long_as_that_helps():
    start = Setting(backbone_rate=0.04)

    def tried(figures):
        def attempt(setting):
            return [{"map": figures[setting.backbone_rate] - 0.1}, {"map": figures[setting.backbone_rate]}]

        return len(long_settings.settle(start, attempt)) // 2

    assert tried({0.04: 0.5, 0.02: 0.4}) == 2
    assert tried({0.04: 0.5, 0.02: 0.6, 0.01: 0.7}) == 3
    assert tried({0.04: 0.5, 0.02: 0.6, 0.01: 0.5}) == 3


def test_long_trials_are_not_done_twice(bench, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(long_settings, "open_bench", lambda *_, **__: bench)
    monkeypatch.setattr(long_settings, "EPOCHS", 0.3)
    added = {"winners": [{"method": "DBR", "n_bits": bits, "setting": asdict(Setting())} for bits in (16, 32)]}
    (tmp_path / "added.json").write_text(json.dumps(added))
    out = tmp_path / "settled.json"
    files = ["--settings", str(tmp_path / "added.json"), "--out", str(out)]
    monkeypatch.setattr(
        sys, "argv", ["x", "--data", "a", "--weights", "b", *files, "--methods", "DBR", "--bits", "16", "32"]
    )
    long_settings.main()
    first = json.loads(out.read_text())
    assert {(trial["method"], trial["n_bits"]) for trial in first["trials"]} == {("DBR", 16), ("DBR", 32)}
    assert len(first["trials"]) % len(PULLS) == 0
    assert first["winners"] == image_additions.winners(first["trials"])
    # Nor if two files hold a training.
    (tmp_path / "known.json").write_text(out.read_text())
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--known", str(tmp_path / "known.json")])
    monkeypatch.setattr(long_settings, "try_setting", None)
    long_settings.main()
    assert json.loads(out.read_text())["trials"] == first["trials"]
    # What is known of other settings, lengths or trainings does not count.
    run = Run("DBR", 16, "held_out", Setting(), 0.3, 160)
    assert long_settings.known_records(first["trials"], run) == first["trials"][: len(PULLS)]
    for other in (replace(run, n_bits=64), replace(run, epochs=1.0), replace(run, setting=Setting(batch_size=8))):
        assert long_settings.known_records(first["trials"], other) == []
    assert "all trials are done" in capsys.readouterr().out


def test_additions_are_tried_alike_for_every_method(bench):
    counts = {
        (method, n_bits): len(image_additions.candidates(method, n_bits))
        for method in image_additions.METHODS
        for n_bits in LENGTHS
    }
    assert set(counts.values()) == {4}
    tried = image_additions.try_setting(bench, small_run("OrthoHash", {"likeness": 1.0}))
    assert [record["setting"]["pull"] for record in tried] == list(PULLS)
    best = max(tried, key=lambda record: record["map"])
    assert image_additions.winners([*tried, {**best, "method": "CSQ", "map": 0.0}]) == [
        best,
        {**best, "method": "CSQ", "map": 0.0},
    ]
