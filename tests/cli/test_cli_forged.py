"""Commands that are given forged lines, files and models: one line on the standard error, no traceback."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hamtarget.cli.inputs.records import open_records, parse_line
from hamtarget.cli.main import app
from hamtarget.errors import CorruptFileError, HamtargetError

N_CASES = 400


def run(*arguments, stdin=None):
    return CliRunner().invoke(app, list(map(str, arguments)), input=stdin)


LINES = {
    "nested": "[" * 100_000,
    "nested objects": '{"vector":' * 100_000,
    "a number of thousands of digits": "[" + "9" * 10_000 + "]",
    "half a character as path": '{"image": "\\ud800.png"}',
    "half a character as id": '{"id": "\\ud800", "code": "00"}',
    "a path of megabytes": "x" * 3_000_000,
    "NUL": '{"image": "a\\u0000b"}',
    "an object as vector": '{"vector": {"a": 1}}',
    "text as vector": '{"vector": ["a", "b"]}',
    "ragged": "[[1], [2, 3]]",
    "no end": '{"vector": [1',
    "null": '{"vector": null}',
    "a list as id": '{"id": [1], "code": "00"}',
}


@pytest.mark.parametrize("line", LINES)
def test_forged_lines_are_told_in_one_line(tmp_path, line):
    store = tmp_path / "store"
    assert run("add", store, "-", "--bits", "64", stdin='{"id": "first", "code": "0000000000000000"}\n').exit_code == 0
    for arguments in (("add", store, "-"), ("search", store, "-")):
        result = run(*arguments, stdin=LINES[line] + "\n")
        assert isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code in (1, 2)
        assert len(result.stderr) < 5000
        assert "Traceback" not in result.stderr
    assert json.loads(run("info", store, "--json").stdout)


def test_a_code_that_is_longer_than_a_name_of_a_file_is_a_code():
    assert parse_line("ab" * 128, number=0, where="here").code == b"\xab" * 128
    assert parse_line("ab" * 4000, number=0, where="here").code == b"\xab" * 4000


def test_a_line_that_does_not_end_is_refused(tmp_path, monkeypatch):
    from hamtarget import _reading

    path = tmp_path / "lines.jsonl"
    path.write_text("00\n" + "a" * 5000)
    records = open_records(str(path)).records
    monkeypatch.setattr(_reading.lines_of, "__kwdefaults__", {"max_line": 1000})
    with pytest.raises(CorruptFileError, match="longer than 1,000"):
        list(records)


def test_mutated_lines_raise_nothing_but_typed_errors():
    random = np.random.default_rng(6)
    valid = [
        '{"id": "a", "vector": [1, 2.5, -3e2], "payload": {"x": [1, {"y": null}]}}',
        '{"id": 7, "code": "00ff00ff"}',
        '{"image": "pictures/a.png", "payload": {"tag": "\\u00e9"}}',
        "[1, 2, 3]",
        "00ff00ff",
        "pictures/a.png",
    ]
    n_refused = 0
    for _ in range(N_CASES):
        text = list(valid[random.integers(0, len(valid))])
        for _ in range(random.integers(1, 5)):
            place = int(random.integers(0, len(text)))
            text[place] = random.choice(list('{}[]",:\\u0\0 \ud800é\U0001f600\n-eE.9'))
            if random.random() < 0.2:
                text = text[: place + 1]
        try:
            parse_line("".join(text), number=0, where="here")
        except HamtargetError:
            n_refused += 1
    assert n_refused > N_CASES / 20


def test_a_filter_that_is_nested_deeply_is_text(tmp_path):
    store = tmp_path / "store"
    assert run("add", store, "-", "--bits", "64", stdin="00" * 8 + "\n").exit_code == 0
    result = run("search", store, "00" * 8, "--filter", "a=" + "[" * 50_000)
    assert result.exit_code == 0, result.output
