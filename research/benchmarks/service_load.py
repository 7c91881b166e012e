"""Measure a service on loopback under 64 clients that search and write, beside the same index in this process.

    python -m research.benchmarks.service_load --out research/results/service_load.json

The service runs in a process of its own, and the clients in another. All of them share the machine's cores. The index
alone is measured while nothing else runs. The queries are codes, so no encoder is measured.
"""

from __future__ import annotations

import argparse
import base64
import json
import multiprocessing
import os
import socket
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.query import Work
from hamtarget.search import MultiIndex
from hamtarget.store import Store
from research.benchmarks.service_process import ServedStore

N_BITS = 64
RADIUS = 2
LIMIT = 10
SEED = 0
# In the mixed run, one of this many requests of a client writes.
WRITE_EVERY = 20
WRITTEN_ITEMS = 100
_FIRST_WRITTEN = 10_000_000


@dataclass(frozen=True)
class Kind:
    """Requests of one kind: search or nearest, and how many codes at a time."""

    name: str
    batch: int
    nearest: bool = False


KINDS = (
    Kind("search, 1 code", 1),
    Kind("search, 64 codes", 64),
    Kind("search, 1,024 codes", 1024),
    Kind("search, 4,096 codes", 4096),
    Kind("nearest, 1 code", 1, nearest=True),
    Kind("nearest, 64 codes", 64, nearest=True),
)
MIXED = Kind("mixed", 4096)


def main() -> None:
    """Build, serve, load, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the results")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the set (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=64, help="number of clients (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds of the mixed run (default: 60)")
    parser.add_argument("--short-seconds", type=float, default=8.0, help="seconds of each other run (default: 8)")
    parser.add_argument("options", nargs="*", help="further options of hamtarget serve, after --")
    arguments = parser.parse_args()
    codes = _random_codes(np.random.default_rng(SEED), arguments.rows)
    load_before = os.getloadavg()
    index = MultiIndex(N_BITS, RADIUS)
    index.add(np.arange(len(codes)), codes)
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        with Store.create(path, n_bits=N_BITS, radius=RADIUS) as store:
            store.put_rows(np.arange(len(codes)), codes=codes)
            store.compact()
        index.compact()
        with ServedStore(Path.cwd(), path, arguments.options) as service:
            for kind in KINDS:
                # Measured before and after, because the machine may be busier at one time than at another.
                alone = [in_process(index, codes, kind, arguments.short_seconds / 4)]
                run = load(service, codes, kind, arguments.clients, arguments.short_seconds, writes=False)
                alone.append(in_process(index, codes, kind, arguments.short_seconds / 4))
                runs.append({**run, **_against(run, alone)})
                print(_line(runs[-1]))
            alone = [in_process(index, codes, MIXED, arguments.short_seconds / 4)]
            written = [in_process(index, codes, MIXED, arguments.short_seconds / 2, writes=True)]
            mixed = load(service, codes, MIXED, arguments.clients, arguments.seconds, writes=True)
            written.append(in_process(index, codes, MIXED, arguments.short_seconds / 2, writes=True))
            alone.append(in_process(index, codes, MIXED, arguments.short_seconds / 4))
            # New rows lie in small pieces until they are merged, which also slows down the index alone.
            mixed |= _against(mixed, written) | {"index_queries_per_second_without_writes": alone}
            print(_line(mixed), f"{mixed['written_items_per_second']:,.0f} items/s written")
            counted = _counted(service)
        exit_code = service.exit_code
    result = {
        "provenance": provenance(seed=SEED),
        "load_average_before": load_before,
        "niceness": os.nice(0),
        "load_average_after": os.getloadavg(),
        "setting": {
            "rows": arguments.rows,
            "n_bits": N_BITS,
            "radius": RADIUS,
            "limit_or_k": LIMIT,
            "clients": arguments.clients,
            "options": arguments.options,
            "durability": "full",
            "write_every": WRITE_EVERY,
            "written_items_a_request": WRITTEN_ITEMS,
        },
        "runs": runs,
        "mixed": mixed,
        "metrics_after": counted,
        "exit_code": exit_code,
        # Aimed at before the first run.
        "targets": {
            "no_5xx": all(run["errors"] == {} for run in [*runs, mixed]),
            "memory_growth_below_2_percent": mixed["memory_growth_second_half"] < 0.02,
            "mixed_at_least_half_of_the_index": mixed["share_of_index"] >= 0.5,
        },
    }
    write_json(arguments.out, result)
    print("targets met:", result["targets"], "load average:", result["load_average_after"])


def in_process(index: MultiIndex, codes: Codes, kind: Kind, seconds: float, *, writes: bool = False) -> float:
    """Return the queries per second of the index in this process and thread, in batches of this size.

    With writes, some rows are replaced between batches, as the clients of the mixed run do, but in memory only.
    """
    queries = _queries(codes, 1)
    generator = np.random.default_rng(3)
    ids = _FIRST_WRITTEN + np.arange(64 * WRITTEN_ITEMS)
    if writes:
        index.add(ids, _random_codes(generator, len(ids)))
    done = turn = 0
    began = time.perf_counter()
    while (took := time.perf_counter() - began) < seconds:
        turn += 1
        if writes and turn % WRITE_EVERY == 0:
            first = turn // WRITE_EVERY % 64 * WRITTEN_ITEMS
            index.replace(ids[first : first + WRITTEN_ITEMS], _random_codes(generator, WRITTEN_ITEMS))
            continue
        start = done % (len(queries) - kind.batch + 1)
        batch = queries[start : start + kind.batch]
        if kind.nearest:
            hits = index.nearest_batch(batch, LIMIT, work=Work(costs=True))
        else:
            hits = index.search_batch(batch, limit=LIMIT, work=Work(costs=True))
        done += len(hits)
    if writes:
        index.delete(ids)
        index.compact()
    return done / took


def _random_codes(generator: np.random.Generator, rows: int) -> Codes:
    return generator.integers(0, 256, (rows, N_BITS // 8), dtype=np.uint8)


def load(
    service: ServedStore, codes: Codes, kind: Kind, n_clients: int, seconds: float, *, writes: bool
) -> dict[str, Any]:
    """Let clients ask for some seconds, each again as soon as it is answered, and return the figures."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    arguments = (theirs, service.address, _bodies(codes, kind), kind.nearest, n_clients, seconds, writes)
    process = multiprocessing.get_context("spawn").Process(target=_clients, args=arguments)
    process.start()
    memory: list[int] = []
    while not ours.poll(0.25):
        memory.append(service.resident_bytes())
        if not process.is_alive():
            raise RuntimeError("the clients ended without a result")
    told = ours.recv()
    process.join()
    latencies = np.sort(np.array(told["latencies"]))
    half = len(memory) // 2
    return {
        "name": kind.name,
        "batch": kind.batch,
        "seconds": told["seconds"],
        "requests": len(latencies),
        "requests_per_second": len(latencies) / told["seconds"],
        "queries_per_second": told["searches"] * kind.batch / told["seconds"],
        "written_items_per_second": told["writes"] * WRITTEN_ITEMS / told["seconds"],
        "latency_ms": {
            f"p{share}": 1000 * float(latencies[min(len(latencies) - 1, int(share / 100 * len(latencies)))])
            for share in (50, 90, 99)
        },
        "errors": told["errors"],
        "first_hit_right": told["right"],
        "memory_mb": {"first": memory[0] / 1e6, "half": memory[half] / 1e6, "last": memory[-1] / 1e6},
        "memory_growth_second_half": _growth(memory[half:]),
    }


def _growth(memory: list[int]) -> float:
    """Return by how much the last fifth of the samples exceeds the first."""
    fifth = max(1, len(memory) // 5)
    return float(np.median(memory[-fifth:]) / np.median(memory[:fifth])) - 1


def _against(run: dict[str, Any], alone: list[float]) -> dict[str, Any]:
    index = sum(alone) / len(alone)
    return {"index_queries_per_second": alone, "share_of_index": run["queries_per_second"] / index}


def _line(run: dict[str, Any]) -> str:
    return (
        f"{run['name']:22} {run['requests_per_second']:8,.0f} requests/s {run['queries_per_second']:11,.0f} queries/s "
        f"{run['share_of_index']:6.1%} of the index, p50 {run['latency_ms']['p50']:.1f} ms, "
        f"p99 {run['latency_ms']['p99']:.1f} ms, errors {run['errors']}"
    )


def _queries(codes: Codes, seed: int) -> Codes:
    """Return stored codes with one bit changed: each is found, at distance 1."""
    generator = np.random.default_rng(seed)
    queries = codes[generator.integers(0, len(codes), 16_384)].copy()
    queries[:, 0] ^= 1
    return queries


def _bodies(codes: Codes, kind: Kind) -> list[bytes]:
    """Return the bodies of some requests, made beforehand, so that the clients mostly wait."""
    queries = _queries(codes, 2)
    bodies = []
    for start in range(0, len(queries) - kind.batch + 1, max(kind.batch, 64)):
        batch = queries[start : start + kind.batch]
        how = {"k": LIMIT} if kind.nearest else {"radius": RADIUS, "limit": LIMIT}
        if kind.batch == 1:
            asked = {"code": batch.tobytes().hex(), "payload": False, **how}
        else:
            asked = {"codes_base64": base64.b64encode(batch.tobytes()).decode(), "arrays": "base64", **how}
        bodies.append(json.dumps(asked).encode())
    return bodies


def _clients(
    told: Connection, address: str, bodies: list[bytes], nearest: bool, n_clients: int, seconds: float, writes: bool
) -> None:
    """Run all clients, a thread for each, in a process of their own."""
    batched = b"codes_base64" in bodies[0]
    path = f"/v1/{'nearest' if nearest else 'search'}{'/batch' if batched else ''}"
    clients = [_LoadClient(address, number, bodies, path, writes) for number in range(n_clients)]
    began = time.perf_counter()
    threads = [Thread(target=client.run, args=(began + seconds,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    errors: dict[str, int] = {}
    for client in clients:
        for status, count in client.errors.items():
            errors[status] = errors.get(status, 0) + count
    told.send(
        {
            "seconds": time.perf_counter() - began,
            "latencies": [latency for client in clients for latency in client.latencies],
            "searches": sum(client.searches for client in clients),
            "writes": sum(client.writes for client in clients),
            "errors": errors,
            "right": all(client.right for client in clients),
        }
    )


class _LoadClient:
    """A client that asks repeatedly over one connection. For speed, it reads only the status and the length."""

    def __init__(self, address: str, number: int, bodies: list[bytes], path: str, writes: bool) -> None:
        parts = urlsplit(address)
        self._to = (parts.hostname or "", parts.port or 80)
        self._number = number
        self._requests = [_request("POST", path, body) for body in bodies]
        self._writes_wanted = writes
        self._generator = np.random.default_rng(1000 + number)
        self.latencies: list[float] = []
        self.searches = 0
        self.writes = 0
        self.errors: dict[str, int] = {}
        self.right = True

    def run(self, until: float) -> None:
        with socket.create_connection(self._to) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            turn = self._number
            while (began := time.perf_counter()) < until:
                turn += 1
                writes = self._writes_wanted and turn % WRITE_EVERY == 0
                connection.sendall(self._write() if writes else self._requests[turn % len(self._requests)])
                status, body = _answer(connection)
                self.latencies.append(time.perf_counter() - began)
                if status != b"200":
                    self.errors[status.decode()] = self.errors.get(status.decode(), 0) + 1
                elif writes:
                    self.writes += 1
                else:
                    self.searches += 1
                    # Every query is a stored code with one bit changed.
                    self.right = self.right and (b'"distance":1' in body or b'"distances":"AQ' in body)

    def _write(self) -> bytes:
        # The same ids every time, so that the store does not grow and its memory can be judged.
        first = _FIRST_WRITTEN + self._number * WRITTEN_ITEMS
        items = [
            {"id": first + number, "code": self._generator.bytes(N_BITS // 8).hex(), "payload": {"n": number}}
            for number in range(WRITTEN_ITEMS)
        ]
        return _request("PUT", "/v1/items", json.dumps({"items": items}).encode())


def _request(method: str, path: str, body: bytes) -> bytes:
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {ServedStore.token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


def _answer(connection: socket.socket) -> tuple[bytes, bytes]:
    received = connection.recv(262_144)
    while b"\r\n\r\n" not in received:
        received += connection.recv(262_144)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    parts = [body]
    missing = length - len(body)
    while missing > 0:
        parts.append(connection.recv(262_144))
        missing -= len(parts[-1])
    return head[9:12], b"".join(parts)


def _counted(service: ServedStore) -> dict[str, float]:
    """Return what the service itself counted of its batches."""
    with closing(service.connect()) as connection:
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {service.token}"})
        text = connection.getresponse().read().decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    wanted = ("hamtarget_batch_rows_count", "hamtarget_batch_rows_sum", "hamtarget_work_seconds_total")
    return {name: float(value) for name, value in lines if name.startswith(wanted)}


if __name__ == "__main__":
    main()
