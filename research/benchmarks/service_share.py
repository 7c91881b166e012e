"""Measure small searches of one client beside 120 heavy ones of another, of this checkout and of another one.

    python -m research.benchmarks.service_share --other ../before --out research/results/service_share.json

Both checkouts need an installed environment in `.venv`; each serves the same store with one process, and they are
measured in turns. The small searches come one after another over one connection, first alone, then while 120
connections of another client ask for heavy searches, each again as soon as it is answered. Latencies are without the
time that the client itself waited for a core. Beside them, this measures how long the thread of the event loop ran and
how long it waited for a core, for each small search: that says where a delay comes from. It needs Linux.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack, closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from hamtarget.codes import Codes
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.serve.access.tokens import TokenEntry, editing_tokens, new_token
from hamtarget.store import Store
from research.benchmarks.service_process import ServedStore

N_BITS = 64
RADIUS = 2
_CONNECTIONS = 120
_SETTLE_SECONDS = 1.0
_PAUSE_SECONDS = 0.002


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--other", type=Path, help="root of the other checkout")
    parser.add_argument("--rows", type=int, default=200_000, help="rows of the store (default: %(default)s)")
    parser.add_argument("--searches", type=int, default=150, help="small searches of a turn (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    load = os.getloadavg()
    sides = {"this": Path.cwd()} | ({} if arguments.other is None else {"other": arguments.other})
    codes = np.random.default_rng(0).integers(0, 256, (arguments.rows, N_BITS // 8), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        with Store.create(folder / "store", n_bits=N_BITS, radius=RADIUS) as store:
            store.put_rows(np.arange(len(codes)), codes=codes)
            store.compact()
        small, heavy = new_token(), new_token()
        with editing_tokens(folder / "tokens.json") as entries:
            entries += [TokenEntry.of("small", "read", small), TokenEntry.of("heavy", "read", heavy)]
        options = ["--tokens", str(folder / "tokens.json")]
        served = {
            side: stack.enter_context(ServedStore(root, folder / "store", options, writable=False))
            for side, root in sides.items()
        }
        for service in served.values():
            _small_searches(service, small, codes, arguments.searches)
        table: dict[str, dict[str, Any]] = {}
        for kind, (path, body) in _heavy(codes).items():
            turns: dict[str, list[dict[str, dict[str, float]]]] = {side: [] for side in sides}
            for number in range(arguments.rounds):
                for side in list(sides) if number % 2 else reversed(list(sides)):
                    alone = _small_searches(served[side], small, codes, arguments.searches)
                    with _Load(served[side].address, heavy, path, body):
                        beside = _small_searches(served[side], small, codes, arguments.searches)
                    turns[side].append({"alone": alone, "beside": beside})
            table[kind] = {side: _medians(found) for side, found in turns.items()}
            for side, row in table[kind].items():
                print(f"{kind:16} {side:6}", json.dumps(row), flush=True)
    if arguments.out is not None:
        setting = {"rows": arguments.rows, "rounds": arguments.rounds, "searches": arguments.searches}
        result = {"provenance": provenance(seed=0), "load_before": load, "load_after": os.getloadavg()}
        write_json(arguments.out, {**result, "setting": setting, "table": table})


def _heavy(codes: Codes) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the endpoints and bodies of heavy searches."""
    queries = np.random.default_rng(1).integers(0, 256, (8192, N_BITS // 8), dtype=np.uint8)

    def packed(n_queries: int) -> dict[str, Any]:
        return {"codes_base64": base64.b64encode(queries[:n_queries].tobytes()).decode()}

    return {
        # As the small ones, but for many codes.
        "large batches": ("/v1/search/batch", {**packed(8192), "radius": RADIUS, "limit": 10, "arrays": "base64"}),
        "nearest": ("/v1/nearest/batch", {**packed(256), "k": 10, "arrays": "base64"}),
        # Their answers are large lists, which only the interpreter can write.
        "many hits": ("/v1/search/batch", {**packed(1000), "radius": 22, "limit": 100}),
    }


def _small_searches(service: ServedStore, token: str, codes: Codes, n_searches: int) -> dict[str, float]:
    """Ask for some codes, one after another; return times in milliseconds."""
    pid, own = service.processes()[0], os.getpid()
    took = []
    with closing(service.connect()) as connection:
        ran, waited = _scheduled(pid)
        for row in range(n_searches):
            code = codes[row].tobytes().hex()
            own_waited = _scheduled(own)[1]
            began = time.perf_counter()
            answer = _ask(connection, token, "/v1/search", {"code": code, "radius": RADIUS, "limit": 10})
            took.append(1000 * (time.perf_counter() - began) - (_scheduled(own)[1] - own_waited))
            if json.loads(answer)["hits"][0]["id"] != row:
                raise RuntimeError("a small search got a wrong answer")
            time.sleep(_PAUSE_SECONDS)
        ran_after, waited_after = _scheduled(pid)
    return {
        "p50": statistics.median(took),
        "mean": statistics.fmean(took),
        "loop_ran": (ran_after - ran) / n_searches,
        "loop_waited_for_a_core": (waited_after - waited) / n_searches,
    }


def _scheduled(pid: int) -> tuple[float, float]:
    """Return the milliseconds that the first thread of a process has run, and has waited for a core."""
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()
    return int(ran) / 1e6, int(waited) / 1e6


def _medians(turns: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    row: dict[str, Any] = {
        when: {name: round(statistics.median(turn[when][name] for turn in turns), 3) for name in turns[0][when]}
        for when in ("alone", "beside")
    }
    for name in ("p50", "mean"):
        row[f"{name}_ratio"] = round(statistics.median(turn["beside"][name] / turn["alone"][name] for turn in turns), 2)
    return row


class _Load:
    """Clients in a process of their own that ask for heavy searches while the block runs."""

    def __init__(self, address: str, token: str, path: str, body: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_ask_again, args=(theirs, address, token, path, body))

    def __enter__(self) -> None:
        self._process.start()
        self._ours.recv()
        time.sleep(_SETTLE_SECONDS)

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        # What was under way is given up by the service.
        time.sleep(_SETTLE_SECONDS / 2)


def _ask_again(told: Connection, address: str, token: str, path: str, body: dict[str, Any]) -> None:
    parts = urlsplit(address)

    def ask() -> None:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=120)
        while True:
            _ask(connection, token, path, body)

    threads = [threading.Thread(target=ask) for _ in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    told.send("started")
    for thread in threads:
        thread.join()


def _ask(connection: http.client.HTTPConnection, token: str, path: str, body: dict[str, Any]) -> bytes:
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{path} was answered with {answer.status}: {content[:200]!r}")
    return content


if __name__ == "__main__":
    main()
