"""`hamtarget train` and `evaluate` with pictures, on a pretrained network."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

from hamtarget.cli.main import app
from hamtarget.encoders.onnx_encoder import OnnxEncoder
from hamtarget.encoders.opening import open_encoder
from hamtarget.learn import ClassCodes, HashEncoder
from hamtarget.learn.fitting import features as features_module
from hamtarget.learn.networks import backbones
from hamtarget.learn.networks.backbones import backbone
from hamtarget.learn.networks.resnet50 import ResNet50

FAST = ["--steps", "10", "--batch-size", "16", "--device", "cpu", "--bits", "16"]

pytestmark = pytest.mark.filterwarnings("ignore::hamtarget.errors.CrowdedCodesWarning")


class TinyNetwork(nn.Module):
    """A small network of pictures, with random weights."""

    input_shape = (3, 16, 16)
    out_features = 24

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(3, 24, 4, stride=4)

    def forward(self, images):
        return torch.relu(self.conv(images.float() / 255))


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(result):
    return " ".join(result.stderr.split())


@pytest.fixture(autouse=True)
def tiny_network(tmp_path, monkeypatch):
    """Put a small network in the place of the shipped one, and give every test a cache of its own."""
    monkeypatch.setenv("HAMTARGET_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(backbones, "backbone", lambda *_, **__: TinyNetwork())


@pytest.fixture
def seen(monkeypatch):
    """Return a list that gets the number of pictures of each block that a network sees."""
    counts = []
    compute = features_module._computed

    def counting(network, pictures, device):
        counts.append(len(pictures))
        return compute(network, pictures, device)

    monkeypatch.setattr(features_module, "_computed", counting)
    return counts


def test_class_folders(photos, tmp_path, seen):
    model = tmp_path / "model"
    result = run("train", photos, "--model", model, *FAST)
    assert result.exit_code == 0, result.output
    assert "Learned from 36 images of 3 classes in 10 steps; loss " in result.stdout
    assert f"Model: {model} (16 bits, radius 2, with ONNX)" in result.stdout
    encoder = open_encoder(model)
    assert isinstance(encoder, OnnxEncoder)
    assert encoder.input_shape == (3, 16, 16)
    assert sum(seen) == 36
    # Another run sees nothing, and replaces the model.
    result = run("train", photos, "--model", model, *FAST, "--json")
    told = json.loads(result.stdout)
    assert (told["rows"], told["steps"], told["input_shape"], told["onnx"]) == (36, 10, [3, 16, 16], True)
    assert sum(seen) == 36
    # Codes of classes are the default, and the command has no others of its own.
    loaded = HashEncoder.load(model, network=TinyNetwork())
    assert isinstance(loaded.loss, ClassCodes)
    run("train", photos, "--model", tmp_path / "other", *FAST, "--no-classes")
    assert not isinstance(HashEncoder.load(tmp_path / "other", network=TinyNetwork()).loss, ClassCodes)


def test_stores_take_such_a_model(photos, tmp_path):
    run("train", photos, "--model", tmp_path / "model", *FAST)
    result = run("add", tmp_path / "store", photos, "--model", tmp_path / "model")
    assert result.exit_code == 0, result.output
    picture = photos / "disc" / "03.png"
    result = run("search", tmp_path / "store", picture, "--radius", "0")
    assert result.exit_code == 0, result.output
    assert "disc/03.png" in result.stdout
    result = run("evaluate", tmp_path / "model", photos, "--n-queries", "10")
    assert result.exit_code == 0, result.output
    assert "10 queries in 26 rows, 16-bit codes" in result.stdout
    assert "hamtarget: 10 of these rows are the queries" in said(result)


def test_classes_of_queries_are_those_of_the_same_name(photos, tmp_path):
    run("train", photos, "--model", tmp_path / "model", *FAST)
    for folder, kinds in (("one", ["noise"]), ("two", ["disc", "noise"])):
        for kind in kinds:
            shutil.copytree(photos / kind, tmp_path / folder / kind)
    # A query's first hit is itself, so that what is within radius 0 is relevant: unless it is taken for another class.
    arguments = ["--queries", tmp_path / "one", "--radius", "0", "--json"]
    whole = json.loads(run("evaluate", tmp_path / "model", tmp_path / "two", *arguments).stdout)
    alone = json.loads(run("evaluate", tmp_path / "model", tmp_path / "one", *arguments).stdout)
    assert whole["recall"][16] == alone["recall"][16] == 1
    assert whole["recall"][0] == alone["recall"][0] > 0


def test_a_flat_folder(photos, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    for kind in ("bars", "disc"):
        for path in (photos / kind).iterdir():
            shutil.copy(path, flat / f"{kind}-{path.name}")
    result = run("train", flat, "--model", tmp_path / "model", *FAST)
    assert result.exit_code == 0, result.output
    assert "Learned from 24 images in 10 steps" in result.stdout
    assert "for probing" in result.stdout
    result = run("train", flat, "--model", tmp_path / "model", "--classes")
    assert "has no labels; expected one label for each input" in said(result)
    # Without features there is nothing by which unlabelled pictures are neighbours.
    result = run("evaluate", tmp_path / "model", flat)
    assert result.exit_code == 2
    assert "the images have no labels" in said(result)


def test_unlabelled_pictures_are_judged_by_what_the_network_sees(photos, tmp_path, monkeypatch):
    from hamtarget.learn.files import saving

    monkeypatch.setattr(saving, "backbone", lambda: TinyNetwork())
    assert run("train", photos / "bars", "--model", tmp_path / "model", *FAST).exit_code == 0
    result = run("evaluate", tmp_path / "model", photos / "bars", "--n-queries", "4", "--neighbors", "2", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["n_queries"] == 4


def test_a_csv_of_labels(photos, tmp_path):
    table = tmp_path / "some.csv"
    table.write_text("\n".join(f"{photos}/{kind}/{k:02}.png,{kind}" for kind in ("bars", "disc") for k in range(8)))
    result = run("train", table, "--model", tmp_path / "model", *FAST)
    assert "Learned from 16 images of 2 classes" in result.stdout
    table.write_text("\n".join(f"{photos}/bars/{k:02}.png,bars;{'odd' if k % 2 else 'even'}" for k in range(12)))
    result = run("train", table, "--model", tmp_path / "model", *FAST)
    assert "Learned from 12 images of 3 classes" in result.stdout


def test_classes_that_bring_nothing_are_named(photos, tmp_path):
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    (folder / "empty").mkdir()
    (folder / "single").mkdir()
    shutil.copy(photos / "noise" / "00.png", folder / "single")
    (folder / "disc" / "05.png").write_bytes(b"no picture")
    shutil.copy(photos / "noise" / "00.png", folder / "beside.png")
    (folder / "notes.txt").write_text("no image")
    result = run("train", folder, "--model", tmp_path / "model", *FAST)
    assert result.exit_code == 0, result.output
    assert "hamtarget: left out as classes, because they hold no image: empty" in said(result)
    assert "hamtarget: one image only, which has no similar one, in single" in said(result)
    assert "hamtarget: left out, since images beside the folders are of no class: beside.png\n" in result.stderr
    assert "hamtarget: left out image 17: " in said(result)
    assert "Learned from 36 images of 4 classes" in result.stdout


def test_options_that_would_do_nothing_are_refused(photos, tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((9, 4), dtype=np.float32))
    for source, arguments, text in (
        (photos, ["--grey"], "--grey is an option of the small network: pass --backbone none"),
        (photos, ["--augment"], "--augment needs a network that sees each image many times"),
        (photos, ["--backbone", "none", "--fine-tune"], "--backbone none has no pretrained network"),
        (tmp_path / "rows.npy", ["--backbone", "x"], "holds vectors"),
        (tmp_path / "rows.npy", ["--fine-tune"], "holds vectors"),
        (photos, ["--copies"], "found without training, by `hamtarget dups FOLDER`"),
    ):
        result = run("train", source, "--model", tmp_path / "model", *arguments)
        assert result.exit_code == 2
        assert text in said(result)
        assert not (tmp_path / "model").exists()


def test_fine_tuning_changes_the_network(photos, tmp_path):
    result = run("train", photos, "--model", tmp_path / "model", "--fine-tune", "--augment", *FAST)
    assert result.exit_code == 0, result.output
    loaded = HashEncoder.load(tmp_path / "model", network=TinyNetwork())
    assert not torch.equal(loaded.model.model.backbone.conv.weight, TinyNetwork().conv.weight)


def test_an_interrupt_says_that_the_command_goes_on(photos, tmp_path, monkeypatch, seen):
    from hamtarget.cli.terminal import bars

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(bars._Lines, "__call__", interrupt)
        result = run("train", photos, "--model", tmp_path / "model", *FAST)
    assert result.exit_code == 130
    assert "the same command goes on" in said(result)
    assert sum(seen) == 36
    assert run("train", photos, "--model", tmp_path / "model", *FAST).exit_code == 0
    assert sum(seen) == 36


def test_networks_by_name_and_file(monkeypatch, tmp_path):
    monkeypatch.setattr(backbones, "backbone", backbone)
    network = backbones.chosen_backbone(None)
    assert isinstance(network, ResNet50)
    assert not any(parameter.requires_grad for parameter in network.parameters())
    network = backbones.chosen_backbone("resnet50_conv4", size=96, trained=True)
    assert network.input_shape == (3, 96, 96)
    assert all(parameter.requires_grad for parameter in network.parameters())
    (tmp_path / "weights.safetensors").write_bytes(b"no weights")
    Image.new("RGB", (8, 8)).save(tmp_path / "picture.png")
    for choice, text in (
        (tmp_path / "weights.safetensors", "not a whole safetensors file"),
        (tmp_path / "absent.npz", "no such file"),
        (tmp_path / "picture.png", "not a whole npz file"),
        ("no_such_network", "not installed: pip install"),
        ("keras:tiny", "expected timm:NAME"),
    ):
        result = run("train", tmp_path, "--model", tmp_path / "model", "--backbone", choice)
        assert result.exit_code == 2, result.output
        assert text in said(result)
