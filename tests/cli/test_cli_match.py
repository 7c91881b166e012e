"""`hamtarget add --several` and `hamtarget match`: items with several codes, from folders and from lines."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.cli.main import app
from hamtarget.store import Store

CODES = np.random.default_rng(5).integers(0, 256, (12, 8), dtype=np.uint8)


def run(*arguments, input=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def lines(ids, codes):
    return "".join(
        json.dumps({"id": id, "code": code.tobytes().hex(), "payload": {"of": id}}) + "\n"
        for id, code in zip(ids, codes, strict=True)
    )


@pytest.fixture
def store(tmp_path):
    """Two videos of 4 and 3 frames, and a picture."""
    text = lines(["a"] * 4 + ["b"] * 3 + [7], CODES[[0, 1, 2, 3, 3, 4, 5, 0]])
    result = run("add", tmp_path / "store", "-", "--several", input=text)
    assert result.exit_code == 0, result.output
    assert "3 stored, 0 skipped; 3 in all" in result.output
    return tmp_path / "store"


def test_lines_with_one_id_are_one_item(store):
    with Store.open(store) as opened:
        assert [(item.id, 1 if item.codes is None else len(item.codes)) for item in opened.scan()] == [
            (7, 1),
            ("a", 4),
            ("b", 3),
        ]
        assert opened.payloads(["a"]) == [{"of": "a"}]
    told = json.loads(run("info", store, "--json").output)
    assert (told["items"], told["codes"]) == (3, 8)
    result = run("add", store, "-", "--several", input=lines(["a", "a", "c"], CODES[:3]))
    assert "1 stored, 1 skipped; 4 in all" in result.output


def test_match_tells_how_many_codes_matched(store):
    hexes = [code.tobytes().hex() for code in CODES[:4]]
    result = run("match", store, *hexes, "--at-least", 2)
    assert result.exit_code == 0, result.output
    rows = [
        line.replace("|", " ").split() for line in result.output.splitlines() if " of " in line and "the" not in line
    ]
    assert [row[:8] for row in rows] == [["a", "4", "of", "4", "4", "of", "4", "0"]]
    found = json.loads(run("match", store, *hexes, "--json").output)
    assert found["codes"] == 4
    assert [(match["id"], match["n_query_matched"], match["n_item_codes"]) for match in found["matches"]] == [
        ("a", 4, 4),
        (7, 1, 1),
        ("b", 1, 3),
    ]
    assert found["matches"][2]["pairs"] == [[3, 0, 0]]
    assert found["matches"][2]["payload"] == {"of": "b"}
    by_id = json.loads(run("match", store, "--id", "b", "--filter", "of=b", "--limit", 1, "--json").output)
    assert [(match["id"], match["n_query_matched"]) for match in by_id["matches"]] == [("b", 3)]


def test_a_folder_of_pictures_is_one_item(photos, trained, tmp_path):
    result = run("add", tmp_path / "videos", photos, "--several", "--model", trained.model)
    assert result.exit_code == 0, result.output
    assert "3 stored" in result.output
    found = json.loads(run("match", tmp_path / "videos", photos / "disc", "--at-least", 12, "--json").output)
    assert "disc" in [match["id"] for match in found["matches"]]
    assert found["codes"] == found["matches"][0]["n_item_codes"] == 12


def test_what_does_not_fit_is_told(store):
    for arguments, what in (
        ((), "nothing to match"),
        (("--id", "none"), "has no item 'none'"),
        (("00" * 8, "--at-least", 2), "at_least is 2"),
        (("no such file",), "is no file and no code"),
    ):
        result = run("match", store, *arguments)
        assert result.exit_code != 0
        assert what in " ".join(result.output.split())
    result = run("search", store, "--id", "a")
    assert "'a' has 4 codes" in " ".join(result.output.split())
    result = run("add", store, "-", "--several", input=lines(["big"] * 65, np.repeat(CODES[:1], 65, axis=0)))
    assert result.exit_code == 1
    assert "an item has at most 64 codes" in result.output
