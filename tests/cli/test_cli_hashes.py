"""The command with picture hashes by name: `encode`, `add`, `search`, `info` and `verify`."""

import json

import imagehash
import numpy as np
import pdqhash
import pytest
from PIL import Image
from typer.testing import CliRunner

from hamtarget import open_encoder
from hamtarget.cli.main import app
from hamtarget.datasets import read_images

NAMES = ("phash", "dhash", "pdq", "copies64", "copies256")


def run(*arguments, exit_code=0):
    """Return what the command did."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == exit_code, result.output
    return result


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hashed")
    random = np.random.default_rng(0)
    for row in range(12):
        small = Image.fromarray(random.integers(0, 256, (8, 9, 3), np.uint8))
        small.resize((150 + row, 110), Image.Resampling.BICUBIC).save(folder / f"{row:02}.jpg", quality=95)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_encode_by_name(pictures, tmp_path, name):
    out = tmp_path / "codes.npy"
    encoder = open_encoder(name)
    told = run("encode", name, pictures, "--out", out).stdout
    assert told.startswith(f"12 codes of {encoder.n_bits} bits")
    paths = sorted(pictures.iterdir())
    assert np.array_equal(np.load(out), encoder.encode(read_images(paths, encoder.picture_form)))
    lines = run("encode", name, pictures).stdout.split()
    assert lines == [code.tobytes().hex() for code in np.load(out)]


def test_digits_of_encode_are_those_of_the_packages(pictures):
    for name in ("phash", "dhash"):
        wanted = [str(getattr(imagehash, name)(Image.open(path))) for path in sorted(pictures.iterdir())]
        assert run("encode", name, pictures).stdout.split() == wanted
    bits = [pdqhash.compute(np.asarray(Image.open(path)))[0] for path in sorted(pictures.iterdir())]
    assert run("encode", "pdq", pictures).stdout.split() == [np.packbits(each).tobytes().hex() for each in bits]


@pytest.mark.parametrize("name", NAMES)
def test_a_store_of_pictures_by_name(pictures, tmp_path, name):
    open_encoder(name).save(tmp_path / "model")
    run("add", tmp_path / "store", pictures, "--model", tmp_path / "model")
    found = json.loads(run("search", tmp_path / "store", pictures / "03.jpg", "--nearest", "1", "--json").stdout)
    assert found["hits"][0]["id"] == "03.jpg"
    digits = run("encode", name, pictures / "07.jpg").stdout.strip()
    found = json.loads(run("search", tmp_path / "store", digits, "--radius", "0", "--json").stdout)
    assert found["hits"][0]["id"] == "07.jpg"
    run("verify", tmp_path / "store")
    assert json.loads(run("info", tmp_path / "store", "--json").stdout)["encoder"] == repr(open_encoder(name)).replace(
        "models", "encoder"
    )


@pytest.mark.parametrize("name", NAMES)
def test_info_and_verify_of_a_name_and_of_a_saved_hash(tmp_path, name):
    assert name in json.loads(run("info", "--json").stdout)["picture hashes"]
    facts = json.loads(run("info", name, "--json").stdout)
    encoder = open_encoder(name)
    assert (facts["kind"], facts["n_bits"], facts["pictures"]) == ("model", encoder.n_bits, encoder.picture_form.fit)
    encoder.save(tmp_path / "saved")
    assert json.loads(run("info", tmp_path / "saved", "--json").stdout)["runs_by"] == facts["runs_by"]
    run("verify", name)
    run("verify", tmp_path / "saved")
    assert "phash, dhash, pdq, copies256, copies64" in run("info").stdout


def test_a_name_that_there_is_not_is_told_those_that_there_are(tmp_path):
    result = run("encode", "ahash", tmp_path, exit_code=2)
    assert "phash, dhash, pdq" in result.output
