"""Compare the service of this checkout with that of another one under the load of `service_load`, in one run.

    python -m research.benchmarks.service_against --other ../before --out research/results/service_against.json

Each checkout needs an installed environment in `.venv`. Both serve a copy of the same store with one process; they are
loaded in turns, by the same clients. A ratio is requests per second of this checkout divided by those of the other,
above 1 is faster: of the medians over the rounds, and of the best rounds, which says more where the machine has other
work. Errors and wrong answers are counted.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.store import Store
from research.benchmarks.service_load import KINDS, MIXED, N_BITS, RADIUS, load
from research.benchmarks.service_process import ServedStore


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="root of the other checkout")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the store (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=64, help="number of clients (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default: %(default)s)")
    parser.add_argument(
        "--seconds", type=float, default=8.0, help="seconds of each kind of load (default: %(default)s)"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    load_before = os.getloadavg()
    sides = {"this": Path.cwd(), "other": arguments.other}
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {side: {} for side in sides}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        codes = np.random.default_rng(0).integers(0, 256, (arguments.rows, N_BITS // 8), dtype=np.uint8)
        with Store.create(folder / "store", n_bits=N_BITS, radius=RADIUS) as store:
            store.put_rows(np.arange(len(codes)), codes=codes)
            store.compact()
        for number in range(arguments.rounds):
            for side in list(sides) if number % 2 else reversed(list(sides)):
                shutil.copytree(folder / "store", folder / "copy")
                with ServedStore(sides[side], folder / "copy") as service:
                    for kind in (*KINDS, MIXED):
                        before = service.cpu_seconds()
                        run = load(service, codes, kind, arguments.clients, arguments.seconds, writes=kind is MIXED)
                        run["cpu_ms_a_request"] = 1000 * (service.cpu_seconds() - before) / max(1, run["requests"])
                        runs[side].setdefault(kind.name, []).append(run)
                shutil.rmtree(folder / "copy")
            print(f"round {number + 1} of {arguments.rounds}", flush=True)
    table = {name: _compared(runs["this"][name], runs["other"][name]) for name in runs["this"]}
    for name, row in table.items():
        print(
            f"{name:22} {row['this']:9,.0f} requests/s, other {row['other']:9,.0f}: ratio {row['ratio']:.2f}, "
            f"best {row['ratio_of_best']:.2f}; CPU {row['cpu_ratio']:.2f}; p99 {row['p99_ms'][0]:.0f} and "
            f"{row['p99_ms'][1]:.0f} ms; errors {row['errors']}, right {row['right']}"
        )
    if arguments.out is not None:
        setting = {"rows": arguments.rows, "clients": arguments.clients, "seconds": arguments.seconds}
        result = {"provenance": provenance(seed=0), "load_before": load_before, "load_after": os.getloadavg()}
        write_json(arguments.out, {**result, "setting": setting, "table": table})


def _compared(these: list[dict[str, Any]], others: list[dict[str, Any]]) -> dict[str, Any]:
    speeds = [[run["requests_per_second"] for run in runs] for runs in (these, others)]
    this, other = (statistics.median(found) for found in speeds)
    return {
        "this": this,
        "other": other,
        "ratio": this / other,
        "ratio_of_best": max(speeds[0]) / max(speeds[1]),
        "cpu_ratio": min(run["cpu_ms_a_request"] for run in these) / min(run["cpu_ms_a_request"] for run in others),
        "p99_ms": [statistics.median(run["latency_ms"]["p99"] for run in runs) for runs in (these, others)],
        "written_items_per_second": [
            statistics.median(run["written_items_per_second"] for run in runs) for runs in (these, others)
        ],
        "errors": [run["errors"] for run in these if run["errors"]],
        "right": all(run["first_hit_right"] for run in these),
    }


if __name__ == "__main__":
    main()
