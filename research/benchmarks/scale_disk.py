"""Search an index file that is four times as large as the memory it may use: page reads and look-ups a second.

    python -m research.benchmarks.scale_disk --out research/results/scale_disk.json

The file is opened without verification and mapped; the kernel is told that reads are random. Of the file, only where
buckets begin (the offsets of all tables) stays in memory. Everything else is dropped from memory before each batch, and
a batch is so small that what it reads never exceeds a quarter of the file together with the offsets. So nearly every
bucket comes from the disk. Reads are counted by the kernel (major page faults of the searching thread). In turns with
the batches, one thread reads 4 KiB at random places of the same file, past all caches (O_DIRECT): look-ups cannot be
faster than these reads divided by the pages that a look-up needs.
"""

from __future__ import annotations

import argparse
import ctypes
import mmap
import os
import resource
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search import MultiIndex
from research.benchmarks.search_sets import recipes

_RADIUS = 2
_SHARE = 4
_PAGE = 4096
_LIBC = ctypes.CDLL(None, use_errno=True)
_MADV_RANDOM = 1


@dataclass(frozen=True)
class Turn:
    """One batch of look-ups, or of plain reads."""

    operations: int
    seconds: float
    page_reads: int


class ColdFile:
    """An index file that is not in memory, but for the offsets of its tables."""

    def __init__(self, path: Path) -> None:
        """Lock the offsets of all tables in memory."""
        self.path = path
        self.size = path.stat().st_size
        self.locked = 0
        self._number = os.open(path, os.O_RDONLY)
        self._map = mmap.mmap(self._number, 0, prot=mmap.PROT_READ)
        self._start = start = np.frombuffer(self._map, dtype=np.uint8).ctypes.data
        for offset, n_bytes in _sections(path, "offsets"):
            first = offset // _PAGE * _PAGE
            if _LIBC.mlock(ctypes.c_void_p(start + first), ctypes.c_size_t(offset + n_bytes - first)):
                raise OSError(ctypes.get_errno(), "the offsets cannot be locked in memory; raise `ulimit -l`")
            self.locked += n_bytes

    def drop(self) -> None:
        """Drop everything else of the file from memory."""
        os.posix_fadvise(self._number, 0, 0, os.POSIX_FADV_DONTNEED)

    def look_up(self, queries: Codes) -> Turn:
        """Open the file, search for each of the queries, one after another, and close it."""
        self.drop()
        index = MultiIndex.open(self.path, verify=False)
        for begin, end in _mappings(self.path):
            _LIBC.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), _MADV_RANDOM)
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_majflt
        began = time.perf_counter()
        for query in queries:
            index.search(query)
        seconds = time.perf_counter() - began
        return Turn(len(queries), seconds, resource.getrusage(resource.RUSAGE_THREAD).ru_majflt - before)

    def read(self, count: int, random: np.random.Generator) -> Turn:
        """Read single pages at random places, past all caches."""
        number = os.open(self.path, os.O_RDONLY | os.O_DIRECT)
        page = mmap.mmap(-1, _PAGE)
        places = (random.integers(0, self.size // _PAGE, count) * _PAGE).tolist()
        began = time.perf_counter()
        for place in places:
            os.preadv(number, [page], place)
        seconds = time.perf_counter() - began
        os.close(number)
        return Turn(count, seconds, count)

    def resident_share(self) -> float:
        """Return how much of the file is in memory now."""
        n_pages = -(-self.size // _PAGE)
        found = np.zeros(n_pages, dtype=np.uint8)
        if _LIBC.mincore(ctypes.c_void_p(self._start), ctypes.c_size_t(self.size), ctypes.c_void_p(found.ctypes.data)):
            raise OSError(ctypes.get_errno(), "mincore failed")
        return float((found & 1).mean())


def _sections(path: Path, ending: str) -> Iterator[tuple[int, int]]:
    """Yield offset and length of the sections whose names end so; docs/format.md describes the table of sections."""
    with path.open("rb") as file:
        n_sections = struct.unpack("<I", file.read(16)[12:])[0]
        file.seek(64)
        for _ in range(n_sections):
            name, _, offset, n_bytes, _ = struct.unpack("<32s8s3Q", file.read(64))
            if name.rstrip(b"\0").decode().endswith(ending):
                yield offset, n_bytes


def _mappings(path: Path) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each piece of memory into which this process has mapped the file."""
    for line in Path("/proc/self/maps").read_text("utf-8").splitlines():
        if line.endswith(str(path)):
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            yield begin, end


def measure(n_rows: int, n_turns: int, folder: Path) -> dict[str, Any]:
    """Build and save an index, then search it from the disk."""
    drawn = replace(recipes(1)["L"], n_rows=n_rows).draw(200_000)
    random = np.random.default_rng(2)
    queries = {
        "queries with hits": drawn.queries,
        "queries without hits": random.integers(0, 256, (200_000, 8), np.uint8),
    }
    index = MultiIndex(64, _RADIUS)
    index.add(np.arange(n_rows), drawn.codes)
    path = folder.resolve() / "index"
    index.save(path)
    del index, drawn
    file = ColdFile(path)
    # A look-up reads a page of codes, and one of row numbers, for each substring.
    most = int((file.size / _SHARE - file.locked) / (2 * (_RADIUS + 1) * _PAGE))
    n_queries = min(most, 5_000)
    turns: dict[str, list[Turn]] = {name: [] for name in (*queries, "plain reads")}
    shares = []
    for number in range(n_turns):
        turns["plain reads"].append(file.read(4 * n_queries, random))
        for name, codes in queries.items():
            start = number * n_queries % (len(codes) - n_queries)
            turns[name].append(file.look_up(codes[start : start + n_queries]))
            shares.append(file.resident_share())
    path.unlink()
    return {
        "n_rows": n_rows,
        "radius": _RADIUS,
        "file_bytes": file.size,
        "offsets_bytes": file.locked,
        "most_of_the_file_in_memory": max(shares),
        "queries_a_turn": n_queries,
        **{name: _summary(found) for name, found in turns.items()},
    }


def _summary(turns: list[Turn]) -> dict[str, float]:
    return {
        "a_second": float(np.median([turn.operations / turn.seconds for turn in turns])),
        "pages_each": float(np.median([turn.page_reads / turn.operations for turn in turns])),
        "pages_a_second": float(np.median([turn.page_reads / turn.seconds for turn in turns])),
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=3e7, help="of the index (default: %(default)s)")
    parser.add_argument("--turns", type=int, default=5, help="batches of each kind (default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="on the disk to be measured")
    parser.add_argument("--out", type=Path, default=Path("research/results/scale_disk.json"), help="JSON file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        found = measure(int(arguments.rows), arguments.turns, Path(folder))
    for name in ("queries with hits", "queries without hits", "plain reads"):
        print(f"{name}: {found[name]['a_second']:,.0f} a second, {found[name]['pages_each']:.2f} page reads each")
    write_json(arguments.out, {**found, "provenance": provenance(seed=2)})


if __name__ == "__main__":
    main()
