"""Compare the speed of this checkout with that of another one, in one run.

    python -m research.benchmarks.two_checkouts --other ../before --out research/results/two_checkouts.json

Each checkout needs an installed environment in `.venv`. Both search the same codes, each in processes of its own. The
processes take turns. Every figure is the time of this checkout divided by that of the other, below 1 is faster: the
median over the rounds, and the ratio of the fastest rounds, which says more where the machine has other work.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.evaluation.provenance import provenance, write_json
from research.benchmarks.search_sets import recipes

SETS = ("L", "S", "H", "128 bits", "256 bits")
N_QUERIES = 10_000
# Runs in an environment of either checkout, so that it may use only what both have: batches had the name of single
# queries once.
WORKER = """
import json, os, shutil, sys, time
from pathlib import Path
import numpy as np
from hamtarget.search import FlatIndex, MultiIndex
from hamtarget.store import Store

folder, sets = Path(sys.argv[1]), json.loads(sys.argv[2])
took = {}

def best(work, repeats):
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)

def many(searched, name):
    return getattr(searched, name + "_batch", getattr(searched, name))

for name, radius in sets.items():
    codes, queries = np.load(folder / f"{name}-codes.npy"), np.load(folder / f"{name}-queries.npy")
    n_bits, ids = 8 * codes.shape[1], np.arange(len(codes))
    index = MultiIndex(n_bits, radius)
    took[f"{name}: build"] = best(lambda: index.add(ids, codes), 1)
    index.compact()
    took[f"{name}: batch"] = best(lambda: many(index, "search")(queries), 40)
    # Queries of H have a thousand hits each.
    some = list(queries[: 100 if name == "H" else 2000])
    took[f"{name}: one at a time"] = best(lambda: [index.search(code) for code in some], 12)
    if name == "L":
        took["L: nearest 100"] = best(lambda: many(index, "nearest")(queries[:100], 100), 3)
        logits = np.random.default_rng(0).standard_normal((500, n_bits)).astype(np.float32)
        took["L: probe 2,000 rows"] = best(lambda: many(index, "probe")(logits, 2000, radius=n_bits - 1, limit=10), 3)
        flat = FlatIndex(n_bits)
        flat.add(ids, codes)
        took["L: scan"] = best(lambda: many(flat, "search")(queries[:100], radius), 5)
        for kind in ("integer", "string"):
            path = folder / f"store-{kind}-{os.getpid()}"
            kept = codes[: len(codes) // 4]
            names = range(len(kept)) if kind == "integer" else [f"item-{number}" for number in range(len(kept))]
            keyword = "codes" if hasattr(Store, "search_batch") else "code"
            with Store.create(path, n_bits=n_bits, radius=radius) as store:
                took[f"store, {kind} ids: put"] = best(lambda: store.put_rows(names, codes=kept), 1)
                store.compact()
            began = time.perf_counter()
            store = Store.open(path)
            took[f"store, {kind} ids: open"] = time.perf_counter() - began
            for code in some:
                store.search(code=code)
            took[f"store, {kind} ids: one at a time"] = best(lambda: [store.search(code=code) for code in some], 12)
            took[f"store, {kind} ids: batch"] = best(lambda: many(store, "search")(**{keyword: queries}), 40)
            store.close()
            shutil.rmtree(path)
print(json.dumps(took))
"""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="root of the other checkout")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a set")
    parser.add_argument("--rounds", type=int, default=5, help="processes of each checkout (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("research/results/two_checkouts.json"), help="JSON file")
    arguments = parser.parse_args()
    load = os.getloadavg()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sets = {}
        for set_name, recipe in recipes(arguments.rows).items():
            if set_name in SETS:
                drawn = recipe.draw(N_QUERIES)
                np.save(folder / f"{set_name}-codes.npy", drawn.codes)
                np.save(folder / f"{set_name}-queries.npy", drawn.queries)
                sets[set_name] = drawn.radius
        times: dict[str, list[dict[str, float]]] = {"this": [], "other": []}
        for number in range(arguments.rounds):
            turns = [("this", Path.cwd()), ("other", arguments.other)]
            for which, root in turns if number % 2 else reversed(turns):
                times[which].append(_measured(root, folder, sets))
            print(f"round {number + 1} of {arguments.rounds}", flush=True)
    pairs = {
        name: [(this[name], other[name]) for this, other in zip(times["this"], times["other"], strict=True)]
        for name in times["this"][0]
    }
    ratios = {name: statistics.median(this / other for this, other in found) for name, found in pairs.items()}
    fastest = {name: min(this for this, _ in found) / min(other for _, other in found) for name, found in pairs.items()}
    for name in pairs:
        print(f"{name:36} median {ratios[name]:.3f}, fastest {fastest[name]:.3f}")
    write_json(
        arguments.out,
        {
            "provenance": provenance(seed=0),
            "other_commit": _commit(arguments.other),
            "setting": {"rows": arguments.rows, "rounds": arguments.rounds, "load_before": load},
            "median_ratios": ratios,
            "ratios_of_the_fastest": fastest,
            "median_seconds": {
                which: {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
                for which, rounds in times.items()
            },
        },
    )


def _measured(root: Path, folder: Path, sets: dict[str, int]) -> dict[str, float]:
    command = [str(root.resolve() / ".venv" / "bin" / "python"), "-c", WORKER, str(folder), json.dumps(sets)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    took: dict[str, Any] = json.loads(done.stdout)
    return took


def _commit(root: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=root
    ).stdout.strip()


if __name__ == "__main__":
    main()
