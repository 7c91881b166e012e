"""Find all pairs within 2 bits in one set of 64-bit codes: by Spark on this machine, by DuckDB, by the native index.

    python -m research.benchmarks.spark_speed

At every size all pairs of all three are compared. Codes are clustered (set L of search_sets.py). Spark reads and writes
Parquet; DuckDB and the native self-join go from arrays to arrays. In the crowded set many rows share one substring; it
is joined once with that bucket cut into tiles, and once with the bucket as a whole.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.codes import Codes, substring_bounds
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.query import Work
from hamtarget.search import pairs_within
from research.benchmarks.search_sets import recipes
from research.benchmarks.spark_cost import Cluster, check, extrapolate, fit, pairs_compared

RADIUS = 2
SIZES = (100_000, 300_000, 1_000_000)
CROWDED_ROWS = 100_000
# Rows of the crowded set that share their first substring.
BUCKET_ROWS = 60_000
TILE_ROWS = 10_000
CORES = 2
# Pairs as single numbers, to compare them: ids below 2^29, distances below 2^6.
Pairs = NDArray[np.int64]


def as_numbers(a: NDArray[np.int64], b: NDArray[np.int64], distance: NDArray[Any]) -> Pairs:
    """Return pairs as sorted numbers."""
    return np.sort(a << 35 | b << 6 | distance.astype(np.int64))


def native(codes: Codes, threads: int) -> tuple[float, Pairs]:
    """Return the seconds from codes to arrays of pairs, building the index included, and the pairs."""
    start = time.perf_counter()
    blocks = list(pairs_within(codes, RADIUS, work=Work(threads=threads)))
    columns = [np.concatenate(column) for column in zip(*blocks, strict=True)]
    return time.perf_counter() - start, as_numbers(*columns)


def by_duckdb(codes: Codes) -> tuple[float, Pairs]:
    """Return the same by DuckDB's equi-join, from an Arrow table to an Arrow table."""
    # Spark, DuckDB and Arrow are installed for this benchmark only, and its help is shown without them.
    import duckdb
    import pyarrow as pa

    rows = pa.table({"id": np.arange(len(codes)), "code": codes.view("<u8").ravel()})
    cut = [(start, (1 << stop - start) - 1) for start, stop in substring_bounds(64, RADIUS + 1)]
    branches = " ".join(f"WHEN {j} THEN (code >> {start}) & {mask}::UBIGINT" for j, (start, mask) in enumerate(cut))
    earlier = " AND ".join(
        f"(a.part <= {j} OR ((xor(a.code, b.code) >> {start}) & {mask}::UBIGINT) <> 0)"
        for j, (start, mask) in enumerate(cut[:-1])
    )
    connection = duckdb.connect()
    connection.execute(f"SET threads = {CORES}")
    connection.register("rows", rows)
    start = time.perf_counter()
    connection.execute(
        f"CREATE TEMP TABLE parts AS SELECT id, code, part, CASE part {branches} END AS substring "
        f"FROM rows, (SELECT unnest(range({len(cut)})) AS part)"
    )
    found = connection.sql(
        "SELECT a.id AS a, b.id AS b, bit_count(xor(a.code, b.code)) AS distance FROM parts a JOIN parts b "
        f"ON a.part = b.part AND a.substring = b.substring AND a.id < b.id "
        f"WHERE bit_count(xor(a.code, b.code)) <= {RADIUS} AND {earlier}"
    ).to_arrow_table()
    took = time.perf_counter() - start
    connection.close()
    return took, _from_arrow(found)


def by_spark(spark: Any, codes: Codes, folder: Path, tile_rows: int | None) -> tuple[dict[str, Any], Pairs]:
    """Return the seconds and the time window of the join from Parquet to Parquet, and the pairs."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from hamtarget.integrations.spark import near_duplicates

    source, target = str(folder / "codes.parquet"), str(folder / "pairs")
    packed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(8), len(codes), [None, pa.py_buffer(codes.tobytes())])
    table = pa.table({"id": np.arange(len(codes)), "code": packed.cast(pa.binary())})
    pq.write_table(table, source, row_group_size=len(codes) // 8)
    begin, start = time.time(), time.perf_counter()
    near_duplicates(spark.read.parquet(source), RADIUS, tile_rows=tile_rows).write.mode("overwrite").parquet(target)
    took = time.perf_counter() - start
    return {"seconds": took, "window": (1e3 * begin, 1e3 * time.time())}, _from_arrow(pq.read_table(target))


def _from_arrow(table: Any) -> Pairs:
    return as_numbers(*(table[name].to_numpy() for name in ("a", "b", "distance")))


def add_tasks(runs: Sequence[dict[str, Any]], folder: Path) -> None:
    """Add to each run what its tasks did, according to Spark's log of events."""
    tasks = []
    for log in (folder / "events").iterdir():
        events = (json.loads(line) for line in log.read_text(encoding="utf-8").splitlines())
        tasks += [event for event in events if event["Event"] == "SparkListenerTaskEnd"]
    for run in runs:
        first, last = run.pop("window")
        own = [task["Task Metrics"] for task in tasks if first <= task["Task Info"]["Finish Time"] <= last]
        run["tasks"] = len(own)
        run["core_seconds"] = sum(task["Executor CPU Time"] for task in own) / 1e9
        run["longest_task_seconds"] = max(task["Executor Run Time"] for task in own) / 1e3
        run["shuffled_rows"] = sum(task["Shuffle Write Metrics"]["Shuffle Records Written"] for task in own)
        run["shuffled_bytes"] = sum(task["Shuffle Write Metrics"]["Shuffle Bytes Written"] for task in own)


def crowded_codes(seed: int) -> Codes:
    """Return light codes, many of which share their first 22 bits."""
    codes = recipes(CROWDED_ROWS)["L"].draw(1).codes
    shared = np.random.default_rng(seed).permutation(CROWDED_ROWS)[:BUCKET_ROWS]
    words = codes.view("<u8").ravel()
    words[shared] &= ~np.uint64((1 << substring_bounds(64, RADIUS + 1)[0][1]) - 1)
    return codes


def same(wanted: Pairs, found: Pairs, who: str) -> None:
    """Check that both hold the same pairs.

    Raises:
        RuntimeError: they differ.
    """
    if not np.array_equal(wanted, found):
        raise RuntimeError(f"the index finds {len(wanted):,} pairs and {who} {len(found):,}, not the same ones")


def measure_others(codes: Codes, wanted: Pairs, repeats: int) -> dict[str, Any]:
    """Measure the index and DuckDB at one size."""
    others: dict[str, Callable[[], tuple[float, Pairs]]] = {
        "native, 1 thread": lambda: native(codes, 1),
        f"native, {CORES} threads": lambda: native(codes, CORES),
        f"DuckDB, {CORES} threads": lambda: by_duckdb(codes),
    }
    times: dict[str, list[float]] = {who: [] for who in others}
    for _ in range(repeats):
        for who, join in others.items():
            took, pairs = join()
            times[who].append(took)
            same(wanted, pairs, who)
    return {
        "rows": len(codes),
        "hits": len(wanted),
        "rows_sent": (RADIUS + 1) * len(codes),
        "pairs": pairs_compared(codes, RADIUS),
        "seconds": {who: statistics.median(took) for who, took in times.items()},
        "seconds_range": {who: [min(took), max(took)] for who, took in times.items()},
        "load_average": os.getloadavg()[0],
    }


def measure_crowded(spark: Any, folder: Path) -> dict[str, Any]:
    """Measure the set with one large bucket, whole and in tiles."""
    codes = crowded_codes(0)
    _, wanted = native(codes, 1)
    result: dict[str, Any] = {
        "rows": len(codes),
        "bucket_rows": BUCKET_ROWS,
        "tile_rows": TILE_ROWS,
        "hits": len(wanted),
        "rows_sent": (RADIUS + 1) * len(codes),
        "pairs": pairs_compared(codes, RADIUS),
    }
    for name, tile_rows in (("whole", None), ("tiles", TILE_ROWS)):
        result[name], pairs = by_spark(spark, codes, folder, tile_rows)
        same(wanted, pairs, f"Spark, {name}")
    result["load_average"] = os.getloadavg()[0]
    return result


def session(folder: Path) -> Any:
    """Start Spark on two cores of this machine."""
    from pyspark.sql import SparkSession

    (folder / "events").mkdir()
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "6g",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "16",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("hamtarget")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs=3,
        default=SIZES,
        help="rows of the light sets; the first two fit the model of the cost",
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="repeats of each join of the light sets; the median counts"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("research/results/spark_speed.json"), help="JSON file for the results"
    )
    arguments = parser.parse_args()

    results: dict[str, Any] = {**provenance(seed=0), "n_bits": 64, "radius": RADIUS, "cores": CORES}
    results["versions"] |= {name: metadata.version(name) for name in ("duckdb", "pyarrow", "pyspark")}
    results["load_average_at_start"] = os.getloadavg()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session(folder)
        # Java compiles and optimises during the first joins of a process; these do not count.
        for _ in range(2):
            by_spark(spark, recipes(arguments.sizes[1])["L"].draw(1).codes, folder, 10_000)
        sets = [recipes(n_rows)["L"].draw(1).codes for n_rows in arguments.sizes]
        found = [native(codes, 1)[1] for codes in sets]
        results["light"] = []
        for codes, wanted in zip(sets, found, strict=True):
            row = measure_others(codes, wanted, arguments.repeats)
            results["light"].append(row)
            times = ", ".join(f"{who} {took:.2f} s" for who, took in row["seconds"].items())
            print(f"{row['rows']:,} rows, {row['hits']:,} pairs: {times}", flush=True)
        # In rounds, so that other work of the machine, and Java's compiler, affect all sizes alike.
        runs: list[list[dict[str, Any]]] = [[] for _ in sets]
        for _ in range(arguments.repeats):
            for codes, wanted, own in zip(sets, found, runs, strict=True):
                run, pairs = by_spark(spark, codes, folder, 10_000)
                same(wanted, pairs, "Spark")
                own.append(run)
        crowded = results["crowded"] = measure_crowded(spark, folder)
        spark.stop()
        add_tasks([*(run for own in runs for run in own), crowded["whole"], crowded["tiles"]], folder)
    for row, own in zip(results["light"], runs, strict=True):
        row["spark"] = {name: statistics.median(run[name] for run in own) for name in own[0]}
        print(f"{row['rows']:,} rows: Spark {row['spark']['seconds']:.1f} s", flush=True)
    for how in ("whole", "tiles"):
        print(
            f"{BUCKET_ROWS:,} rows in one bucket, {how}: {crowded[how]['seconds']:.1f} s, "
            f"longest task {crowded[how]['longest_task_seconds']:.1f} s"
        )
    light = [{**row, **row["spark"]} for row in results["light"]]
    model = fit(light[:2], {**crowded, **crowded["whole"]})
    results["model"] = {
        **vars(model),
        "checks": [check(model, run) for run in light],
        "extrapolated": [extrapolate(model, Cluster(), n_rows=10**9, n_bits=64, radius=radius) for radius in (1, 2)],
    }
    last = results["model"]["checks"][-1]
    print(f"model at {last['rows']:,} rows: {last['core_seconds_ratio']:.2f} times the core seconds measured")
    results["load_average_at_end"] = os.getloadavg()
    write_json(arguments.out, results)
    print(f"wrote {arguments.out.name}")


if __name__ == "__main__":
    main()
