"""`hamtarget info` says what is installed, what is not, and how to install it."""

import json
import tomllib
from importlib import metadata
from pathlib import Path

from typer.testing import CliRunner

from hamtarget.cli import info
from hamtarget.cli.main import app

ROOT = Path(__file__).parents[2]
# Extras of several others, or for whoever works on the package.
OTHERS = {"all", "demo", "dev", "docs", "research"}


def test_every_extra_is_told():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(info._EXTRAS) == set(extras) - OTHERS
    for extra, package in info._EXTRAS.items():
        assert any(each.lower().startswith(package.lower()) for each in extras[extra]), package


def test_what_is_there_and_what_is_not(monkeypatch):
    told = json.loads(CliRunner().invoke(app, ["info", "--json"]).stdout)
    assert told["numpy"] == metadata.version("numpy")
    assert told["kernels"][-1] == "portable"
    assert told["WebP"] == "can be read"

    def version(package):
        if package in ("numpy", "hamtarget"):
            return "1"
        raise metadata.PackageNotFoundError(package)

    monkeypatch.setattr(info.metadata, "version", version)
    monkeypatch.setattr("hamtarget.datasets.pictures.picture_formats._has", lambda feature: False)
    told = info.installed()
    assert told["pillow-heif"] == "not installed: pip install 'hamtarget[heic]'"
    assert told["AVIF"] == "cannot be read: pip install 'Pillow>=11.3'"
