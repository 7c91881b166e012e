"""Load a service for long with everything that it does, and check that its memory stays flat and nothing fails.

    python -m research.benchmarks.service_soak --seconds 3600 --workers 2

Clients search for one code and for many, ask for neighbours, read items, put, delete, connect anew, go away in the
middle of an answer, and send what is refused. Memory is what all processes hold for themselves (private pages). The
first half of the time is not judged: caches fill. It ends with code 1 if memory grew by more than 1%, if an answer
was a failure of the service (5xx, except 503: come again), or if a hit was wrong.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import os
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.store import Store
from research.benchmarks.service_process import ServedStore

N_BITS = 64
RADIUS = 2
_ROWS = 200_000
_CLIENTS = 8
_LOOK_SECONDS = 1.0
_MOST_GROWTH = 0.01


def main() -> None:
    """Load, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3600.0, help="time of the load (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="processes of the service (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    codes = np.random.default_rng(0).integers(0, 256, (_ROWS, N_BITS // 8), dtype=np.uint8)
    memory: list[int] = []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "store"
        with Store.create(path, n_bits=N_BITS, radius=RADIUS, durability="os") as store:
            store.put_rows(np.arange(_ROWS), codes=codes, payloads=[{"n": row % 100} for row in range(_ROWS)])
            store.compact()
        options = ["--workers", str(arguments.workers)] if arguments.workers > 1 else []
        with ServedStore(Path.cwd(), path, options) as service:
            until = time.monotonic() + arguments.seconds
            clients = [_Client(service, number, codes, until) for number in range(_CLIENTS)]
            for client in clients:
                client.start()
            while time.monotonic() < until:
                time.sleep(_LOOK_SECONDS)
                memory.append(service.private_bytes())
            for client in clients:
                client.join()
        with Store.open(path) as store:
            report = store.verify()
    statuses: Counter[int] = Counter()
    for client in clients:
        statuses += client.statuses
    wrong = [each for client in clients for each in client.wrong]
    judged = memory[len(memory) // 2 :]
    tenth = max(1, len(judged) // 10)
    growth = float(np.median(judged[-tenth:]) / np.median(judged[:tenth])) - 1
    failures = sum(count for status, count in statuses.items() if status >= 500 and status != 503)
    good = growth <= _MOST_GROWTH and not failures and not wrong and report.ok and service.exit_code == 0
    result = {
        "seconds": arguments.seconds,
        "workers": arguments.workers,
        "requests": sum(statuses.values()),
        "statuses": {str(status): count for status, count in sorted(statuses.items())},
        "memory_growth": growth,
        "private_mb": [round(each / 1e6, 1) for each in memory[:: max(1, len(memory) // 20)]],
        "wrong": wrong[:5],
        "store_is_whole": report.ok,
        "exit_code": service.exit_code,
        "good": good,
    }
    print(json.dumps(result, indent=1))
    if arguments.out is not None:
        write_json(arguments.out, {"provenance": provenance(seed=0), "load": os.getloadavg(), **result})
    raise SystemExit(0 if good else 1)


class _Client(threading.Thread):
    """A client that does by turns whatever clients do."""

    def __init__(self, service: ServedStore, number: int, codes: np.ndarray, until: float) -> None:
        super().__init__(name=f"client {number}")
        self.statuses: Counter[int] = Counter()
        self.wrong: list[str] = []
        self._service = service
        self._number = number
        self._codes = codes
        self._until = until
        self._generator = np.random.default_rng(number)
        self._connection = service.connect()

    def run(self) -> None:
        """Ask until the time is over."""
        turns = (self._search, self._batch, self._nearest, self._item, self._write, self._leave, self._be_odd)
        weights = np.array([40, 10, 5, 20, 10, 1, 3], dtype=float)
        while time.monotonic() < self._until:
            turn = turns[int(self._generator.choice(len(turns), p=weights / weights.sum()))]
            try:
                turn()
            except (OSError, http.client.HTTPException) as error:
                self.wrong.append(f"{turn.__name__}: {error!r}")
                self._connect()
        self._connection.close()

    def _connect(self) -> None:
        self._connection.close()
        self._connection = self._service.connect()

    def _ask(self, method: str, path: str, asked: object = None) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._service.token}"}
        self._connection.request(method, path, None if asked is None else json.dumps(asked), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        self.statuses[answer.status] += 1
        return answer.status, content

    def _row(self) -> int:
        return int(self._generator.integers(len(self._codes)))

    def _search(self) -> None:
        row = self._row()
        asked = {"code": self._codes[row].tobytes().hex(), "radius": RADIUS}
        status, content = self._ask("POST", "/v1/search", asked)
        if status == 200 and row not in [hit["id"] for hit in json.loads(content)["hits"]]:
            self.wrong.append(f"{row} was not found")

    def _batch(self) -> None:
        rows = self._generator.integers(0, len(self._codes), 256)
        packed = base64.b64encode(self._codes[rows].tobytes()).decode()
        self._ask("POST", "/v1/search/batch", {"codes_base64": packed, "radius": 1, "arrays": "base64"})

    def _nearest(self) -> None:
        self._ask("POST", "/v1/nearest", {"id": self._row(), "k": 5})

    def _item(self) -> None:
        row = self._row()
        status, content = self._ask("GET", f"/v1/items/{row}?kind=integer")
        if status == 200 and json.loads(content)["payload"] != {"n": row % 100}:
            self.wrong.append(f"{row} has another payload")

    def _write(self) -> None:
        # The same ids again and again: the store does not grow.
        id = f"{self._number}-{int(self._generator.integers(50))}"
        code = self._generator.bytes(N_BITS // 8).hex()
        status, _ = self._ask("PUT", "/v1/items", {"items": [{"id": id, "code": code, "payload": {"by": id}}]})
        if status != 200:
            return
        status, content = self._ask("POST", "/v1/search", {"code": code, "radius": 0})
        if status == 200 and id not in [hit["id"] for hit in json.loads(content)["hits"]]:
            self.wrong.append(f"{id} was put and is not found")
        if self._generator.random() < 0.3:
            self._ask("DELETE", f"/v1/items/{id}")

    def _leave(self) -> None:
        self._connection.request("GET", "/v1/stats", headers={"Authorization": f"Bearer {self._service.token}"})
        self._connect()

    def _be_odd(self) -> None:
        odd: list[object] = [{"code": "zz"}, {"code": "00"}, {"radius": -1}, {"code": "00" * 8, "limit": 10**9}, []]
        for asked in odd:
            self._ask("POST", "/v1/search", asked)


if __name__ == "__main__":
    main()
