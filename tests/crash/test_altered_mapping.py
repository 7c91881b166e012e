"""An index file that is altered in place while it is open: answers may be wrong, but the process goes on.

A file that was verified when it was opened is as safe as one that was not. (A file that is truncated in place ends the
process, whatever the index does: the operating system sends SIGBUS.)
"""

import subprocess
import sys

import numpy as np
import pytest

from hamtarget.search import Embeddings, FlatIndex, MultiIndex

# Opens the file, verified and mapped, then writes into it, again and again, and makes every kind of search.
ALTER = """
import os, sys, threading
import numpy as np
from hamtarget.errors import InputError
from hamtarget.query import Asked, Query, Work
from hamtarget.search import FlatIndex, MultiIndex

path, kind, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
rng = np.random.default_rng(seed)
size = os.path.getsize(path)
index = (MultiIndex if kind == "multi" else FlatIndex).open(path)
changed = (MultiIndex if kind == "multi" else FlatIndex).open(path)
changed.delete(changed.ids()[5:400])
changed.add(np.arange(50) + 10**6, rng.integers(0, 256, (50, 8), dtype=np.uint8), np.ones((50, 4), dtype=np.float32))
file = os.open(path, os.O_WRONLY)

def alter():
    how = rng.integers(3)
    if how == 0:
        at = int(rng.integers(size))
        os.pwrite(file, bytes([int(rng.integers(256))]) * min(int(rng.integers(1, 60_000)), size - at), at)
    elif how == 1:
        at = int(rng.integers(size - 4096))
        os.pwrite(file, rng.integers(0, 256, 4096, dtype=np.uint8).tobytes(), at)
    else:
        for at in rng.integers(0, size, 300).tolist():
            os.pwrite(file, bytes([int(rng.integers(256))]), at)

def search_all(index):
    codes = rng.integers(0, 256, (70, 8), dtype=np.uint8)
    logits = rng.standard_normal((70, 64))
    embedding = np.ones((70, 4), dtype=np.float32)
    some = np.sort(rng.integers(0, 40_000, 900))
    for radius in (0, 2, 20, 63):
        index.search_batch(codes, radius)
        index.search_batch(codes, radius, limit=3)
        index.search_batch(codes, radius, limit=900, work=Work(threads=2))
        index.search_batch(codes, radius, filter=some)
        index.search_batch(codes, radius, filter=np.arange(30_000) % 7 == 0, limit=2)
        index.search_batch(Asked(codes, embeddings=embedding), radius, rerank=5)
        index.search_batch(Asked(logits=logits), radius, budget=500, filter=some)
        likely = Asked(logits=logits, embeddings=embedding)
        index.answer(likely, Query(radius, budget=5000, rerank=5, comparisons=50))
    index.nearest_batch(codes, 7)
    index.nearest_batch(codes, 7, filter=some)
    index.search(codes[0], 63, limit=5)
    ids = index.ids()
    try:
        index.get(ids)
    except InputError:
        pass

for _ in range(4):
    alter()
    search_all(index)
    search_all(changed)
# The same while another thread writes.
stop = threading.Event()
def keep_altering():
    while not stop.is_set():
        alter()
        stop.wait(0.001)
writer = threading.Thread(target=keep_altering)
writer.start()
try:
    for _ in range(2):
        search_all(index)
        search_all(changed)
finally:
    stop.set()
    writer.join()
print("went on")
"""


@pytest.mark.parametrize(("kind", "seed"), [("multi", 0), ("multi", 1), ("multi", 2), ("flat", 1)])
def test_a_verified_file_that_is_altered_while_it_is_mapped(kind, seed, tmp_path):
    rng = np.random.default_rng(seed)
    n_rows = 12_000
    embeddings = Embeddings(4, "float32", "l2")
    index = MultiIndex(64, 2, embeddings=embeddings) if kind == "multi" else FlatIndex(64, embeddings=embeddings)
    # Ids that need 32 bits or 64 bits each, or none: a file has a table of them, or their first.
    ids = {0: np.arange(n_rows), 1: 3 * np.arange(n_rows), 2: 2**40 * np.arange(n_rows)}[seed]
    codes = rng.integers(0, 256, (n_rows, 8), dtype=np.uint8)
    for piece in np.array_split(np.arange(n_rows), [9000, 11_500]):
        index.add(ids[piece], codes[piece], np.ones((len(piece), 4), dtype=np.float32))
    path = tmp_path / "index"
    index.save(path)
    command = [sys.executable, "-c", ALTER, str(path), kind, str(seed)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-2000:]}"
    assert done.stdout == "went on\n"
