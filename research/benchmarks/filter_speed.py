"""Time batches with filters that allow nothing, few rows, half or all of them, beside the same batch without a filter.

    python -m research.benchmarks.filter_speed --out research/results/filter_speed.json

Every batch runs in a process of its own, so that its peak of memory is known. The radius is the largest: every row is a
candidate, and what a filter refuses costs most. `--python` names the interpreter of another checkout.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from hamtarget.evaluation.provenance import provenance, write_json

SIZES = ((100_000, 1_000), (300_000, 8_192))
SHARES = {"no filter": None, "none": 0.0, "one row": None, "1 in 1,000": 0.001, "half": 0.5, "all": 1.0}
FORMS = ("ids", "mask")
WORKER = """
import json, resource, sys, time
import numpy as np
from hamtarget.search import MultiIndex

n_rows, n_queries, name, share, form = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
codes = rng.integers(0, 256, (n_rows, 8), dtype=np.uint8)
queries = rng.integers(0, 256, (n_queries, 8), dtype=np.uint8)
index = MultiIndex(64, radius=2)
index.add(np.arange(n_rows), codes)
index.compact()
mask = rng.random(n_rows) < (share or 0)
if name == "one row":
    mask[n_rows // 2] = True
filter = None if name == "no filter" else mask if form == "mask" else np.flatnonzero(mask)
index.search_batch(queries[:10], 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.perf_counter()
hits = index.search_batch(queries, 63, limit=1, filter=filter)
took = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps({"seconds": took, "peak_mib": peak / 1024, "hits": len(hits.rows)}))
"""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="interpreter that searches (default: this one)")
    parser.add_argument("--timeout", type=float, default=300.0, help="most seconds of a batch (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("research/results/filter_speed.json"), help="JSON file")
    arguments = parser.parse_args()
    results: dict[str, Any] = {}
    for n_rows, n_queries in SIZES:
        for name, share in SHARES.items():
            for form in FORMS[:1] if name == "no filter" else FORMS:
                case = f"{n_queries:,} codes, {n_rows:,} rows, {name}, {form}"
                found = _measured(arguments.python, [n_rows, n_queries, name, share, form], arguments.timeout)
                results[case] = found
                print(f"{case:50} {found['seconds']:8.3f} s, {found['peak_mib']:6.1f} MiB more", flush=True)
    write_json(
        arguments.out,
        {
            "provenance": provenance(seed=0),
            "of_another_checkout": arguments.python != sys.executable,
            "batches": results,
        },
    )


def _measured(python: str, case: list[Any], timeout: float) -> dict[str, float]:
    command = [python, "-c", WORKER, json.dumps(case)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return {"seconds": float("inf"), "peak_mib": float("nan"), "hits": -1}
    found: dict[str, float] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    main()
