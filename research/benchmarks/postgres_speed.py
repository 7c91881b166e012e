"""Time a store in PostgreSQL, beside HNSW of pgvector: `python -m research.benchmarks.postgres_speed`.

A private server is started, and both methods work on one table over one connection. Before anything is timed, the
store's answers are compared with those of a `MultiIndex`. HNSW has no radius, so it is asked for as many neighbours as
a query has hits on average: once with its default setting, and once with the setting at which it finds nearly all of
them, as the store does.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
from numpy.typing import NDArray

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search import Answer, MultiIndex
from hamtarget.store import Mirror, Store
from hamtarget.store.postgres.rows import bit_strings
from research.benchmarks.postgres_server import Server, binaries, has_extension
from research.benchmarks.search_sets import recipes
from research.benchmarks.search_timing import in_turns

N_QUERIES = 10_000
BATCH = 1_000
# Queries of one turn in which they are asked one at a time.
N_SINGLE = 500
N_HNSW = 100
HNSW_DEFAULT = 40
HNSW_THOROUGH = (60, 80, 100, 150, 200, 300, 400, 600, 800, 1000)
NEARLY_ALL = 0.999
ROWS_A_PUT = 100_000
RADIUS = 2
SCHEMA = "speed"
_SETTINGS = {
    "shared_buffers": "1GB",
    "maintenance_work_mem": "1GB",
    "max_wal_size": "8GB",
    "max_parallel_maintenance_workers": "2",
    "autovacuum": "off",
}

Connection = psycopg.Connection[tuple[Any, ...]]


def seconds_of(connection: Connection, *statements: str) -> float:
    """Return the seconds that statements take."""
    start = time.perf_counter()
    for statement in statements:
        connection.execute(statement)
    return time.perf_counter() - start


def fill(store: Store, codes: NDArray[np.uint8]) -> float:
    """Put all rows by COPY, with all indexes in place, and return the rows per second."""
    start = time.perf_counter()
    for first in range(0, len(codes), ROWS_A_PUT):
        here = slice(first, first + ROWS_A_PUT)
        store.put_rows(np.arange(len(codes))[here], codes=codes[here])
    return len(codes) / (time.perf_counter() - start)


def build_trees(connection: Connection, substrings: int) -> float:
    """Build the B-trees of the substrings anew, and return the seconds."""
    for number in range(substrings):
        connection.execute(f"DROP INDEX items_by_substring_{number}")
    statements = [
        f"CREATE INDEX items_by_substring_{number} ON items (substring_{number}, code, row)"
        for number in range(substrings)
    ]
    return seconds_of(connection, *statements)


def nearest_by_hnsw(connection: Connection, query: str, k: int) -> list[int]:
    """Return the rows that HNSW finds as the nearest."""
    found = connection.execute(
        f"SELECT row FROM items ORDER BY code <~> %s::bit({len(query)}) LIMIT {k}", [query], prepare=True
    )
    return [row for (row,) in found]


def batch_by_hnsw(connection: Connection, queries: list[str], k: int) -> list[tuple[Any, ...]]:
    """Return the same for many queries in one statement."""
    n_bits = len(queries[0])
    sql = f"""
        SELECT q.n, h.row FROM unnest(%s::bit({n_bits})[]) WITH ORDINALITY AS q(code, n) CROSS JOIN LATERAL
        (SELECT row FROM items ORDER BY code <~> q.code LIMIT {k}) h
    """
    return connection.execute(sql, ["{" + ",".join(queries) + "}"], prepare=True).fetchall()


def hnsw_call(connection: Connection, ef_search: int, queries: list[str], k: int, *, one: bool) -> Callable[[], object]:
    """Return a call that asks all queries with this setting, one after another or in one statement."""

    def ask() -> None:
        connection.execute(f"SET hnsw.ef_search = {ef_search}")
        if one:
            for query in queries:
                nearest_by_hnsw(connection, query, k)
        else:
            batch_by_hnsw(connection, queries, k)

    return ask


def one_by_one(search: Callable[[Any], object], queries: Any) -> Callable[[], object]:
    """Return a call that asks all queries, one after another."""

    def ask() -> None:
        for query in queries:
            search(query)

    return ask


def check(expected: Answer, found: Answer) -> Answer:
    """Return the expected hits if they equal what was found.

    Raises:
        RuntimeError: they differ.
    """
    same = np.array_equal(expected.offsets, found.offsets) and np.array_equal(expected.ids, found.ids)
    if not same or not np.array_equal(expected.distances, found.distances):
        raise RuntimeError("PostgreSQL and the index find different rows; nothing was timed")
    return expected


def measure(server: Server, rows: int, repeats: int) -> dict[str, Any]:
    """Measure everything and return it, ready for JSON."""
    code_set = recipes(rows)["L"].draw(N_QUERIES)
    codes, queries = code_set.codes, code_set.queries
    index = MultiIndex(64, RADIUS)
    index.add(np.arange(rows), codes)
    address = server.url(store=SCHEMA)
    result: dict[str, Any] = {}
    with (
        Store.create(address, n_bits=64, radius=RADIUS) as store,
        psycopg.connect(server.url(), autocommit=True) as other,
    ):
        other.execute(f"SET search_path = {SCHEMA}, public")
        result["put_rows_per_second"] = fill(store, codes)
        print(f"put: {result['put_rows_per_second']:,.0f} rows/s", flush=True)
        result["btree_build_seconds"] = build_trees(other, RADIUS + 1)
        store.compact()
        print(f"B-trees: {result['btree_build_seconds']:.1f} s", flush=True)
        hits = check(index.search_batch(queries[:BATCH]), store.search_batch(codes=queries[:BATCH]))
        result["hits_a_query"] = len(hits.ids) / BATCH
        k = max(1, round(result["hits_a_query"]))
        start = time.perf_counter()
        mirror = Mirror(address)
        result["mirror_read_seconds"] = time.perf_counter() - start
        check(index.search_batch(queries[:BATCH]), mirror.search_batch(queries[:BATCH]))
        single = list(queries[:N_SINGLE])
        calls: dict[str, tuple[int, Callable[[], object]]] = {
            "batch": (BATCH, lambda: store.search_batch(codes=queries[:BATCH])),
            "one at a time": (N_SINGLE, one_by_one(lambda query: store.search(code=query), single)),
            # An upper bound for this machine: a statement that looks nothing up.
            "SELECT 1": (N_SINGLE, one_by_one(lambda _: other.execute("SELECT 1", prepare=True).fetchall(), single)),
            "mirror, one at a time": (N_SINGLE, one_by_one(mirror.search, single)),
        }
        result["btree_bytes"] = store.stats().index_bytes
        result["searches_per_second"] = rates(calls, repeats)
        result["load_average"] = os.getloadavg()
        print(result["searches_per_second"], flush=True)
        if has_extension(server.programs, "vector"):
            other.execute("CREATE EXTENSION vector SCHEMA public")
            result["hnsw_build_seconds"] = seconds_of(
                other, "CREATE INDEX items_hnsw ON items USING hnsw (code public.bit_hamming_ops)"
            )
            (result["hnsw_bytes"],) = other.execute("SELECT pg_relation_size('items_hnsw')").fetchall()[0]
            print(f"HNSW: {result['hnsw_build_seconds']:.1f} s", flush=True)
            other.execute("SET enable_seqscan = off")
            texts = bit_strings(queries[:N_HNSW])

            def recall_at(ef_search: int) -> float:
                other.execute(f"SET hnsw.ef_search = {ef_search}")
                return recall(index, queries[:N_HNSW], codes, [nearest_by_hnsw(other, text, k) for text in texts], k)

            recalls = {HNSW_DEFAULT: recall_at(HNSW_DEFAULT)}
            for ef_search in HNSW_THOROUGH:
                recalls[ef_search] = recall_at(ef_search)
                if recalls[ef_search] >= NEARLY_ALL:
                    break
            result["hnsw_recalls"] = recalls
            print(f"HNSW's recall by ef_search: {recalls}", flush=True)
            for name, setting in (("hnsw", HNSW_DEFAULT), ("thorough hnsw", max(recalls))):
                calls[f"{name}, one at a time"] = (N_HNSW, hnsw_call(other, setting, texts, k, one=True))
                calls[f"{name}, batch"] = (N_HNSW, hnsw_call(other, setting, texts, k, one=False))
            result["searches_per_second_beside_hnsw"] = rates(calls, repeats)
            result["load_average_beside_hnsw"] = os.getloadavg()
            print(result["searches_per_second_beside_hnsw"], flush=True)
            told = result["searches_per_second_beside_hnsw"]
            result["times_hnsw"] = {
                f"{name}, {way}": told[way] / told[f"{name}, {way}"]
                for name in ("hnsw", "thorough hnsw")
                for way in ("one at a time", "batch")
            }
            result["times_hnsw"]["build"] = result["hnsw_build_seconds"] / result["btree_build_seconds"]
        mirror.close()
    return result


def recall(
    index: MultiIndex, queries: NDArray[np.uint8], codes: NDArray[np.uint8], found: list[list[int]], k: int
) -> float:
    """Return the share of the k places of each query that hold a row no farther than the true k-th one."""
    nearest = index.nearest_batch(queries, k)
    right = 0
    for query, rows, last in zip(queries, found, nearest.offsets[1:].tolist(), strict=True):
        distances = np.bitwise_count(codes[rows] ^ query).sum(axis=1)
        right += int((distances <= nearest.distances[last - 1]).sum())
    return right / (k * len(queries))


def rates(calls: dict[str, tuple[int, Callable[[], object]]], repeats: int) -> dict[str, float]:
    """Return the queries per second of each call, timed in turns, by the median."""
    for _, call in calls.values():
        call()
    times = in_turns({name: call for name, (_, call) in calls.items()}, repeats)
    return {name: calls[name][0] / statistics.median(took) for name, took in times.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the set (default: %(default)s)")
    parser.add_argument(
        "--repeats", type=int, default=7, help="number of timings; the median counts (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("research/results/postgres_speed.json"), help="JSON file for the results"
    )
    arguments = parser.parse_args()
    programs = [folder for folder in binaries() if has_extension(folder, "vector")] or binaries()
    with Server(programs[0], settings=_SETTINGS) as server:
        with psycopg.connect(server.url()) as connection:
            (version,) = connection.execute("SHOW server_version").fetchall()[0]
        results = {
            **provenance(seed=0),
            "postgresql": version,
            "settings": _SETTINGS,
            "rows": arguments.rows,
            "n_bits": 64,
            "radius": RADIUS,
            "load_average_at_start": os.getloadavg(),
            **measure(server, arguments.rows, arguments.repeats),
        }
    write_json(arguments.out, results)
    print(f"wrote {arguments.out.name}")


if __name__ == "__main__":
    main()
