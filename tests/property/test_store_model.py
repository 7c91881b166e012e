"""A store against a dictionary: random operations, reopenings and readers, and never another answer.

HAMTARGET_OPERATIONS sets their number, HAMTARGET_POSTGRES_OPERATIONS that for PostgreSQL; `make soak` runs a million.
"""

import json
import os

import numpy as np
import pytest

from hamtarget.codes import distances
from hamtarget.store import Item, Mirror, Range

OPERATIONS = int(os.environ.get("HAMTARGET_OPERATIONS", "20000"))
POSTGRES_OPERATIONS = int(os.environ.get("HAMTARGET_POSTGRES_OPERATIONS", "3000"))
N_BITS = 32
IDS = [*range(-150, 150), *(f"{number}" for number in range(300)), *(2**63 - 1 - number for number in range(100))]
# Few bytes differ, so that many codes are near each other.
CODES = np.random.default_rng(1).integers(0, 256, (400, 4), dtype=np.uint8) & np.array([255, 3, 1, 7], dtype=np.uint8)


class Model:
    """What a store should hold, and how it should answer: a dictionary and loops."""

    def __init__(self):
        self.items = {}
        self.n_names = 0

    def put(self, id, code, payload):
        if isinstance(id, int) and id < 2**62:
            place = (0, id)
        elif id in self.items:
            place = self.items[id][0]
        else:
            place = (1, self.n_names)
            self.n_names += 1
        self.items[id] = (place, code.tobytes(), json.dumps(payload))

    def delete(self, ids):
        return sum(self.items.pop(id, None) is not None for id in ids)

    def ranked(self, query, filter=None):
        """(id, distance) of all items that pass, nearest first."""
        ordered = sorted(
            (place, id, code) for id, (place, code, payload) in self.items.items() if passes(payload, filter)
        )
        if not ordered:
            return []
        codes = np.frombuffer(b"".join(code for _, _, code in ordered), dtype=np.uint8).reshape(-1, 4)
        found = distances(query[None], codes, N_BITS)[0]
        return [(ordered[place][1], int(found[place])) for place in np.argsort(found, kind="stable")]


def passes(payload, filter):
    if filter is None:
        return True
    found = json.loads(payload)
    if found is None:
        return False
    if isinstance(filter["n"], Range):
        return filter["n"].min <= found["n"] <= filter["n"].max
    return found["n"] == filter["n"]


class Run:
    """One store, a reader of it, and the model, through random operations."""

    def __init__(self, stores, seed):
        self.stores = stores
        self.random = np.random.default_rng(seed)
        self.model = Model()
        self.store = stores.create(n_bits=N_BITS, radius=3, durability="os")
        self.reader = stores.open(read_only=True)
        self.mirror = None if stores.has_files else Mirror(stores.place(), age=0)
        kinds = {
            self.put: 30,
            self.delete: 12,
            self.transaction: 8,
            self.search: 18,
            self.nearest: 8,
            self.filtered: 8,
            self.get: 8,
            self.count: 6,
            self.reopen: 0.4,
            self.compact: 0.4,
            self.lose_index: 0.1,
            self.compare_all: 0.4,
        }
        self.kinds, weights = list(kinds), np.array(list(kinds.values()))
        self.bounds = np.cumsum(weights / weights.sum())

    def step(self):
        self.kinds[min(int(np.searchsorted(self.bounds, self.random.random())), len(self.kinds) - 1)]()

    def ids(self, most):
        return [IDS[place] for place in self.random.integers(0, len(IDS), self.random.integers(1, most + 1))]

    def rows(self, most):
        return [
            (id, CODES[self.random.integers(len(CODES))], {"n": int(n)} if (n := self.random.integers(9)) else None)
            for id in self.ids(most)
        ]

    def any_store(self):
        return self.store if self.random.random() < 0.7 else self.reader

    def put(self):
        rows = self.rows(8)
        if self.random.random() < 0.5:
            self.store.put(Item(id, code=code, payload=payload) for id, code, payload in rows)
        else:
            ids, codes, payloads = zip(*rows, strict=True)
            self.store.put_rows(ids, codes=np.stack(codes), payloads=payloads)
        # An id that comes twice in one call is one item, stored once, at its first place.
        for id, code, payload in rows:
            self.model.put(id, code, payload)

    def delete(self):
        ids = self.ids(8)
        assert self.store.delete(ids) == self.model.delete(ids)

    def transaction(self):
        rows, gone, late = self.rows(5), self.ids(5), self.rows(3)
        is_kept = self.random.random() < 0.7
        try:
            with self.store.transaction():
                self.store.put(Item(id, code=code, payload=payload) for id, code, payload in rows)
                self.store.delete(gone)
                self.store.put(Item(id, code=code, payload=payload) for id, code, payload in late)
                if not is_kept:
                    raise InterruptedError
        except InterruptedError:
            return
        for id, code, payload in rows:
            self.model.put(id, code, payload)
        self.model.delete(gone)
        for id, code, payload in late:
            self.model.put(id, code, payload)

    def search(self):
        query, radius = CODES[self.random.integers(len(CODES))], int(self.random.integers(0, 7))
        limit = int(self.random.integers(1, 20)) if self.random.random() < 0.3 else None
        expected = [hit for hit in self.model.ranked(query) if hit[1] <= radius][:limit]
        hits = self.any_store().search(code=query, radius=radius, limit=limit)
        assert [hit[:2] for hit in hits] == expected
        if self.mirror is not None:
            hits = self.mirror.search(query, radius, limit=limit)
            assert [hit[:2] for hit in hits] == expected

    def nearest(self):
        query, k = CODES[self.random.integers(len(CODES))], int(self.random.integers(1, 30))
        hits = self.any_store().nearest_batch(codes=np.stack([query, query]), k=k)
        assert [hit[:2] for hit in hits[1]] == self.model.ranked(query)[:k]
        assert hits[0] == hits[1]

    def filtered(self):
        query, number = CODES[self.random.integers(len(CODES))], int(self.random.integers(9))
        filter = {"n": number} if self.random.random() < 0.5 else {"n": Range(number, number + 3)}
        ranked = self.model.ranked(query, filter)
        store = self.any_store()
        assert [hit[:2] for hit in store.search(code=query, filter=filter)] == [hit for hit in ranked if hit[1] <= 3]
        assert [hit[:2] for hit in store.nearest(code=query, k=4, filter=filter)] == ranked[:4]

    def get(self):
        ids = self.ids(5)
        for id, item in zip(ids, self.any_store().get(ids), strict=True):
            if id in self.model.items:
                _, code, payload = self.model.items[id]
                assert (item.id, item.code.tobytes(), json.dumps(item.payload)) == (id, code, payload)
            else:
                assert item is None

    def count(self):
        assert len(self.any_store()) == len(self.model.items)

    def reopen(self):
        if self.random.random() < 0.5:
            self.store.close()
            self.store = self.stores.open()
        else:
            self.reader.close()
            self.reader = self.stores.open(read_only=True)

    def compact(self):
        self.store.compact()

    def lose_index(self):
        if not self.stores.has_files:
            return
        self.store.close()
        for file in self.store.path.glob("index*.ham"):
            file.unlink()
        self.store = self.stores.open()

    def compare_all(self):
        store = self.any_store()
        found = {item.id: (item.code.tobytes(), json.dumps(item.payload)) for item in store.scan()}
        assert found == {id: (code, payload) for id, (_, code, payload) in self.model.items.items()}
        assert [item.id for item in store.scan()] == [
            id for _, id in sorted((place, id) for id, (place, _, _) in self.model.items.items())
        ]
        report = store.verify()
        assert report.ok, report.problems


@pytest.mark.slow
def test_a_store_answers_as_a_dictionary_does(stores, monkeypatch):
    # So that the index is saved in the middle of puts, too.
    monkeypatch.setattr("hamtarget.store.sqlite.engine._UNSAVED_ROWS", 500)
    run = Run(stores, seed=3)
    for operation in range(OPERATIONS if stores.has_files else POSTGRES_OPERATIONS):
        try:
            run.step()
        except BaseException as error:
            error.add_note(f"at operation {operation}")
            raise
    run.compare_all()
    for opened in (run.store, run.reader, run.mirror):
        if opened is not None:
            opened.close()
