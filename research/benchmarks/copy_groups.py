"""Measure how long groups of copies take among many codes, and the memory that they take with the names of their files.

    python -m research.benchmarks.copy_groups --rows 1000000 --out research/results/copy_groups.json

A tenth of the codes have a copy one bit away; the others are random. Reading pictures is not part of it.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

from hamtarget.copies.grouping import group_around_best
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.query import Work


def main() -> None:
    """Make codes, group them, and write what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bits", type=int, default=64)
    parser.add_argument("--radius", type=int, default=4)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    # Held as `find_copies` holds them: a name for each picture, its code, sizes and digest.
    names = [f"photos/2024/07/holiday by the sea/IMG_{row:07}.jpg" for row in range(options.rows)]
    held = [
        np.zeros((options.rows, 2), dtype=np.uint32),
        np.zeros(options.rows, dtype=np.int64),
        np.zeros((options.rows, 20), dtype=np.uint8),
    ]
    codes = rng.integers(0, 256, (options.rows, options.bits // 8), dtype=np.uint8)
    n_copies = options.rows // 10
    codes[:n_copies] = codes[n_copies : 2 * n_copies]
    codes[:n_copies, 0] ^= 1
    ranks = rng.permutation(options.rows)
    began = time.perf_counter()
    groups = group_around_best(codes, ranks, options.radius, work=Work(threads=options.threads))
    result = {
        "rows": options.rows,
        "bits": options.bits,
        "radius": options.radius,
        "threads": options.threads,
        "groups": len(groups),
        "seconds": round(time.perf_counter() - began, 2),
        "peak_megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000),
        "names": len(names),
        "other_bytes": sum(array.nbytes for array in held),
        **provenance(seed=0),
    }
    print({name: result[name] for name in ("groups", "seconds", "peak_megabytes")})
    if options.out:
        write_json(options.out, result)


if __name__ == "__main__":
    main()
