"""Measure the memory of an index: the growth of a new process once the index is built and its input is gone.

Run by search_speed.py, once for each index:

    python -m research.benchmarks.search_memory "hamtarget MultiIndex" L 1000000
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from research.benchmarks.search_methods import FaissFlat, FaissHash, FaissMultiHash, Method, OurFlatIndex, OurMultiIndex
from research.benchmarks.search_methods import OurMultiIndexWithIds as WithIds
from research.benchmarks.search_sets import recipes

METHODS = ("hamtarget MultiIndex", "hamtarget MultiIndex random ids", "hamtarget FlatIndex")
PEERS = ("faiss IndexBinaryMultiHash 3x21", "faiss IndexBinaryHash b 16 nflip 2", "faiss IndexBinaryFlat")
_SECONDS = 300


def measure(method: str, set_name: str, n_rows: int) -> dict[str, Any]:
    """Return the bytes per row that `method` keeps of a generated set, and the most it took while building.

    The measurement runs in a new process.

    Raises:
        RuntimeError: the process failed.
    """
    command = [sys.executable, "-m", "research.benchmarks.search_memory", method, set_name, str(n_rows)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=_SECONDS)
    if done.returncode:
        raise RuntimeError(f"measuring the memory of {method} failed: {done.stderr.strip()[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def _method(name: str) -> Method:
    made: list[Method] = [OurMultiIndex(64, 2), WithIds(64, 2), OurFlatIndex(64)]
    made += [FaissMultiHash(64, hashes=3, bits=21), FaissHash(64, bits=16, flips=2), FaissFlat(64)]
    return next(method for method in made if str(method) == name)


def resident(field: str) -> int:
    """Return the bytes of VmRSS or VmHWM: the present or the highest size of this process in memory."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"/proc/self/status has no {field}")


def settle() -> None:
    """Give unused memory back to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


def _grow(name: str, set_name: str, n_rows: int) -> dict[str, Any]:
    method = _method(name)
    # What the libraries allocate once is allocated before the first measurement.
    warm = recipes(1_000)[set_name].draw(10)
    method.build(warm.codes, np.arange(len(warm.codes)))
    method.search(warm.queries, warm.radius)
    method.build(warm.codes[:0], np.arange(0))
    settle()
    before = resident("VmRSS")

    drawn = recipes(n_rows)[set_name].draw(10)
    ids = np.arange(n_rows)
    settle()
    with_input = resident("VmRSS")
    # Writing 5 resets the highest size to the present one.
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    method.build(drawn.codes, ids)
    method.search(drawn.queries, drawn.radius)
    highest = resident("VmHWM") - with_input
    del drawn, ids
    if isinstance(method, WithIds):
        del method.ids
    settle()
    after = resident("VmRSS")
    result = {"bytes_a_row": (after - before) / n_rows, "highest_bytes_a_row_while_building": highest / n_rows}
    own = getattr(getattr(method, "index", None), "memory", None)
    return {"method": name, "set": set_name, **result, "own_account_bytes_a_row": own / n_rows if own else None}


def main() -> None:
    """Measure one index in this process, and print the result as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=[*METHODS, *PEERS])
    parser.add_argument("set", choices=list(recipes(1)))
    parser.add_argument("rows", type=int)
    arguments = parser.parse_args()
    print(json.dumps(_grow(arguments.method, arguments.set, arguments.rows)))


if __name__ == "__main__":
    main()
