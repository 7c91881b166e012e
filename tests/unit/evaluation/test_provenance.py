"""A result says where it comes from, names nobody's folders, and its file is whole or untouched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest

import hamtarget
from hamtarget.errors import InputError
from hamtarget.evaluation.provenance import command_line, git_state, provenance, source_digest, write_json


def git(folder, *arguments):
    identity = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, "-C", folder, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path):
    package = tmp_path / "repository" / "src"
    package.mkdir(parents=True)
    (package / "code.py").write_text("1\n")
    git(package.parent, "init", "--quiet")
    git(package.parent, "add", ".")
    git(package.parent, "commit", "--quiet", "--message", "first")
    return package.parent


def test_a_told_commit_goes_before_the_history_at_hand(monkeypatch):
    monkeypatch.setenv("HAMTARGET_COMMIT", "abc1234")
    result = provenance(seed=0)
    assert (result["commit"], result["dirty"]) == ("abc1234", None)


def test_the_source_is_told_by_its_content(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("1\n")
    files = {"a": tmp_path / "a", "b": tmp_path / "b"}
    before = source_digest(files)
    assert before["files"] == 2
    assert source_digest(dict(reversed(files.items()))) == before
    # Neither another content nor another name, nor content that moves from one file to the next, stays unseen.
    assert source_digest({"a": tmp_path / "a", "c": tmp_path / "b"}) != before
    (tmp_path / "a").write_text("")
    (tmp_path / "b").write_text("1\n1\n")
    assert source_digest(files) != before


def test_the_source_is_that_of_the_loaded_modules():
    assert provenance(seed=0)["source"] == provenance(seed=1)["source"]
    assert provenance(seed=0)["source"]["files"] > 5


def test_fields(monkeypatch):
    monkeypatch.delenv("HAMTARGET_COMMIT", raising=False)
    result = provenance(seed=7, command="python -m something")
    assert set(result) == {"command", "commit", "date", "dirty", "machine", "platform", "seed", "source", "versions"}
    assert result["seed"] == 7
    assert result["command"] == "python -m something"
    assert (result["commit"] is None) == (result["dirty"] is None)
    age = datetime.now(UTC) - datetime.fromisoformat(result["date"])
    assert timedelta(0) <= age < timedelta(minutes=1)
    assert 1 <= result["machine"]["cores"] <= os.cpu_count()
    assert result["machine"]["cpu"]
    assert result["machine"]["memory_gib"] > 0.1
    assert result["versions"]["hamtarget"] == hamtarget.__version__
    assert result["versions"]["numpy"] == np.__version__
    assert result["versions"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert json.loads(json.dumps(result)) == result


def test_missing_library_has_no_version(monkeypatch):
    def missing(package):
        raise provenance_module.metadata.PackageNotFoundError(package)

    provenance_module = sys.modules["hamtarget.evaluation.provenance"]
    monkeypatch.setattr(provenance_module.metadata, "version", missing)
    assert provenance(seed=0)["versions"]["torch"] is None


def test_torch_is_not_imported():
    check = (
        "import sys; from hamtarget.evaluation.provenance import provenance; "
        "assert provenance(seed=0)['machine']['gpu'] is None; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", check], check=True)


@pytest.mark.parametrize(("available", "name"), [(True, "NVIDIA X"), (False, None)])
def test_gpu_is_named_if_torch_is_in_use(monkeypatch, available, name):
    cuda = SimpleNamespace(is_available=lambda: available, get_device_name=lambda index: ["NVIDIA X"][index])
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert provenance(seed=0)["machine"]["gpu"] == name


def test_command_of_a_script_is_its_name(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=None))
    monkeypatch.setattr(sys, "argv", ["/users/alice/work/run.py", "--out", "/users/alice/results", "--trials=5"])
    assert provenance(seed=0)["command"] == "run.py --out results --trials=5"


@pytest.mark.parametrize("name", ["hamtarget.demo", "hamtarget.demo.__main__"])
def test_command_of_a_module_is_its_name(monkeypatch, name):
    monkeypatch.setitem(sys.modules, "__main__", SimpleNamespace(__spec__=SimpleNamespace(name=name)))
    monkeypatch.setattr(sys, "argv", ["/users/alice/work/src/hamtarget/demo/__main__.py", "-v"])
    assert provenance(seed=0)["command"] == "python -m hamtarget.demo -v"


def test_command_line_drops_folders_and_quotes():
    arguments = ["--out=/users/alice/my results", "/users/alice/a=b/in.npy", "rel/path", "two words"]
    assert command_line("run", arguments) == "run '--out=my results' in.npy rel/path 'two words'"


def test_clean_tree(repository):
    assert git_state(repository / "src") == (git(repository, "rev-parse", "--short", "HEAD"), False)


@pytest.mark.parametrize("path", ["src/code.py", "src/new.py", "README.md"])
def test_changed_tree_is_dirty(repository, path):
    (repository / path).write_text("2\n")
    assert git_state(repository / "src") == (git(repository, "rev-parse", "--short", "HEAD"), True)


def test_new_results_do_not_make_the_tree_dirty(repository):
    write_json(repository / "research" / "results" / "new.json", {})
    assert git_state(repository / "src")[1] is False


def test_folder_that_git_does_not_track_has_no_commit(repository):
    installed = repository / ".venv" / "package"
    installed.mkdir(parents=True)
    (installed / "code.py").write_text("1\n")
    assert git_state(installed) == (None, None)


def test_no_git_no_commit(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository))
    assert git_state(repository / "src") == (None, None)


def test_json_is_sorted_indented_and_plain(tmp_path):
    path = tmp_path / "new" / "folder" / "result.json"
    write_json(path, {"b": np.arange(2), "a": np.float32(0.5), "c": {"e": np.int64(1), "d": None}})
    assert path.read_text() == (
        '{\n  "a": 0.5,\n  "b": [\n    0,\n    1\n  ],\n  "c": {\n    "d": null,\n    "e": 1\n  }\n}\n'
    )
    assert os.listdir(path.parent) == ["result.json"]


@pytest.mark.parametrize("bad", [object(), float("nan"), np.array([np.inf]), {1, 2}])
def test_what_json_cannot_hold_leaves_the_old_file(tmp_path, bad):
    path = tmp_path / "result.json"
    write_json(path, {"old": 1})
    with pytest.raises(InputError, match=r"result\.json cannot be written as JSON"):
        write_json(path, {"good": 1, "worse": bad})
    assert json.loads(path.read_text()) == {"old": 1}
    assert os.listdir(tmp_path) == ["result.json"]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failing_disk_leaves_the_old_file(tmp_path, monkeypatch, step):
    def fail(*_):
        raise OSError("disk full")

    path = tmp_path / "result.json"
    write_json(path, {"old": 1})
    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="disk full"):
        write_json(path, {"new": 2})
    assert json.loads(path.read_text()) == {"old": 1}
    assert os.listdir(tmp_path) == ["result.json"]


def test_bytes_reach_the_disk_before_the_name(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: (steps.append("fsync"), fsync(file)))
    monkeypatch.setattr(os, "replace", lambda *paths: (steps.append("replace"), replace(*paths)))
    write_json(tmp_path / "result.json", {})
    # The content, then the name, then the folder that holds the name.
    assert steps == ["fsync", "replace", "fsync"]
