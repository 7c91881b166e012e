"""An index file that is opened without verification: damage may give wrong answers, but never ends the process."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hamtarget import _native
from hamtarget.errors import CorruptFileError
from hamtarget.search import MultiIndex

# Opens damaged copies of a file, one after another, and makes every kind of search. A crash ends this process.
DAMAGE = """
import sys
import numpy as np
from hamtarget import _native
from hamtarget.errors import CorruptFileError, InputError

path, seed = sys.argv[1], int(sys.argv[2])
whole = open(path, "rb").read()
n_sections = int.from_bytes(whole[12:16], "little")
rng = np.random.default_rng(seed)
opened = refused = 0
for _ in range(25):
    damaged = np.frombuffer(whole, dtype=np.uint8).copy()
    start = 64 + 64 * n_sections if rng.random() < 0.9 else 0
    kind = rng.integers(4)
    at = int(rng.integers(start, len(damaged)))
    if kind == 0:
        damaged[at:] = 255
    elif kind == 1:
        damaged[at : at + int(rng.integers(1, 5000))] = rng.integers(256)
    elif kind == 2:
        many = rng.integers(start, len(damaged), 1000)
        damaged[many] = rng.integers(0, 256, 1000)
    else:
        damaged[start:] = rng.permutation(damaged[start:])
    # The sections that describe the index stay as they are: else nearly every file would be refused.
    for row in range(64, 64 + 64 * n_sections, 64):
        if whole[row : row + 32].rstrip(b"\\0").endswith((b"index", b"key_bits", b"deleted")):
            offset, n_bytes = (int.from_bytes(whole[row + i : row + i + 8], "little") for i in (40, 48))
            stop = offset + (n_bytes + 63) // 64 * 64
            damaged[offset:stop] = np.frombuffer(whole[offset:stop], dtype=np.uint8)
    copy = path + ".damaged"
    damaged.tofile(copy)
    try:
        index = _native.MultiIndex.open(copy, bool(rng.integers(2)), False)
    except CorruptFileError:
        refused += 1
        continue
    opened += 1
    codes = rng.integers(0, 256, (20, index.n_bytes), dtype=np.uint8)
    logits = rng.standard_normal((20, 8 * index.n_bytes)).astype(np.float32)
    embeddings = np.ones((20, index.n_dims), dtype=np.float32).view(np.uint8)
    for radius in (0, 2, 9, 8 * index.n_bytes - 1):
        for limit in (None, 1, 100):
            index.search(_native.Search(codes, radius, limit), 1)
        index.search(_native.Search(codes, radius, filter_ids=np.arange(500, dtype=np.int64)), 1)
        index.search(_native.Search(codes, radius, rerank=5, embeddings=embeddings), 1)
        index.search(_native.Search(codes, radius, logits=logits, budget=500), 1)
        probing = dict(logits=logits, budget=10**9, comparisons=50)
        index.search(_native.Search(codes, radius, rerank=5, embeddings=embeddings, **probing), 1)
    ids = index.ids()
    for call in (
        lambda: index.get(ids),
        lambda: index.add(np.array([-5]), codes[:1], embeddings[:1]),
        lambda: index.delete(ids[:3]),
        lambda: index.compact(),
        lambda: index.search(_native.Search(codes, 9), 1),
        lambda: index.save(copy),
    ):
        try:
            call()
        except InputError:
            pass
print(opened, refused)
"""


def saved_index(path, n_rows):
    rng = np.random.default_rng(n_rows)
    index = MultiIndex(64, radius=2)
    ids = rng.permutation(3 * n_rows)[:n_rows]
    index.add(ids, rng.integers(0, 256, (n_rows, 8), dtype=np.uint8))
    index.delete(ids[: n_rows // 10])
    index.save(path)
    return index


def saved_index_of_several_parts(path):
    rng = np.random.default_rng(4)
    core = _native.MultiIndex(8, 3, 2, 6)
    ids = rng.permutation(20_000).astype(np.int64)
    for start, stop in ((0, 15_000), (15_000, 18_000), (18_000, 20_000)):
        codes = rng.integers(0, 4, (stop - start, 8), dtype=np.uint8)
        embeddings = rng.standard_normal((stop - start, 6)).astype(np.float32)
        core.add(ids[start:stop], codes, embeddings.view(np.uint8))
    core.delete(ids[:500])
    assert core.n_parts > 1
    core.save(str(path))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_damage_never_ends_the_process(tmp_path, seed):
    path = tmp_path / "index"
    saved_index_of_several_parts(path)
    done = subprocess.run([sys.executable, "-c", DAMAGE, str(path), str(seed)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    opened, refused = map(int, done.stdout.split())
    assert opened > refused


@pytest.mark.parametrize("mmap", [True, False])
def test_a_whole_file_gives_the_same_answers(tmp_path, mmap):
    path = tmp_path / "index"
    index = saved_index(path, 20_000)
    opened = MultiIndex.open(path, mmap=mmap, verify=False)
    assert list(opened) == list(index)
    rng = np.random.default_rng(0)
    for code in rng.integers(0, 256, (20, 8), dtype=np.uint8):
        for radius in (2, 18, 25):
            assert tuple(opened.search(code, radius)) == tuple(index.search(code, radius))
        assert tuple(opened.nearest(code, 7)) == tuple(index.nearest(code, 7))


def test_truncated_files_are_refused(tmp_path):
    path = tmp_path / "index"
    saved_index(path, 3000)
    whole = path.read_bytes()
    for length in (0, 63, 64, 500, len(whole) // 2, len(whole) - 64, len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError):
            MultiIndex.open(path, verify=False)


def test_damage_of_header_and_table_is_refused(tmp_path):
    path = tmp_path / "index"
    saved_index(path, 3000)
    whole = bytearray(path.read_bytes())
    n_sections = int.from_bytes(whole[12:16], "little")
    for position in range(0, 64 + 64 * n_sections, 7):
        whole[position] ^= 16
        path.write_bytes(whole)
        with pytest.raises(CorruptFileError):
            MultiIndex.open(path, verify=False)
        whole[position] ^= 16


def resident_share(path):
    """Return the share of the file that this process has mapped and touched."""
    entries = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    [entry] = [entry for entry in entries if entry.split("\n")[0].endswith(str(path))]
    size, resident = (int(re.search(rf"^{name}: +(\d+) kB", entry, re.MULTILINE)[1]) for name in ("Size", "Rss"))
    return resident / size


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc/self/smaps")
def test_opening_reads_a_part_of_the_file_only(tmp_path):
    path = tmp_path / "index"
    saved_index(path, 300_000)
    index = MultiIndex.open(path, verify=False)
    assert len(index) == 270_000
    assert resident_share(path) < 0.4
    del index
    index = MultiIndex.open(path)
    assert len(index) == 270_000
    assert resident_share(path) > 0.95
