"""A result says by its content what made it; older ones that do not are in a list that can only become shorter."""

import json

import pytest

from research import result_files
from research.result_files import LIST, RESULTS, problems, without_source

TOLD = {
    "command": "python -m research.a",
    "commit": "abc1234",
    "date": "2026-01-01",
    "dirty": False,
    "machine": {"cores": 2},
    "source": {"digest": "0123", "files": 3},
}
OLD = {key: value for key, value in TOLD.items() if key != "source"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / LIST).write_text("")
    return tmp_path


def test_every_result_tells_its_source_or_is_listed():
    assert problems(RESULTS) == []


@pytest.mark.parametrize(
    "result", [{"provenance": TOLD, "rows": [1]}, {**TOLD, "rows": [1]}, {"records": [{"provenance": TOLD}]}]
)
def test_a_result_that_tells_its_source_needs_no_line(folder, result):
    (folder / "a.json").write_text(json.dumps(result))
    assert problems(folder) == []


@pytest.mark.parametrize(
    ("result", "certainty"),
    [
        ({"rows": [1]}, "uncertain"),
        ([1], "uncertain"),
        ({"provenance": OLD}, "commit"),
        ({"provenance": {**OLD, "dirty": True}}, "uncertain"),
        ({"provenance": {**OLD, "dirty": None}}, "uncertain"),
        ({"provenance": {**TOLD, "command": None}}, "commit"),
        ({"provenance": TOLD, "records": [{"provenance": OLD}]}, "commit"),
    ],
)
def test_a_new_result_without_its_source_is_noticed(folder, result, certainty):
    (folder / "a.json").write_text(json.dumps(result))
    (problem,) = problems(folder)
    assert problem.startswith("a.json does not say")
    (old,) = without_source(folder)
    assert old.certainty == certainty
    (folder / LIST).write_text(f"{old}\n")
    assert problems(folder) == []


def test_a_listed_file_cannot_be_replaced_by_another_without_source(folder):
    (folder / "a.json").write_text(json.dumps({"provenance": OLD}))
    (old,) = without_source(folder)
    (folder / LIST).write_text(f"{old}\n")
    (folder / "a.json").write_text(json.dumps({"provenance": OLD, "rows": 2}))
    assert len(problems(folder)) == 2


def test_updating_drops_lines_and_adds_none(folder, monkeypatch):
    (folder / "old.json").write_text(json.dumps({"provenance": OLD}))
    (folder / "other.json").write_text(json.dumps([1]))
    (folder / LIST).write_text("".join(f"{old}\n" for old in without_source(folder)))
    (folder / "other.json").write_text(json.dumps({"provenance": TOLD}))
    (folder / "new.json").write_text(json.dumps({}))
    monkeypatch.setattr(result_files, "RESULTS", folder)
    monkeypatch.setattr("sys.argv", ["result_files", "--update"])
    with pytest.raises(SystemExit) as ended:
        result_files.main()
    assert ended.value.code == 1
    assert (folder / LIST).read_text().split()[1:] == ["commit", "old.json"]
