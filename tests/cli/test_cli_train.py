"""`hamtarget train`, `encode`, `evaluate` and `plan`."""

import json
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.cli.main import app
from hamtarget.encoders import open_encoder
from hamtarget.encoders.onnx_encoder import OnnxEncoder
from hamtarget.errors import CrowdedCodesWarning, InputError, MissingExtraError, TrainingError
from hamtarget.evaluation.report import Evaluation, NearestRows, draw_evaluation, expected_recall
from hamtarget.learn import ClassCodes, HashEncoder, NetworkOptions, TrainingOptions
from hamtarget.search import planning
from hamtarget.search.tables import choose_substrings

FAST = ["--steps", "5", "--batch-size", "16", "--width", "4", "--device", "cpu"]
SMALL = ["--backbone", "none", *FAST]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def last_line(result):
    return result.stderr.splitlines()[-1]


@pytest.fixture
def vectors(tmp_path):
    rows = np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32)
    rows[:, 0] += 6 * (np.arange(90) % 3)
    np.save(tmp_path / "rows.npy", rows)
    np.savez(tmp_path / "rows.npz", vectors=rows, labels=np.arange(90) % 3)
    return tmp_path


def test_images(trained):
    assert "Learned from 36 images of 3 classes in 60 steps; loss " in trained.output
    assert "(16 bits, radius 2, with ONNX)" in trained.output
    assert sorted(path.name for path in trained.model.iterdir()) == ["config.json", "model.onnx", "model.safetensors"]
    encoder = open_encoder(trained.model)
    assert isinstance(encoder, OnnxEncoder)
    assert encoder.input_shape == (16, 16)


def test_vectors_without_labels_are_for_probing(vectors):
    result = run("train", vectors / "rows.npy", "--model", vectors / "model", *FAST, "--json", "--no-onnx")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["n_bits"], told["radius"], told["input_shape"], told["rows"]) == (64, None, [6], 90)
    assert not told["onnx"]
    encoder = open_encoder(vectors / "model")
    assert isinstance(encoder, HashEncoder)
    # The neighbours are those that `fit` would find by itself.
    rows = np.load(vectors / "rows.npy")
    training = TrainingOptions(steps=5, batch_size=16)
    alone = HashEncoder(network=NetworkOptions(width=4), training=training, device="cpu").fit(rows)
    np.testing.assert_array_equal(encoder.logits(rows), alone.logits(rows))


def test_vectors_with_labels(vectors):
    result = run("train", vectors / "rows.npz", "--model", vectors / "model", *FAST)
    assert result.exit_code == 0, result.output
    assert "32 bits, radius 2" in result.stdout
    encoder = HashEncoder.load(vectors / "model")
    assert (encoder.n_bits, encoder.radius, encoder.training.group_size) == (32, 2, 4)
    # The command has no defaults of its own.
    with np.load(vectors / "rows.npz") as file, warnings.catch_warnings():
        warnings.simplefilter("ignore", CrowdedCodesWarning)
        training = TrainingOptions(steps=5, batch_size=16)
        alone = HashEncoder(network=NetworkOptions(width=4), training=training, device="cpu")
        alone.fit(file["vectors"], file["labels"])
        np.testing.assert_array_equal(encoder.logits(file["vectors"]), alone.logits(file["vectors"]))


def test_steps_and_batches_are_those_of_the_library(vectors):
    result = run("train", vectors / "rows.npz", "--model", vectors / "model", "--width", "2", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert "in 300 steps" in result.stdout
    assert HashEncoder.load(vectors / "model").training.batch_size == 256


def test_codes_of_classes(vectors):
    rows = vectors / "rows.npz"
    result = run("train", rows, "--model", vectors / "model", "--classes", *FAST)
    assert result.exit_code == 0
    encoder = HashEncoder.load(vectors / "model")
    assert (encoder.loss, encoder.radius) == (ClassCodes(32, 2, 30.0), 2)
    result = run("train", vectors / "rows.npy", "--model", vectors / "other", "--classes", *FAST)
    assert result.exit_code == 2
    assert "has no labels; expected one label for each input" in " ".join(result.stderr.split())
    assert not (vectors / "other").exists()


def test_a_sample_of_many_vectors(vectors):
    result = run("train", vectors / "rows.npy", "--model", vectors / "model", "--sample", "40", *FAST)
    assert "Learned from 40 of 90 vectors" in result.stdout


def test_several_labels_an_image(photos):
    lines = [
        f"photos/{kind}/{k:02}.png,{kind};{'even' if k % 2 else 'odd'}" for kind in ("bars", "disc") for k in range(12)
    ]
    table = photos.parent / "several.csv"
    table.write_text("\n".join(lines))
    result = run("train", table, "--model", photos.parent / "several", "--size", "16", *SMALL)
    assert result.exit_code == 0, result.output
    assert "24 images of 4 classes" in result.stdout
    assert open_encoder(photos.parent / "several").input_shape == (3, 16, 16)


def test_a_list_of_images_may_leave_labels_empty(photos):
    names = [(kind, f"photos/{kind}/{k:02}.png") for kind in ("bars", "disc") for k in range(12)]
    table = photos.parent / "some.csv"
    table.write_text("\n".join(f"{name},{kind if k % 3 else ''}" for k, (kind, name) in enumerate(names)))
    result = run("train", table, "--model", photos.parent / "some", "--size", "16", *SMALL)
    assert result.exit_code == 0, result.output
    assert "24 images of 2 classes, 8 without a label" in result.stdout
    assert open_encoder(photos.parent / "some").radius == (1, 3, 6, 9)


def test_epochs_are_steps_of_another_kind(vectors):
    arguments = ["--model", vectors / "model", "--batch-size", "20", "--width", "4", "--epochs", "2", "--json"]
    assert json.loads(run("train", vectors / "rows.npz", *arguments).stdout)["steps"] == 9


def test_a_rare_class_is_no_obstacle(vectors):
    labels = np.arange(90) % 3
    labels[0] = 99
    np.savez(vectors / "rare.npz", vectors=np.load(vectors / "rows.npy"), labels=labels)
    assert run("train", vectors / "rare.npz", "--model", vectors / "model", *FAST).exit_code == 0


def test_what_cannot_be_learned_from(vectors, tmp_path):
    rows = np.load(vectors / "rows.npy")
    np.savez(tmp_path / "few.npz", vectors=rows, labels=np.arange(80))
    np.savez(tmp_path / "none.npz", vectors=rows, labels=np.arange(90))
    for arguments, text in (
        (["few.npz"], "80 labels for 90 vectors"),
        (["none.npz"], "no two inputs have the same label"),
        (["absent.npy"], "absent.npy does not exist"),
        (["rows.npy", "--steps", "5", "--epochs", "1"], "--steps and --epochs are given"),
        (["rows.npy", "--epochs", "0"], "--epochs is 0"),
        (["rows.npy", "--bits", "12", *FAST], "n_bits is 12"),
    ):
        result = run("train", tmp_path / arguments[0], "--model", tmp_path / "model", *arguments[1:])
        assert result.exit_code == 2
        assert last_line(result).startswith("hamtarget: ")
        assert text in last_line(result)
        assert not (tmp_path / "model" / "model.safetensors").exists()


def test_a_broken_image_is_left_out(photos, tmp_path):
    import shutil

    shutil.copytree(photos, tmp_path / "photos")
    (tmp_path / "photos" / "disc" / "00.png").write_bytes(b"not a picture")
    result = run("train", tmp_path / "photos", "--model", tmp_path / "model", "--size", "16", *SMALL)
    assert result.exit_code == 0
    assert "left out image 12" in result.stderr
    assert "35 images" in result.stdout


def test_interrupted_training_goes_on(vectors, monkeypatch):
    """The second run begins where the first was stopped, and ends with what one run alone gives."""
    rows, settings = vectors / "rows.npz", ["--steps", "60", "--batch-size", "16", "--width", "4", "--device", "cpu"]
    assert run("train", rows, "--model", vectors / "whole", *settings).exit_code == 0
    from hamtarget.learn.training.training_log import TrainingLog

    real, steps = TrainingLog.training, []

    def interrupted(self, progress, rate, terms):
        steps.append(progress.step)
        if progress.step == 40 and len(steps) == 2:
            raise KeyboardInterrupt
        real(self, progress, rate, terms)

    monkeypatch.setattr(TrainingLog, "training", interrupted)
    result = run("train", rows, "--model", vectors / "halves", *settings)
    assert result.exit_code == 130
    assert last_line(result) == (
        f"hamtarget: interrupted; the same command goes on from {vectors / 'halves' / 'checkpoint.safetensors'}"
    )
    assert [path.name for path in (vectors / "halves").iterdir()] == ["checkpoint.safetensors"]
    result = run("train", rows, "--model", vectors / "halves", "--seed", "1", *settings)
    assert (result.exit_code, "is of a run with seed=0" in last_line(result)) == (2, True)
    result = run("train", rows, "--model", vectors / "halves", *settings)
    assert result.exit_code == 0, result.output
    assert steps == [20, 40, 40, 60]
    some = np.load(vectors / "rows.npy")
    for open_one in (open_encoder, HashEncoder.load):
        whole, halves = open_one(vectors / "whole"), open_one(vectors / "halves")
        np.testing.assert_array_equal(whole.logits(some), halves.logits(some))
    assert not (vectors / "halves" / "checkpoint.safetensors").exists()


def test_codes_that_find_everything_are_told_of(tmp_path, photos):
    rows = np.random.default_rng(0).normal(size=(90, 6)).astype(np.float32)
    # Classes that cannot be told apart, and hardly any cost of taking one for another.
    np.savez(tmp_path / "rows.npz", vectors=np.tile(rows[:1], (90, 1)) + rows * 1e-4, labels=np.arange(90) % 3)
    arguments = ["--dissimilar-weight", "0.001", "--bits", "8", "--radius", "6", *FAST]
    result = run("train", tmp_path / "rows.npz", "--model", tmp_path / "model", *arguments)
    assert result.exit_code == 0
    assert "of the dissimilar pairs lie within the radius" in last_line(result)
    table = tmp_path / "several.csv"
    table.write_text("\n".join(f"{photos}/disc/{k:02}.png,{k // 6}{k % 6 // 3};a{k // 6}" for k in range(12)))
    result = run("train", table, "--model", tmp_path / "model", "--size", "16", *arguments, "--backbone", "none")
    assert "of the dissimilar pairs lie within the radius" in last_line(result)


def test_a_collapse_leaves_no_checkpoint_behind(vectors, monkeypatch):
    from hamtarget.learn.training.collapse import CollapseWatch

    def collapsed(self, step, terms):
        if step == 40:
            raise TrainingError("the codes have collapsed")

    monkeypatch.setattr(CollapseWatch, "look", collapsed)
    settings = ["--steps", "60", "--batch-size", "16", "--width", "4", "--device", "cpu"]
    result = run("train", vectors / "rows.npz", "--model", vectors / "model", *settings)
    assert result.exit_code == 2
    assert last_line(result).startswith("hamtarget: the codes have collapsed (options: --dissimilar-weight")
    assert list((vectors / "model").iterdir()) == []


def test_balanced_bits_and_augmented_images(photos, tmp_path):
    arguments = ["--size", "16", "--center", "median", "--augment", *SMALL]
    assert run("train", photos, "--model", tmp_path / "model", *arguments).exit_code == 0
    assert HashEncoder.load(tmp_path / "model").network.center == "median"
    assert run("train", photos, "--model", tmp_path / "model", "--center", "middle").exit_code == 2


def test_training_without_onnx(vectors, monkeypatch):
    def missing(self, path):
        raise MissingExtraError("onnx is not installed")

    monkeypatch.setattr(HashEncoder, "export_onnx", missing)
    result = run("train", vectors / "rows.npy", "--model", vectors / "model", *FAST)
    assert result.exit_code == 0
    assert "not exported: onnx is not installed" in result.stderr
    assert "with ONNX" not in result.stdout


def test_encode_text_json_and_file(trained, photos, tmp_path):
    lines = run("encode", trained.model, photos).stdout.splitlines()
    assert len(lines) == 36
    records = [
        json.loads(line) for line in run("encode", trained.model, photos, "--json", "--batch", "5").stdout.splitlines()
    ]
    assert [record["code"] for record in records] == lines
    assert records[0]["id"] == "bars/00.png"
    result = run("encode", trained.model, photos, "--out", tmp_path / "codes.npy")
    assert result.stdout == f"36 codes of 16 bits: {tmp_path / 'codes.npy'}\n"
    assert [code.tobytes().hex() for code in np.load(tmp_path / "codes.npy")] == lines


def test_encode_refuses_a_broken_image(trained, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no")
    result = run("encode", trained.model, tmp_path / "broken.png")
    assert (result.exit_code, "broken.png" in last_line(result), result.stdout) == (2, True, "")


def test_evaluate_images(trained, photos, tmp_path):
    result = run("evaluate", trained.model, photos, "--n-queries", "12", "--plot", tmp_path / "curves.png")
    assert result.exit_code == 0, result.output
    assert "12 queries in 24 rows, 16-bit codes" in result.stdout
    assert "MAP@1,000: " in result.stdout
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(run("evaluate", trained.model, photos, "--queries", photos, "--json").stdout)
    assert (told["n_queries"], told["n_rows"], told["radius"], len(told["precision"])) == (36, 36, 2, 17)
    # Three classes, learned: far above what chance gives.
    assert told["mean_average_precision"] > 0.6
    assert told["recall_at_k"] == pytest.approx(1.0)


def test_evaluate_vectors(vectors):
    run("train", vectors / "rows.npy", "--model", vectors / "model", *FAST)
    told = json.loads(run("evaluate", vectors / "model", vectors / "rows.npy", "--json", "--k", "20").stdout)
    assert (told["n_queries"], told["n_rows"]) == (45, 45)
    # Better than chance, which finds 20 of 45.
    assert told["recall_at_k"] > 20 / 45
    result = run("evaluate", vectors / "model", vectors / "rows.npy", "--queries", vectors / "rows.npz")
    assert "only one of database and queries has labels" in last_line(result)
    np.save(vectors / "narrow.npy", np.zeros((9, 5)))
    result = run("evaluate", vectors / "model", vectors / "narrow.npy")
    assert (result.exit_code, "this model takes (6,)" in last_line(result)) == (2, True)


def test_expected_recall_is_the_mean_over_orders_of_ties():
    rng = np.random.default_rng(0)
    queries, database = rng.integers(0, 256, (6, 1), dtype=np.uint8), rng.integers(0, 256, (9, 1), dtype=np.uint8)
    relevant = NearestRows(np.array([rng.permutation(9)[:3] for _ in queries]), 9)
    wanted = []
    for _ in range(4000):
        order = rng.permutation(9)
        for query in range(6):
            far = np.bitwise_count(queries[query] ^ database[order])[:, 0]
            first = order[np.argsort(far, kind="stable")][:4]
            wanted.append(len(set(first) & set(relevant.nearest[query])) / 3)
    assert expected_recall(queries, database, relevant, n_bits=8, k=4) == pytest.approx(np.mean(wanted), abs=0.01)
    assert expected_recall(queries, database, relevant, n_bits=8, k=9) == pytest.approx(1.0)


def test_nearest_rows_are_relevant():
    relevant = NearestRows(np.array([[2, 0], [1, 3]]), 4)
    assert relevant.shape == (2, 4)
    assert relevant.rows(0, 2).tolist() == [[True, False, True, False], [False, True, False, True]]
    assert relevant.rows(1, 2).tolist() == [[False, True, False, True]]


def test_a_plot_needs_a_known_format(tmp_path):
    curve = np.linspace(0, 1, 9)
    found = Evaluation(1, 1, 8, 2, 10, 0.5, 0.5, curve, curve, curve, 1.0)
    draw_evaluation(tmp_path / "curves.svg", found)
    assert b"<svg" in (tmp_path / "curves.svg").read_bytes()
    with pytest.raises(InputError, match="expected .png, .svg, .pdf"):
        draw_evaluation(tmp_path / "curves.txt", found)


def test_plan():
    told = json.loads(run("plan", "1000000", "--bits", "64", "--radius", "2", "--json").stdout)
    wanted = planning.plan(1_000_000, 64, 2)
    assert told[0]["expected_candidates"] == wanted.expected_candidates
    result = run("plan", "1000000", "--bits", "64")
    assert "47.1 MB" in result.stdout
    chosen = choose_substrings(1_000_000, 64, 2)
    assert chosen.reason in result.stdout
    assert (told[0]["index"]["buckets"], told[0]["index"]["memory"]) == (chosen.buckets, chosen.memory)
    assert len(run("plan", "5000").stdout.splitlines()) == 2 + 2 + 6
    assert run("plan", "0").exit_code == 2
    assert "n_bits is 63" in last_line(run("plan", "10", "--bits", "63"))
