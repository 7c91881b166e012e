"""Classes without labels: pictures become features, and every method is measured on them."""

import json
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

from hamtarget.learn.training.options import TrainingOptions
from research import figures
from research.benchmarks import unseen_classes
from research.benchmarks.unseen_classes import Setting, Task, figures_of, ranked_map, read, trial_task
from research.datasets import pictures


def write_picture(path, seed, *, kind="PNG"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (12, 10), dtype=np.uint8)
    Image.fromarray(pixels).save(path, kind)


@pytest.fixture
def omniglot(tmp_path):
    """Return two archives laid out like Omniglot's: an alphabet of each is its own, and one is in both."""
    archives = []
    for part, alphabets in (("small1", ("Greek", "Korean")), ("small2", ("Greek", "Tagalog"))):
        archive = tmp_path / f"{part}.zip"
        with zipfile.ZipFile(archive, "w") as file:
            for alphabet in alphabets:
                for letter in range(2):
                    for person in range(5):
                        picture = tmp_path / alphabet / f"character0{letter}" / f"{person}.png"
                        write_picture(picture, [len(alphabet), letter, person])
                        file.write(picture, f"{part}/{alphabet}/character0{letter}/{picture.name}")
                file.writestr(f"{part}/{alphabet}/strokes.txt", "no picture")
        archives.append(archive)
    return archives


def test_letters_of_archives_are_classes_and_count_once(omniglot):
    images = pictures.read_pictures(omniglot, fewest=3)
    letters = [f"{alphabet}/character0{letter}" for alphabet in ("Greek", "Korean", "Tagalog") for letter in (0, 1)]
    assert images.class_names == tuple(letters)
    assert np.bincount(images.labels).tolist() == [5] * 6


def test_a_folder_has_parts_and_classes(tmp_path, capsys):
    for part, count in (("train", 4), ("test", 2)):
        for number in range(count):
            write_picture(tmp_path / part / "Apple leaf" / f"{number}.jpg", [count, number], kind="JPEG")
            write_picture(tmp_path / part / "Corn rust leaf" / f"{number}.jpg", [9, number], kind="JPEG")
    write_picture(tmp_path / "cover.png", 0)
    write_picture(tmp_path / "train" / "Mites" / "0.jpg", 0, kind="JPEG")
    images = pictures.read_pictures([tmp_path], fewest=3)
    assert images.class_names == ("Apple leaf", "Corn rust leaf")
    # The pictures of corn in `test` are among those in `train`.
    assert np.bincount(images.labels).tolist() == [6, 4]
    assert "left out 1 classes of fewer than 3 pictures: Mites" in capsys.readouterr().err
    with pytest.raises(SystemExit, match=r"no class has 9 pictures; expected PART/CLASS/PICTURE"):
        pictures.read_pictures([tmp_path], fewest=9)


def test_the_command_writes_what_the_benchmark_reads(omniglot, tmp_path, monkeypatch, capsys):
    out = tmp_path / "letters.npz"
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "cache"))
    arguments = [*map(str, omniglot), "--photos", "3", "--queries", "1", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["pictures", *arguments])
    pictures.main()
    task = read(out, 0)
    assert task.rows.shape == (6 * 3, 1024)
    assert np.bincount(task.labels).tolist() == [3] * 6
    assert np.bincount(task.query_labels).tolist() == [1] * 6
    assert len(set(task.labels[task.labelled])) == 4


def test_trials_never_look_at_classes_without_labels():
    random = np.random.default_rng(0)
    labels = random.integers(0, 12, 400)
    rows = random.normal(size=(400, 3)).astype(np.float32)
    task = Task(rows, labels, labels < 8, rows[:40], labels[:40], labels[:40] < 8)
    trial = trial_task(task, 0)
    assert set(trial.labels) == set(trial.query_labels) == set(range(8))
    hidden = set(trial.labels[~trial.labelled])
    assert len(hidden) == 2
    assert set(trial.query_labels[~trial.query_labelled]) == hidden
    assert not hidden & set(trial.labels[trial.labelled])
    both = np.concatenate([trial.rows, trial.queries])
    np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(rows[labels < 8], axis=0))
    asked, kept = np.bincount(trial.query_labels), np.bincount(trial.labels)
    np.testing.assert_array_equal(asked, -(-(asked + kept) // 5))


def test_ranked_map_is_the_mean_of_precisions_among_the_first_hundred():
    random = np.random.default_rng(1)
    labels, asked = random.integers(0, 3, 330), random.integers(0, 3, 7)
    known = np.arange(7) < 4
    scores = random.random((7, 330), dtype=np.float32)
    task = Task(np.zeros((330, 1), np.float32), labels, labels < 2, np.zeros((7, 1), np.float32), asked, known)
    averages = []
    for row, label in zip(scores, asked, strict=True):
        good = [labels[place] == label for place in sorted(range(330), key=lambda place: -row[place])[:100]]
        precisions = [sum(good[: rank + 1]) / (rank + 1) for rank in range(100) if good[rank]]
        averages.append(sum(precisions) / min(100, (labels == label).sum()))
    assert ranked_map(scores, task) == pytest.approx((np.mean(averages[:4]), np.mean(averages[4:])))


@pytest.fixture
def tiny(tmp_path):
    """Return a file of twelve classes of vectors that lie around their centres."""
    random = np.random.default_rng(2)
    labels = np.arange(480) % 12
    vectors = (2 * random.normal(size=(12, 16))[labels] + random.normal(size=(480, 16))).astype(np.float32)
    np.savez(
        tmp_path / "tiny.npz", vectors=vectors, labels=labels, split=np.where(np.arange(480) < 360, "train", "test")
    )
    return tmp_path / "tiny.npz"


@pytest.mark.parametrize(
    "method", [name for name in unseen_classes.METHODS if name not in ("float cosine", "no labels")]
)
def test_every_method_learns_something_of_labelled_classes(method, tiny):
    setting = Setting(16, 0, pictures=method != "CSQ", training=TrainingOptions(steps=12, learning_rate=4e-3))
    # Chance is a twelfth.
    assert figures_of(method, read(tiny, 0), setting)["seen by codes"] > 0.25


def test_the_benchmark_reports_means_and_deviations_over_seeds(tiny, tmp_path, monkeypatch, capsys):
    out = tmp_path / "tiny.json"
    methods = ["float cosine", "several radii", "OrthoHash"]
    options = ["--bits", "16", "--seeds", "2", "--steps", "6", "--rates", "1e-4", "4e-3", "--methods", *methods]
    monkeypatch.setattr(sys, "argv", ["unseen_classes", str(tiny), "--pictures", *options, "--out", str(out)])
    unseen_classes.main()
    found = json.loads(out.read_text())
    assert set(found["means"]) == set(found["deviations"]) == set(methods)
    assert (found["rows"], found["queries"], found["classes"], found["labelled classes"]) == (360, 120, 12, 8)
    for method, runs in found["by_seed"].items():
        assert len(runs) == 2
        for name in runs[0]:
            values = [run[name] for run in runs]
            assert found["means"][method][name] == pytest.approx(np.mean(values))
            assert found["deviations"][method][name] == pytest.approx(np.std(values, ddof=1))
        if method != "float cosine":
            assert {run["learning rate"] for run in runs} <= {1e-4, 4e-3}


@pytest.mark.parametrize("name", ["omniglot", "plantdoc"])
def test_published_figures_are_those_of_their_runs(name):
    published = json.loads((figures.RESULTS / "unseen_classes" / f"{name}.json").read_text())
    assert {len(runs) for runs in published["by_seed"].values()} == {5}
    for summary, function in (("means", np.mean), ("deviations", lambda values: np.std(values, ddof=1))):
        for method, runs in published["by_seed"].items():
            expected = {figure: function([run[figure] for run in runs]) for figure in runs[0]}
            assert published[summary][method] == pytest.approx(expected)
