"""The record of the tests on a GPU: every outcome is told, and nothing is written where all would be skipped."""

import json
import sys

import pytest
import torch

from research import gpu_tests

TESTS = """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError

@pytest.fixture
def left_broken():
    yield
    raise RuntimeError

def test_right(): pass

@pytest.mark.skip
def test_left_out(): pass

def test_wrong(): assert False

def test_without_its_fixture(broken): pass

def test_whose_end_fails(left_broken): pass
"""


@pytest.fixture
def out(tmp_path, monkeypatch):
    folder = tmp_path / gpu_tests.TESTS
    folder.mkdir(parents=True)
    (folder / "test_few.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setattr(gpu_tests, "ROOT", tmp_path)
    monkeypatch.setattr(gpu_tests, "provenance", lambda seed: {"seed": seed})
    monkeypatch.setattr(sys, "argv", ["gpu_tests", "--out", str(tmp_path / "outcome.json")])
    return tmp_path / "outcome.json"


def test_every_outcome_is_told(out, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpu_tests.main() == pytest.ExitCode.TESTS_FAILED
    told = json.loads(out.read_text())
    assert {name.partition("::")[2]: each["outcome"] for name, each in told["outcomes"].items()} == {
        "test_right": "passed",
        "test_left_out": "skipped",
        "test_wrong": "failed",
        "test_without_its_fixture": "error",
        "test_whose_end_fails": "error",
    }
    assert told["counts"] == {"passed": 1, "skipped": 1, "failed": 1, "error": 2}
    assert told["exit_status"] == pytest.ExitCode.TESTS_FAILED
    assert told["tests"]["files"] == 1


def test_nothing_is_written_without_a_gpu(out, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_tests.main() == 2
    assert not out.exists()
    assert "no GPU" in capsys.readouterr().err
