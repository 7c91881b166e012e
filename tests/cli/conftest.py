"""A few pictures and a model of them, for the tests of the command."""

from types import SimpleNamespace

import numpy as np
import pytest

CLASSES = ("bars", "disc", "noise")
PER_CLASS = 12


def picture(name, rng):
    """A grey picture, (20, 20) uint8, of one of the classes."""
    light = rng.integers(120, 256)
    if name == "bars":
        return np.tile((np.arange(20) // 3 % 2 * light).astype(np.uint8), (20, 1))
    if name == "disc":
        y, x = np.mgrid[:20, :20] - 9.5
        return ((x * x + y * y < rng.integers(20, 60)) * light).astype(np.uint8)
    return rng.integers(0, light, (20, 20), dtype=np.uint8)


def run_command(*arguments):
    """What the command says; it must succeed."""
    from typer.testing import CliRunner

    from hamtarget.cli.main import app

    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """A folder with a folder of pictures for each class."""
    from PIL import Image

    folder = tmp_path_factory.mktemp("pictures") / "photos"
    rng = np.random.default_rng(0)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(PER_CLASS):
            Image.fromarray(picture(name, rng)).save(folder / name / f"{number:02}.png")
    return folder


@pytest.fixture(scope="session")
def trained(photos, tmp_path_factory):
    """The folder of a model that `hamtarget train` made of the pictures, and what the command said."""
    model = tmp_path_factory.mktemp("trained") / "model"
    network = ["--backbone", "none", "--size", "16", "--grey", "--width", "4"]
    settings = ["--bits", "16", *network, "--batch-size", "16", "--device", "cpu"]
    output = run_command("train", photos, "--model", model, "--steps", "60", *settings)
    return SimpleNamespace(model=model, output=output, settings=settings)


@pytest.fixture(scope="session")
def filled(photos, trained, tmp_path_factory):
    """A store of all the pictures; not to be changed."""
    folder = tmp_path_factory.mktemp("filled") / "store"
    run_command("add", folder, photos, "--model", trained.model)
    return folder
