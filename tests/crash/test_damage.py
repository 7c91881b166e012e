"""A damaged index file is refused: every length, every bit."""

import os

import numpy as np
import pytest

from hamtarget.errors import CorruptFileError
from hamtarget.search import MultiIndex


def saved_index(path, n_rows):
    rng = np.random.default_rng(n_rows)
    index = MultiIndex(16, radius=1)
    index.add(rng.permutation(n_rows), rng.integers(0, 256, (n_rows, 2), dtype=np.uint8))
    index.save(path)
    return index


@pytest.fixture
def small_file(tmp_path):
    path = tmp_path / "index"
    saved_index(path, 5)
    return path


def flip(handle, position):
    byte = os.pread(handle, 1, position // 8)[0] ^ 1 << position % 8
    os.pwrite(handle, bytes([byte]), position // 8)


def opens(path, *, mmap):
    try:
        MultiIndex.open(path, mmap=mmap)
    except CorruptFileError:
        return False
    return True


@pytest.mark.parametrize("mmap", [True, False])
def test_every_truncation_is_refused(small_file, mmap):
    whole = small_file.read_bytes()
    assert opens(small_file, mmap=mmap)
    lengths = []
    for length in reversed(range(len(whole))):
        os.truncate(small_file, length)
        if opens(small_file, mmap=mmap):
            lengths.append(length)
    assert not lengths


@pytest.mark.parametrize("extra", [1, 8, 63, 64, 65, 4096])
def test_appended_bytes_are_refused(small_file, extra):
    with open(small_file, "ab") as file:
        file.write(bytes(extra))
    with pytest.raises(CorruptFileError, match=r"\d+ bytes; expected"):
        MultiIndex.open(small_file)


@pytest.mark.slow
@pytest.mark.parametrize("mmap", [True, False])
def test_every_bit_flip_is_refused(small_file, mmap):
    bits = []
    with open(small_file, "r+b", buffering=0) as file:
        for position in range(8 * small_file.stat().st_size):
            flip(file.fileno(), position)
            if opens(small_file, mmap=mmap):
                bits.append(position)
            flip(file.fileno(), position)
    assert not bits
    assert opens(small_file, mmap=mmap)


def test_bit_flips_are_refused_in_an_index_with_tables(tmp_path):
    path = tmp_path / "index"
    saved_index(path, 5000)
    positions = np.random.default_rng(1).integers(0, 8 * path.stat().st_size, 1000)
    with open(path, "r+b", buffering=0) as file:
        for position in positions.tolist():
            flip(file.fileno(), position)
            assert not opens(path, mmap=position % 2 == 0), f"bit {position}"
            flip(file.fileno(), position)
    assert opens(path, mmap=True)


@pytest.mark.parametrize("content", [b"", b"\x89HAM\r\n\x1a\n", b"PK\x03\x04" * 100, bytes(4096), b"\xff" * 4096])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "index"
    path.write_bytes(content)
    with pytest.raises(CorruptFileError):
        MultiIndex.open(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes on this system")
def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CorruptFileError, match="pipe"):
        MultiIndex.open(tmp_path / "pipe")


def test_a_refused_file_leaves_no_open_file_behind(small_file):
    os.truncate(small_file, 100)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    for _ in range(50):
        assert not opens(small_file, mmap=True)
    after = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    assert after == before
