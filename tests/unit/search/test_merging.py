"""Merges go on in the background: what searches find does not depend on them, and a lack of memory only delays them."""

import os
import subprocess
import sys

import numpy as np

from hamtarget.codes import distances
from hamtarget.query import Work
from hamtarget.search import MultiIndex


def naive(codes, ids, query, radius):
    """(distance, id) of every row within the radius, by comparing all."""
    away = distances(query[None], codes, 64)[0]
    return sorted((int(away[row]), int(ids[row])) for row in np.flatnonzero(away <= radius))


def near_copies(n_rows, seed):
    """Codes of which about ten are near each other."""
    random = np.random.default_rng(seed)
    codes = random.integers(0, 256, (n_rows // 10, 8), dtype=np.uint8)[random.integers(0, n_rows // 10, n_rows)]
    return codes ^ np.packbits(random.random((n_rows, 64)) < 0.01, axis=1, bitorder="little")


def test_a_search_finds_old_and_new_rows_while_parts_are_merged():
    codes = near_copies(120_000, 0)
    index = MultiIndex(64, 2)
    index.add(np.arange(40_000), codes[:40_000])
    live = np.zeros(len(codes), dtype=bool)
    live[:40_000] = True
    random = np.random.default_rng(1)
    for start in range(40_000, len(codes), 1000):
        index.add(np.arange(start, start + 1000), codes[start : start + 1000])
        live[start : start + 1000] = True
        gone = random.choice(np.flatnonzero(live), 100, replace=False)
        index.delete(gone)
        live[gone] = False
        queries = codes[random.integers(0, start, 20)]
        ids = np.flatnonzero(live)
        for query, hits in zip(queries, index.search_batch(queries), strict=True):
            assert [(hit.distance, hit.id) for hit in hits] == naive(codes[ids], ids, query, 2)
    index.core.settle()
    np.testing.assert_array_equal(index.ids(), np.flatnonzero(live))
    assert index.core.n_parts <= 8


def test_a_search_of_some_queries_is_that_of_each_alone():
    codes = near_copies(60_000, 2)
    index = MultiIndex(64, 2)
    index.add(np.arange(57_000), codes[:57_000])
    index.add(np.arange(57_000, 60_000), codes[57_000:])
    queries = np.concatenate([codes[::97], np.random.default_rng(3).integers(0, 256, (500, 8), dtype=np.uint8)])
    for radius in range(5):
        for threads in (1, 2):
            together = index.search_batch(queries, radius, work=Work(threads=threads))
            assert list(together) == [index.search(query, radius) for query in queries]
    index.compact()
    assert list(index.search_batch(queries, 4)) == list(together)


_SHORT_OF_MEMORY = """
import resource
import numpy as np
from hamtarget.search import MultiIndex

codes = np.random.default_rng(0).integers(0, 256, (900_000, 8), dtype=np.uint8)
index = MultiIndex(64, 2)
index.add(np.arange(800_000), codes[:800_000])
parts = index.core.n_parts
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
_, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (used + (24 << 20), hard))  # a merge needs 45 MB
for start in range(800_000, 850_000, 1000):
    index.add(np.arange(start, start + 1000), codes[start : start + 1000])
index.core.settle()
assert index.core.n_parts > parts, "there was memory for a merge"
for row in range(0, 850_000, 1007):
    assert index.search(codes[row], 0)[0].id == row
resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
for start in range(850_000, 900_000, 1000):
    index.add(np.arange(start, start + 1000), codes[start : start + 1000])
index.core.settle()
assert len(index) == 900_000
assert index.core.n_parts <= 6, index.core.n_parts
"""


def test_without_memory_for_a_merge_rows_are_added_and_merged_later():
    subprocess.run([sys.executable, "-c", _SHORT_OF_MEMORY], check=True, timeout=120)


_FORKS = """
import os
import numpy as np
from hamtarget.search import MultiIndex

codes = np.random.default_rng(0).integers(0, 256, (400_000, 8), dtype=np.uint8)
index = MultiIndex(64, 2)
index.add(np.arange(200_000), codes[:200_000])
for start in range(200_000, 400_000, 20_000):
    index.add(np.arange(start, start + 20_000), codes[start : start + 20_000])
    child = os.fork()
    if child == 0:
        index.delete(np.arange(100))
        index.add(np.arange(100), codes[:100])
        index.compact()
        os._exit(0 if len(index) == start + 20_000 and index.search(codes[7], 0)[0].id == 7 else 1)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_child_can_change_an_index_whose_parts_were_being_merged():
    # At the end, the interpreter does not wait for the merge that goes on.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
    subprocess.run([sys.executable, "-c", _FORKS], check=True, timeout=120, env=environment)
