"""Compare the speed of this checkout with that of another one, in one run.

    python -m research.benchmarks.two_checkouts --other ../before --out research/results/two_checkouts.json

Each checkout needs an installed environment in `.venv`. Both search the same codes, each in processes of its own. The
processes take turns. Every figure is the speed of this checkout divided by that of the other, above 1 is faster: the
median over the rounds with its interval (all rounds but the slowest and the fastest), and the ratio of the fastest
rounds, which says more where the machine has other work. `one_query` has the microseconds of a search for one code in
this checkout: the call of the native core, and what an index and a store add to it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np

from hamtarget.evaluation.provenance import provenance, write_json
from research.benchmarks.search_sets import recipes

SETS = ("L", "S", "H", "128 bits", "256 bits")
N_QUERIES = 10_000
# Runs in an environment of either checkout, so that it may use only what both have: a search with a budget was a verb
# of its own once.
WORKER = """
import json, os, shutil, sys, time
from pathlib import Path
import numpy as np
from hamtarget.search import Embeddings, FlatIndex, Hit, MultiIndex
from hamtarget.store import Store

folder, sets = Path(sys.argv[1]), json.loads(sys.argv[2])
took, one = {}, {}

def best(work, repeats):
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)

def probe_batch(index, logits, budget, radius):
    if hasattr(index, "probe_batch"):
        return index.probe_batch(logits, budget, radius=radius, limit=10)
    from hamtarget import Asked
    return index.search_batch(Asked(logits=logits), radius, budget=budget, limit=10)

def probe(index, logits, budget, radius):
    if hasattr(index, "probe"):
        return index.probe(logits, budget, radius=radius, limit=10)
    from hamtarget import Asked
    return index.search(Asked(logits=logits), radius, budget=budget, limit=10)

def ranked(index, codes, vectors, radius):
    if hasattr(index, "probe_batch"):
        return index.search_batch(codes, radius, rerank=10, embedding=vectors)
    from hamtarget import Asked
    return index.search_batch(Asked(codes, embeddings=vectors), radius, rerank=10)

for name, radius in sets.items():
    codes, queries = np.load(folder / f"{name}-codes.npy"), np.load(folder / f"{name}-queries.npy")
    n_bits, ids = 8 * codes.shape[1], np.arange(len(codes))
    index = MultiIndex(n_bits, radius)
    took[f"{name}: build"] = best(lambda: index.add(ids, codes), 1)
    index.compact()
    took[f"{name}: batch"] = best(lambda: index.search_batch(queries), 40)
    # Queries of H have a thousand hits each.
    some = list(queries[: 100 if name == "H" else 2000])
    took[f"{name}: one at a time"] = best(lambda: [index.search(code) for code in some], 20)
    if name == "L":
        few = some[:200]
        took["L: nearest 100"] = best(lambda: index.nearest_batch(queries[:100], 100), 3)
        took["L: nearest 10, one at a time"] = best(lambda: [index.nearest(code, 10) for code in few], 5)
        took["L: one at a time, limit 5"] = best(lambda: [index.search(code, limit=5) for code in some], 12)
        logits = np.random.default_rng(0).standard_normal((500, n_bits)).astype(np.float32)
        took["L: budget of 2,000 rows"] = best(lambda: probe_batch(index, logits, 2000, n_bits - 1), 3)
        took["L: budget of 2,000 rows, one at a time"] = best(
            lambda: [probe(index, row, 2000, n_bits - 1) for row in logits[:100]], 3)
        allowed = np.sort(np.random.default_rng(1).choice(ids, len(ids) // 10, replace=False))
        mask = np.zeros(len(ids), dtype=bool)
        mask[allowed] = True
        took["L: batch, filter of ids"] = best(lambda: index.search_batch(queries, filter=allowed), 10)
        took["L: batch, filter by a mask"] = best(lambda: index.search_batch(queries, filter=mask), 20)
        took["L: one at a time, filter of ids"] = best(lambda: [index.search(c, filter=allowed) for c in some[:50]], 3)
        took["L: one at a time, filter by a mask"] = best(lambda: [index.search(c, filter=mask) for c in some], 5)
        vectors = np.random.default_rng(2).standard_normal((len(codes), 16)).astype(np.float32)
        with_vectors = MultiIndex(n_bits, radius, embeddings=Embeddings(16))
        with_vectors.add(ids, codes, vectors)
        with_vectors.compact()
        took["L: batch, re-ranked"] = best(lambda: ranked(with_vectors, queries, vectors[: len(queries)], 8), 5)
        flat = FlatIndex(n_bits)
        flat.add(ids, codes)
        took["L: scan"] = best(lambda: flat.search_batch(queries[:100], radius), 5)
        for kind in ("integer", "string"):
            path = folder / f"store-{kind}-{os.getpid()}"
            kept = codes[: len(codes) // 4]
            names = range(len(kept)) if kind == "integer" else [f"item-{number}" for number in range(len(kept))]
            payloads = [{"n": number % 100} for number in range(len(kept))]
            puts = []
            for _ in range(5):
                shutil.rmtree(path, ignore_errors=True)
                with Store.create(path, n_bits=n_bits, radius=radius) as store:
                    puts.append(best(lambda: store.put_rows(names, codes=kept, payloads=payloads), 1))
                    store.compact()
            took[f"store, {kind} ids: put"] = min(puts)
            began = time.perf_counter()
            store = Store.open(path)
            took[f"store, {kind} ids: open"] = time.perf_counter() - began
            for code in some:
                store.search(code=code)
            took[f"store, {kind} ids: one at a time"] = best(lambda: [store.search(code=code) for code in some], 20)
            took[f"store, {kind} ids: batch"] = best(lambda: store.search_batch(codes=queries), 40)
            took[f"store, {kind} ids: batch, filter"] = best(
                lambda: store.search_batch(codes=queries[:500], filter={"n": 7}), 5)
            if hasattr(index, "core") and kind == "integer":
                from hamtarget.answer import Hits
                alone = MultiIndex(n_bits, radius)
                alone.add(np.arange(len(kept)), kept)
                alone.compact()
                core = alone.core
                one["native"] = best(
                    lambda: [core.search_code(c, radius, None, False, Hits, Hit) for c in some], 20) / len(some)
                one["MultiIndex.search"] = best(lambda: [alone.search(c) for c in some], 20) / len(some)
                one["Store.search"] = best(lambda: [store.search(code=c) for c in some], 20) / len(some)
            store.close()
            shutil.rmtree(path)
print(json.dumps([took, one]))
"""


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, required=True, help="root of the other checkout")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of a set")
    parser.add_argument("--rounds", type=int, default=7, help="processes of each checkout (default: %(default)s)")
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
        alone: list[dict[str, float]] = []
        for number in range(arguments.rounds):
            turns = [("this", Path.cwd()), ("other", arguments.other)]
            for which, root in turns if number % 2 else reversed(turns):
                took, one = _measured(root, folder, sets)
                times[which].append(took)
                alone += [one] * (which == "this")
            print(f"round {number + 1} of {arguments.rounds}", flush=True)
    pairs = {
        name: [(this[name], other[name]) for this, other in zip(times["this"], times["other"], strict=True)]
        for name in times["this"][0]
    }
    speeds = {name: sorted(other / this for this, other in found) for name, found in pairs.items()}
    ratios = {name: statistics.median(found) for name, found in speeds.items()}
    intervals = {name: [found[1], found[-2]] if len(found) > 2 else found for name, found in speeds.items()}
    fastest = {name: min(other for _, other in found) / min(this for this, _ in found) for name, found in pairs.items()}
    for name in pairs:
        low, high = intervals[name][0], intervals[name][-1]
        print(f"{name:42} median {ratios[name]:.3f} ({low:.3f} to {high:.3f}), fastest {fastest[name]:.3f}")
    one_query = {name: 1e6 * statistics.median(each[name] for each in alone) for name in alone[0]}
    one_query_ratios = {
        name: statistics.median(each[name] / each["native"] for each in alone) for name in alone[0] if name != "native"
    }
    print(f"one query, microseconds: {one_query}; beside the native call: {one_query_ratios}")
    write_json(
        arguments.out,
        {
            "provenance": provenance(seed=0),
            "other_commit": _commit(arguments.other),
            "setting": {"rows": arguments.rows, "rounds": arguments.rounds, "load_before": load},
            "speed_ratios": ratios,
            "intervals": intervals,
            "ratios_of_the_fastest": fastest,
            "one_query_microseconds": one_query,
            "one_query_ratios": one_query_ratios,
            "median_seconds": {
                which: {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
                for which, rounds in times.items()
            },
        },
    )


def _measured(root: Path, folder: Path, sets: dict[str, int]) -> list[dict[str, float]]:
    command = [str(root.resolve() / ".venv" / "bin" / "python"), "-c", WORKER, str(folder), json.dumps(sets)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
    measured: list[dict[str, float]] = json.loads(done.stdout)
    return measured


def _commit(root: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=root
    ).stdout.strip()


if __name__ == "__main__":
    main()
