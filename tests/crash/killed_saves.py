"""Saves an index again and again, and is killed while it does: `python killed_saves.py FOLDER ROUNDS SEED`.

Each round forks a process that saves version after version of an index, and kills it after a random time. What is
then at the path must be one version, whole, and not older than the one before. Prints the number of rounds in which
the file had changed, of those in which a save was under way, and of temporary files that were left behind.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from hamtarget.search import MultiIndex

N_ROWS = 20_000
N_BYTES = 8


def rows_of(version):
    rng = np.random.default_rng(version)
    return version + np.arange(N_ROWS) * 1000, rng.integers(0, 256, (N_ROWS, N_BYTES), dtype=np.uint8)


def index_of(version):
    index = MultiIndex(8 * N_BYTES, radius=2)
    index.add(*rows_of(version))
    return index


def version_at(path, *, mmap):
    """The version of the file, every row of which is that version's."""
    index = MultiIndex.open(path, mmap=mmap)
    version = next(iter(index)) % 1000
    ids, codes = rows_of(version)
    assert len(index) == N_ROWS
    assert list(index) == ids.tolist()
    np.testing.assert_array_equal(index.get(ids), codes)
    hits = index.search_batch(codes[:100], 0)
    assert set(ids[:100].tolist()) <= set(hits.ids.tolist())
    return version


def main():
    folder, rounds, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    path = folder / "index"
    rng = random.Random(seed)
    version = 0
    versions = [index_of(version) for version in range(2)]
    versions[0].save(path)
    started = time.perf_counter()
    versions[0].save(path)
    save_seconds = time.perf_counter() - started
    changed = under_way = 0
    for round in range(rounds):
        progress, report = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                while True:
                    for index in versions[::-1] if version == 0 else versions:
                        os.write(report, b"s")
                        index.save(path)
                        os.write(report, b"e")
            finally:
                os._exit(1)
        os.close(report)
        os.read(progress, 1)
        time.sleep(rng.uniform(0, 3 * save_seconds))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL
        told = b"s"
        while piece := os.read(progress, 65536):
            told += piece
        os.close(progress)
        under_way += told.endswith(b"s")
        # Saves alternate, beginning with the version that is not there: the count of finished ones tells what is there.
        finished = told.count(b"e")
        expected = {(version + finished) % 2}
        if told.endswith(b"s"):
            expected.add((version + finished + 1) % 2)
        found = version_at(path, mmap=round % 2 == 0)
        assert found in expected, f"round {round}: version {found}; expected one of {expected}"
        changed += found != version
        version = found
    left_behind = sum(name.endswith(".tmp") for name in os.listdir(folder))
    sys.stdout.write(f"{changed} {under_way} {left_behind}")


if __name__ == "__main__":
    main()
