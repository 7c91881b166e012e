"""A store in PostgreSQL whose client or whose server is killed at any moment holds all that was acknowledged.

HAMTARGET_POSTGRES_KILLS sets how often each; 50 in `make soak`.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from hamtarget.errors import ServerError
from hamtarget.store import Store

HERE = Path(__file__).parent
KILLS = int(os.environ.get("HAMTARGET_POSTGRES_KILLS", "2"))
# A client starts more quickly than a server.
CLIENT_KILLS = max(15, KILLS)


@pytest.mark.slow
def test_a_killed_client_loses_nothing_and_leaves_nothing_half_done(postgres_stores):
    command = [sys.executable, str(HERE / "killed_stores.py"), postgres_stores.place(), str(CLIENT_KILLS), "6"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    under_way, _, _, n_changes = map(int, done.stdout.split())
    # Else nothing was interrupted, and the test shows nothing.
    assert under_way > CLIENT_KILLS / 4
    assert n_changes > CLIENT_KILLS


class Writer(threading.Thread):
    """Makes one change after another until the server is gone; `number` is that of the change that failed."""

    def __init__(self, store, number, seed):
        super().__init__()
        self.store, self.number, self.seed = store, number, seed
        self.failure = None

    def run(self):
        from killed_stores import change, make

        while self.failure is None:
            try:
                if change(self.number, self.seed)[0] != "reopen":
                    make(self.store, self.number, self.seed)
            except ServerError as error:
                self.failure = error
            else:
                self.number += 1


@pytest.mark.slow
def test_a_killed_server_loses_nothing_and_the_store_goes_on(postgres_server):
    from killed_stores import N_BITS, expect

    from research.benchmarks.postgres_server import Server

    seed = 9
    rng = random.Random(seed)
    items, number, found_done = {}, 0, 0
    with (
        Server(postgres_server.programs, settings={"shared_buffers": "64MB"}) as server,
        Store.create(server.url(store="killed"), n_bits=N_BITS, radius=2) as store,
    ):
        for _ in range(KILLS):
            writer = Writer(store, number, seed)
            writer.start()
            time.sleep(rng.uniform(0.05, 0.5))
            server.kill()
            writer.join(60)
            assert not writer.is_alive()
            with pytest.raises(ServerError):
                store.get([1])
            with pytest.raises(ServerError):
                store.search(code=np.zeros(N_BITS // 8, dtype=np.uint8))
            server.start()
            for done in range(number, writer.number):
                items = expect(items, done, seed)
            number = writer.number
            candidates = [items, expect(items, number, seed)]
            # The same store, whose connections are all broken.
            found = {item.id: (np.asarray(item.code).tobytes(), json.dumps(item.payload)) for item in store.scan()}
            assert found in candidates, f"{len(found)} items, expected {[len(state) for state in candidates]}"
            assert len(store) == len(found)
            if found == candidates[1]:
                items, number, found_done = candidates[1], number + 1, found_done + (found != candidates[0])
            report = store.verify()
            assert report.ok, report.problems
        assert number > KILLS
        assert found_done <= KILLS
