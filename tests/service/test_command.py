"""`hamtarget serve`: what it refuses, in one line, before anything is served."""

import subprocess
import sys

import numpy as np
import pytest
from services import Caller
from typer.testing import CliRunner

from hamtarget.cli.main import app
from hamtarget.errors import MissingExtraError
from hamtarget.serve.demo_store import N_QUERIES, make_demo
from hamtarget.store import Store

START = "from hamtarget.cli import start; start()"


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64, radius=2) as made:
        made.put_rows([1], codes=np.zeros((1, 8), np.uint8))
    return tmp_path / "store"


def test_help_has_an_example():
    told = CliRunner().invoke(app, ["serve", "--help"])
    assert told.exit_code == 0
    assert "hamtarget serve store --images photos" in told.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either a STORE or --demo"),
        (["{store}", "--demo"], "give either a STORE or --demo"),
        (["{store}/nothing"], "there is no such folder"),
        (["{store}", "--host", "0.0.0.0"], "there is no token"),
        (["{store}", "--images", "{store}/nothing"], "expected a folder of images"),
        (["{store}", "--token-file", "{store}/nothing"], "No such file"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_line(store, arguments, said, monkeypatch):
    monkeypatch.delenv("HAMTARGET_TOKEN", raising=False)
    told = CliRunner().invoke(app, ["serve", *(each.format(store=store) for each in arguments)])
    assert told.exit_code == 2
    assert said in told.output
    assert told.output.count("\n") == 1


def test_a_token_from_a_file_is_asked_for(store, tmp_path):
    (tmp_path / "token").write_text("a-token-from-a-file\n")
    arguments = [
        "serve",
        str(store),
        "--port",
        "0",
        "--token-file",
        str(tmp_path / "token"),
        "--host-name",
        "shop.test",
    ]
    process = subprocess.Popen([sys.executable, "-c", START, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        call = Caller(process.stdout.readline().split()[2])
        assert call("GET", "/v1/stats").status == 401
        headers = {"Authorization": "Bearer a-token-from-a-file", "Host": "shop.test"}
        assert call("GET", "/v1/stats", headers=headers).json["items"] == 1
        assert call("GET", "/v1/stats", headers={**headers, "Host": "other.test"}).status == 421
        process.terminate()
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def test_the_demo_has_images_and_others_to_search_with(tmp_path, monkeypatch):
    steps = []
    made, images = make_demo(tmp_path, n_images=120, progress=lambda done, total: steps.append((done, total)))
    assert steps[-1] == (120, 120)
    assert len(list(images.glob("*.png"))) == 120
    assert len(list((tmp_path / "queries").glob("*.png"))) == N_QUERIES
    with Store.open(made) as store:
        assert len(store) == 120
        near = store.search(images / "0007.png", radius=0)
        assert 7 in [hit.id for hit in near]
        assert store.get([7])[0].payload["image"] == "0007.png"
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingExtraError, match="vision"):
        make_demo(tmp_path / "again")
