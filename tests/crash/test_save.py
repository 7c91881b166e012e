"""Saving is all or nothing: killed at any moment, or on a full disk, the old or the new index is there, whole."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small_disk import run_on_small_disk

from hamtarget.search import MultiIndex

HERE = Path(__file__).parent
ROUNDS = 2000 if os.environ.get("HAMTARGET_SOAK") else 100


def index_of(n_rows, *, seed=1):
    rng = np.random.default_rng(seed)
    index = MultiIndex(64, radius=2)
    index.add(np.arange(n_rows), rng.integers(0, 256, (n_rows, 8), dtype=np.uint8))
    return index


@pytest.mark.slow
def test_kill_during_save_leaves_the_old_or_the_new_index(tmp_path):
    command = [sys.executable, str(HERE / "killed_saves.py"), str(tmp_path), str(ROUNDS), "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300 + ROUNDS, check=False)
    assert done.returncode == 0, done.stderr
    changed, under_way, left_behind = map(int, done.stdout.split())
    # Else nothing was interrupted, and the test shows nothing.
    assert under_way > ROUNDS / 4
    assert 0 < changed
    assert left_behind <= under_way


@pytest.fixture
def file_size_limit():
    """Sets the longest file that this process may write; Python turns the signal into an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda n_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.999])
def test_a_file_that_gets_too_long_is_an_error_and_the_old_one_stays(tmp_path, file_size_limit, share):
    path = tmp_path / "index"
    index_of(100).save(path)
    old = path.read_bytes()
    large = index_of(20_000)
    large.save(tmp_path / "large")
    n_bytes = (tmp_path / "large").stat().st_size
    (tmp_path / "large").unlink()
    file_size_limit(int(share * n_bytes))
    with pytest.raises(OSError, match="File too large"):
        large.save(path)
    assert path.read_bytes() == old
    assert os.listdir(tmp_path) == ["index"]
    file_size_limit(n_bytes)
    large.save(path)
    assert len(MultiIndex.open(path)) == 20_000


FULL_DISK = """
import os, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from test_save import MultiIndex, index_of
path = Path({folder!r}) / "index"
index_of(100).save(path)
old = path.read_bytes()
try:
    index_of(20_000).save(path)
except OSError as error:
    print(error)
assert path.read_bytes() == old
assert os.listdir(path.parent) == ["index"]
assert len(MultiIndex.open(path)) == 100
"""


def test_a_full_disk_is_an_error_and_the_old_file_stays(tmp_path):
    told = run_on_small_disk(tmp_path, "256k", lambda disk: FULL_DISK.format(here=str(HERE), folder=disk))
    assert "No space left on device" in told


def test_saving_where_nothing_can_be_saved_is_an_error(tmp_path):
    (tmp_path / "folder").mkdir()
    index = index_of(10)
    with pytest.raises(OSError, match="directory"):
        index.save(tmp_path / "folder")
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(OSError, match="Not a directory"):
        index.save(tmp_path / "file" / "index")
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert not os.listdir(tmp_path / "folder")


@pytest.mark.parametrize("mmap", [True, False])
def test_an_open_index_survives_saving_over_its_own_file(tmp_path, mmap):
    path = tmp_path / "index"
    index_of(5000).save(path)
    index = MultiIndex.open(path, mmap=mmap)
    codes = index.get(np.arange(5000))
    index.delete(np.arange(100))
    index.save(path)
    index_of(3, seed=2).save(path)
    path.unlink()
    np.testing.assert_array_equal(index.get(np.arange(100, 5000)), codes[100:])
    assert len(index) == 4900


def test_the_new_file_is_an_ordinary_one(tmp_path):
    """Not readable for its owner alone, as temporary files are."""
    before = os.umask(0o027)
    try:
        index_of(3).save(tmp_path / "index")
    finally:
        os.umask(before)
    assert (tmp_path / "index").stat().st_mode & 0o777 == 0o640


def test_relative_paths_and_odd_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ["index", "./index", "with space", "ümläut", ".hidden", "index.tar.gz"]:
        index_of(3).save(name)
        assert len(MultiIndex.open(name)) == 3
    assert len(os.listdir(tmp_path)) == 5
