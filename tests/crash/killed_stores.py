"""Changes a store again and again, and is killed while it does: `python killed_stores.py PLACE KILLS SEED`.

PLACE is a folder, or the address of a store in PostgreSQL.

Each round forks a process that opens the store and makes one change after another: puts, deletes, transactions,
compactions, reopenings. It tells a pipe when it begins a change and when the change has been acknowledged, and is
killed at a random moment. Every change follows from its number, so that this process, which keeps the record, knows
what the store must hold: all that was acknowledged, and at most the one change that was under way, whole or not at
all. Every row is compared, and `verify` must find nothing. Prints the number of kills in which a change was under way,
of those that were found done nevertheless, of kills during opening, and of changes that were acknowledged.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

from hamtarget.store import Item, Store
from hamtarget.store.sqlite import engine

# So that the index is saved in the middle of puts, too.
engine._UNSAVED_ROWS = 400
N_BITS = 64
BEGUN, DONE, OPENED = b"b", b"d", b"o"


def any_id(rng):
    number = rng.randrange(600)
    return number if number < 300 else f"name {number}"


def rows_of(rng, most):
    return [
        (any_id(rng), rng.randbytes(N_BITS // 8), {"n": rng.randrange(1000), "text": "x" * rng.choice([1, 50, 3000])})
        for _ in range(rng.randrange(1, most))
    ]


def change(number, seed):
    """What change `number` does: its kind and the rows and ids that it works on."""
    rng = random.Random(1_000_003 * seed + number)
    kind = rng.choices(["put", "delete", "transaction", "compact", "reopen"], [50, 20, 20, 6, 4])[0]
    rows = rows_of(rng, rng.choice([4, 200]))
    gone = [any_id(rng) for _ in range(rng.randrange(1, rng.choice([4, 100])))]
    return kind, rows, gone


def expect(items, number, seed):
    """What a store that held `items` holds after change `number`."""
    kind, rows, gone = change(number, seed)
    result = dict(items)
    if kind in ("put", "transaction"):
        result.update({id: (code, json.dumps(payload)) for id, code, payload in rows})
    if kind in ("delete", "transaction"):
        for id in gone:
            result.pop(id, None)
    return result


def make(store, number, seed):
    """The store after change `number` was made to it."""
    kind, rows, gone = change(number, seed)
    items = [Item(id, code=np.frombuffer(code, np.uint8), payload=payload) for id, code, payload in rows]
    if kind == "put":
        store.put(items)
    elif kind == "delete":
        store.delete(gone)
    elif kind == "compact":
        store.compact()
    elif kind == "reopen":
        store.close()
        return Store.open(store.path)
    else:
        with store.transaction():
            store.put(items)
            store.delete(gone)
    return store


def work(path, first, seed, report):
    store = Store.open(path)
    os.write(report, OPENED)
    number = first
    while True:
        os.write(report, BEGUN)
        store = make(store, number, seed)
        os.write(report, DONE)
        number += 1


def wait_for_server(path):
    """Nothing; the server has noticed that its client is dead, and has ended what that had begun."""
    if isinstance(path, Path):
        return
    import psycopg

    with psycopg.connect(path.partition("&store=")[0], autocommit=True) as connection:
        others = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'hamtarget'"
        while connection.execute(others).fetchone()[0]:
            time.sleep(0.01)


def check(path, candidates, rng):
    """Which of the candidates the store holds: all rows are compared, and a search for each of some codes."""
    with Store.open(path, read_only=rng.random() < 0.5) as store:
        found = {item.id: (np.asarray(item.code).tobytes(), json.dumps(item.payload)) for item in store.scan()}
        matching = [place for place, items in enumerate(candidates) if items == found]
        assert matching, f"{len(found)} items; none of the states that may be: {[len(items) for items in candidates]}"
        report = store.verify()
        assert report.ok, report.problems
        for id in rng.sample(sorted(found, key=str), min(10, len(found))):
            assert id in [hit.id for hit in store.search(code=np.frombuffer(found[id][0], np.uint8), radius=0)]
    return matching[-1]


def main():
    path, kills, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    path = path if "://" in path else Path(path) / "store"
    rng = random.Random(seed)
    Store.create(path, n_bits=N_BITS, radius=2).close()
    items, number = {}, 0
    under_way = found_done = while_opening = 0
    for _ in range(kills):
        progress, report = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(progress)
                work(path, number, seed, report)
            finally:
                os._exit(1)
        os.close(report)
        told = b""
        if rng.random() < 0.8:
            # So many changes begin first, however slow the machine is: else nothing would be there to be lost.
            wanted = rng.randrange(1, 6)
            while told.count(BEGUN) < wanted and (piece := os.read(progress, 1)):
                told += piece
            time.sleep(rng.uniform(0, 0.03))
        else:
            time.sleep(rng.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the changing process failed by itself"
        while piece := os.read(progress, 65536):
            told += piece
        os.close(progress)
        while_opening += OPENED not in told
        for _ in range(told.count(DONE)):
            items = expect(items, number, seed)
            number += 1
        candidates = [items]
        if told.endswith(BEGUN):
            under_way += 1
            candidates.append(expect(items, number, seed))
        wait_for_server(path)
        place = check(path, candidates, rng)
        if place == 1:
            found_done += 1
            items = candidates[1]
            number += 1
    sys.stdout.write(f"{under_way} {found_done} {while_opening} {number}")


if __name__ == "__main__":
    main()
