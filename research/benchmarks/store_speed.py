"""Time puts, openings and searches of a store, beside the bare index: `python -m research.benchmarks.store_speed`.

The store has its default durability: every batch is forced to disk before the put returns. Searches through the store
and through a bare `MultiIndex` of the same codes are compared first, and then timed in turns.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search import Answer, MultiIndex
from hamtarget.store import Store
from research.benchmarks.search_sets import recipes
from research.benchmarks.search_timing import in_turns, seconds

N_QUERIES = 10_000
# Queries of one turn of single searches.
N_SINGLE = 2_000
BATCHES = (50_000, 1_000)
# Rows on which a small batch size is measured, and the number of single puts.
SMALL_ROWS = 100_000
N_PUTS = 500
RADIUS = 2

Codes = NDArray[np.uint8]


def ids_of(kind: str, n_rows: int) -> Any:
    """Return the ids 0, 1, 2, ..., or names of about the length of a file name."""
    return np.arange(n_rows) if kind == "integers" else [f"picture-{number:08}.jpg" for number in range(n_rows)]


def payloads_of(n_rows: int) -> list[dict[str, Any]]:
    """Return a payload of three fields for each row, about 60 bytes of JSON."""
    return [{"image": f"{row % 100}/{row}.jpg", "label": row % 100, "score": row / 7} for row in range(n_rows)]


def fill(path: Path, ids: Any, codes: Codes, payloads: Sequence[Any], batch: int) -> dict[str, Any]:
    """Put all rows into a new store, which stays at `path`, and return the rows per second, all puts included."""
    shutil.rmtree(path, ignore_errors=True)
    with Store.create(path, n_bits=64, radius=RADIUS) as store:
        start, cpu = time.perf_counter(), time.process_time()
        for first in range(0, len(codes), batch):
            rows = slice(first, first + batch)
            store.put_rows(ids[rows], codes=codes[rows], payloads=payloads[rows])
        took, worked = time.perf_counter() - start, time.process_time() - cpu
    return {
        "batch": batch,
        "rows": len(codes),
        "rows_per_second": len(codes) / took,
        "seconds": took,
        "cpu_seconds": worked,
        "load_average": os.getloadavg()[0],
    }


def median_seconds(call: Callable[[], object], repeats: int) -> float:
    """Return the median of some times of a call."""
    return statistics.median(seconds(call) for _ in range(repeats))


def openings(path: Path, codes: Codes, repeats: int) -> dict[str, float]:
    """Return the seconds to open a store: with the saved index, with changes after it, and without it."""
    found = {
        "writer": median_seconds(lambda: Store.open(path).close(), repeats),
        "reader": median_seconds(lambda: Store.open(path, read_only=True).close(), repeats),
    }
    crashed = path.with_name("crashed")
    shutil.rmtree(crashed, ignore_errors=True)
    with Store.open(path) as store:
        n_changed = min(10_000, len(codes) // 10)
        store.put_rows(np.arange(n_changed), codes=codes[:n_changed])
        # The state after a crash: the changes are on disk, but an index with them is not.
        shutil.copytree(path, crashed)
    found["reader after a crash, 10,000 rows to replay"] = median_seconds(
        lambda: Store.open(crashed, read_only=True).close(), repeats
    )
    for file in crashed.glob("index-*.ham"):
        file.unlink()
    found["reader without the index file, all rows read"] = median_seconds(
        lambda: Store.open(crashed, read_only=True).close(), 1
    )
    shutil.rmtree(crashed)
    return found


def check(hits: Answer, found: Any, ids: Any) -> None:
    """Check that the store finds what the index finds.

    Raises:
        RuntimeError: they find different rows.
    """
    expected = ids[hits.ids] if isinstance(ids, np.ndarray) else np.array(ids, dtype=object)[hits.ids]
    if not (np.array_equal(hits.offsets, found.offsets) and np.array_equal(expected, found.ids)):
        raise RuntimeError("the store and the index find different rows; nothing was timed")


def searches(path: Path, ids: Any, codes: Codes, queries: Codes, repeats: int) -> dict[str, Any]:
    """Return the microseconds per query of the bare index and of the store, as a writer and as a reader, in turns."""
    index = MultiIndex(64, RADIUS)
    index.add(np.arange(len(codes)), codes)
    single = list(queries[:N_SINGLE])
    with Store.open(path) as writer, Store.open(path, read_only=True) as reader:
        hits = index.search_batch(queries)
        # This also reads names from disk into memory.
        check(hits, writer.search_batch(codes=queries), ids)
        check(hits, reader.search_batch(codes=queries), ids)
        batch: dict[str, Callable[[], object]] = {
            "index": lambda: index.search_batch(queries),
            "store": lambda: writer.search_batch(codes=queries),
            "store, reader": lambda: reader.search_batch(codes=queries),
            "store, all ids read": lambda: writer.search_batch(codes=queries).ids,
        }

        def one_by_one(search: Callable[..., object], *, by_name: bool) -> Callable[[], object]:
            def positional() -> None:
                for query in single:
                    search(query)

            def named() -> None:
                for query in single:
                    search(code=query)

            return named if by_name else positional

        alone = {
            "index": one_by_one(index.search, by_name=False),
            "store": one_by_one(writer.search, by_name=True),
            "store, reader": one_by_one(reader.search, by_name=True),
        }
        result: dict[str, Any] = {"hits_a_query": len(hits.ids) / len(queries)}
        for name, calls, n_queries in (("batch", batch, len(queries)), ("single", alone, N_SINGLE)):
            medians = {who: statistics.median(took) for who, took in in_turns(calls, repeats).items()}
            result[name] = {
                "queries": n_queries,
                "microseconds_a_query": {who: 1e6 * took / n_queries for who, took in medians.items()},
                "times_the_index": {who: took / medians["index"] for who, took in medians.items()},
                "load_average": os.getloadavg()[0],
            }
    return result


def single_puts(path: Path, codes: Codes) -> dict[str, float]:
    """Return the milliseconds of puts of one item each, every one of them forced to disk."""
    shutil.rmtree(path, ignore_errors=True)
    with Store.create(path, n_bits=64, radius=RADIUS) as store:
        times = []
        for number in range(N_PUTS):
            start = time.perf_counter()
            store.put_rows([number], codes=codes[number : number + 1])
            times.append(1e3 * (time.perf_counter() - start))
    shutil.rmtree(path)
    return {"median": statistics.median(times), "99 of 100": float(np.quantile(times, 0.99))}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the set (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=15, help="number of timings; the median counts (default: %(default)s)"
    )
    parser.add_argument("--folder", type=Path, help="folder for the stores, on a disk; by default a temporary folder")
    parser.add_argument(
        "--out", type=Path, default=Path("research/results/store_speed.json"), help="JSON file for the results"
    )
    arguments = parser.parse_args()

    code_set = recipes(arguments.rows)["L"].draw(N_QUERIES)
    codes, queries = code_set.codes, code_set.queries
    payloads = payloads_of(len(codes))
    results: dict[str, Any] = {
        **provenance(seed=0),
        "rows": len(codes),
        "n_bits": 64,
        "radius": RADIUS,
        "load_average_at_start": os.getloadavg(),
    }
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        path = Path(folder) / "store"
        results["put_one_milliseconds"] = single_puts(path, codes)
        print(f"one put: {results['put_one_milliseconds']['median']:.2f} ms")
        for kind in ("integers", "names"):
            ids = ids_of(kind, len(codes))
            measured: dict[str, Any] = {"ingest": []}
            for batch in reversed(BATCHES):
                n_rows = len(codes) if batch == max(BATCHES) else min(SMALL_ROWS, len(codes))
                row = fill(path, ids[:n_rows], codes[:n_rows], payloads[:n_rows], batch)
                measured["ingest"].append(row)
                print(
                    f"{kind}: {row['rows_per_second']:,.0f} rows/s in batches of {batch:,}; {row['cpu_seconds']:.1f} s"
                )
            measured["disk_bytes_a_row"] = sum(file.stat().st_size for file in path.iterdir()) / len(codes)
            measured["search"] = searches(path, ids, codes, queries, arguments.repeats)
            for how in ("batch", "single"):
                times = measured["search"][how]["times_the_index"]
                shares = ", ".join(f"{who} {share:.2f}" for who, share in times.items())
                print(f"{kind}: {how} search, times the index: {shares}")
            if kind == "integers":
                measured["open_seconds"] = openings(path, codes, 5)
                for name, took in measured["open_seconds"].items():
                    print(f"open, {name}: {took:.3f} s")
            results[kind] = measured
    results["load_average_at_end"] = os.getloadavg()
    write_json(arguments.out, results)
    print(f"wrote {arguments.out.name}")


if __name__ == "__main__":
    main()
