"""Measure small requests: one code each, from 64 clients that stay connected, of this checkout and of another one.

    python -m research.benchmarks.service_small --other ../before --workers 2 --out research/results/service_small.json

The clients are wrk (Debian's package `wrk`), one thread of C, on the same cores as the service. Both checkouts need an
installed environment in `.venv`; they are measured in turns, each in a process of its own on a copy of the same store.
The time of the processors is measured beside the requests per second: it says more where the machine has other work.
Before each turn, answers are compared with an index in this process; with several workers, it is measured how long
after its answer a change is seen through every one of 16 connections.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.search import MultiIndex
from hamtarget.store import Store
from research.benchmarks.service_process import ServedStore

N_BITS = 64
RADIUS = 2
LIMIT = 10
SCRIPT = Path(__file__).with_suffix(".lua")
_CHECKED = 200
_CONNECTIONS = 16
_CHANGES = 20
_UNITS = {"us": 0.001, "ms": 1.0, "s": 1000.0}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="root of the other checkout, served by one process")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the store (default: %(default)s)")
    parser.add_argument("--clients", type=int, default=64, help="number of clients (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="processes of this checkout (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=10, help="seconds of a turn (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("wrk is not installed; on Debian: apt-get install wrk")
    load = os.getloadavg()
    sides: dict[str, tuple[Path, list[str]]] = {"this, 1 process": (Path.cwd(), [])}
    if arguments.workers > 1:
        sides[f"this, {arguments.workers} processes"] = (Path.cwd(), ["--workers", str(arguments.workers)])
    if arguments.other is not None:
        sides["other, 1 process"] = (arguments.other, [])
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        codes = np.random.default_rng(0).integers(0, 256, (arguments.rows, N_BITS // 8), dtype=np.uint8)
        with Store.create(folder / "store", n_bits=N_BITS, radius=RADIUS) as store:
            store.put_rows(np.arange(len(codes)), codes=codes)
            store.compact()
        index = MultiIndex(N_BITS, RADIUS)
        index.add(np.arange(len(codes)), codes)
        queries = _queries(codes)
        (folder / "bodies").write_text("\n".join(_body(query) for query in queries))
        for number in range(arguments.rounds):
            for side in list(sides) if number % 2 else reversed(list(sides)):
                root, options = sides[side]
                shutil.copytree(folder / "store", folder / "copy")
                with ServedStore(root, folder / "copy", options) as service:
                    found = _measure(service, folder / "bodies", arguments.clients, arguments.seconds)
                    found["exact"] = _is_exact(service, index, queries[:_CHECKED])
                    if options:
                        found["slowest_change_ms"] = _slowest_change(service)
                found["exit_code"] = service.exit_code
                shutil.rmtree(folder / "copy")
                turns[side].append(found)
                print(f"{side:20}", json.dumps(found), flush=True)
    medians = {
        side: {
            name: statistics.median(turn[name] for turn in found)
            for name in ("requests_per_second", "cpu_ms_a_request", "p50_ms", "p99_ms")
        }
        for side, found in turns.items()
    }
    for side, median in medians.items():
        print(f"{side:20}", ", ".join(f"{name} {value:,.2f}" for name, value in median.items()))
    if arguments.out is not None:
        setting = {"rows": arguments.rows, "clients": arguments.clients, "seconds": arguments.seconds, "radius": RADIUS}
        result = {"provenance": provenance(seed=0), "load_before": load, "load_after": os.getloadavg()}
        write_json(arguments.out, {**result, "setting": setting, "medians": medians, "turns": turns})


def _queries(codes: Codes) -> Codes:
    """Return stored codes with one bit changed."""
    queries: Codes = codes[np.random.default_rng(2).integers(0, len(codes), 4096)].copy()
    queries[:, 0] ^= 1
    return queries


def _body(code: Codes) -> str:
    return json.dumps({"code": code.tobytes().hex(), "payload": False, "radius": RADIUS, "limit": LIMIT})


def _measure(service: ServedStore, bodies: Path, clients: int, seconds: int) -> dict[str, Any]:
    """Let wrk ask for some seconds; return its figures and the time of the service's processors."""
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--latency", "-s", str(SCRIPT)]
    command += [service.address, "--", str(bodies), service.token]
    before = service.cpu_seconds()
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    spent = service.cpu_seconds() - before
    n_requests = int(re.findall(r"(\d+) requests in", told)[0])
    refused = re.findall(r"Non-2xx or 3xx responses: (\d+)", told)
    broken = re.findall(r"Socket errors: (.*)", told)
    shares = {share: float(number) * _UNITS[unit] for share, number, unit in re.findall(_LATENCY, told)}
    return {
        "requests_per_second": float(re.findall(r"Requests/sec:\s+([\d.]+)", told)[0]),
        "cpu_ms_a_request": 1000 * spent / n_requests,
        "p50_ms": shares["50"],
        "p99_ms": shares["99"],
        "requests": n_requests,
        "refused": int(refused[0]) if refused else 0,
        "socket_errors": broken[0] if broken else "",
    }


_LATENCY = r"\s(50|99)%\s+([\d.]+)(us|ms|s)\b"


def _is_exact(service: ServedStore, index: MultiIndex, queries: Codes) -> bool:
    """Return True if the answers are those of an index in this process."""
    with closing(service.connect()) as connection:
        for query in queries:
            hits = _ask(service, connection, "POST", "/v1/search", json.loads(_body(query)))["hits"]
            expected = index.search(query, RADIUS, limit=LIMIT)
            if [(hit["id"], hit["distance"]) for hit in hits] != [(hit.id, hit.distance) for hit in expected]:
                return False
    return True


def _slowest_change(service: ServedStore) -> float:
    """Return after how many milliseconds a change was seen through every one of several connections, at worst."""
    connections = [service.connect() for _ in range(_CONNECTIONS)]
    slowest = 0.0
    generator = np.random.default_rng(5)
    for number in range(_CHANGES):
        code = generator.bytes(N_BITS // 8).hex()
        item = {"id": f"change {number}", "code": code}
        _ask(service, connections[number % _CONNECTIONS], "PUT", "/v1/items", {"items": [item]})
        answered = time.perf_counter()
        for connection in connections:
            asked = {"code": code, "radius": 0, "payload": False}
            while not _ask(service, connection, "POST", "/v1/search", asked)["hits"]:
                pass
        slowest = max(slowest, time.perf_counter() - answered)
    for connection in connections:
        connection.close()
    return 1000 * slowest


def _ask(service: ServedStore, connection: http.client.HTTPConnection, method: str, path: str, asked: object) -> Any:
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {service.token}"}
    connection.request(method, path, json.dumps(asked), headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{method} {path}: {answer.status} {content[:300]!r}")
    return json.loads(content)


if __name__ == "__main__":
    main()
