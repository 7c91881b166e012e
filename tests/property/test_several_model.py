"""Items with several codes against dictionaries and loops: random operations, reopenings and readers."""

import os

import numpy as np
import pytest

from hamtarget.codes import distances
from hamtarget.search import matching
from hamtarget.store import Item, Mirror

OPERATIONS = int(os.environ.get("HAMTARGET_OPERATIONS", "20000")) // 40
POSTGRES_OPERATIONS = int(os.environ.get("HAMTARGET_POSTGRES_OPERATIONS", "3000")) // 20
N_BITS = 32
IDS = [*range(-20, 20), *(f"{number}" for number in range(40)), *(2**63 - 1 - number for number in range(10))]
# Few bytes differ, so that many codes are near each other.
CODES = np.random.default_rng(1).integers(0, 256, (400, 4), dtype=np.uint8) & np.array([255, 3, 1, 7], dtype=np.uint8)


class Model:
    """What a store should hold, and how it should answer."""

    def __init__(self):
        self.items = {}
        self.n_numbers = 0

    def put(self, id, codes, payload):
        place, before = self.items[id][:2] if id in self.items else (None, ())
        if len(codes) == 1 and isinstance(id, int) and id < 2**62:
            place = (0, id)
        elif len(codes) != len(before):
            place = (2 if len(codes) > 1 else 1, self.n_numbers)
            self.n_numbers += 1
        self.items[id] = (place, codes, payload)

    def delete(self, ids):
        return sum(self.items.pop(id, None) is not None for id in ids)

    def passing(self, filter):
        """Ids in the order of the store."""
        found = [(place, id) for id, (place, _, payload) in self.items.items() if filter is None or payload == filter]
        return [id for _, id in sorted(found, key=lambda each: each[0])]

    def apart(self, query, id):
        """Distances between codes of a query and of an item, (query codes, item codes)."""
        return distances(query, self.items[id][1], N_BITS)

    def ranked(self, query, filter=None):
        found = [(int(self.apart(query[None], id).min()), id) for id in self.passing(filter)]
        return [(id, distance) for distance, id in sorted(found, key=lambda each: each[0])]

    def match(self, query, radius, at_least, filter):
        """Every field of the matches, by loops."""
        found = []
        for id in self.passing(filter):
            apart = self.apart(query, id)
            pairs = [
                (q, i, int(apart[q, i]))
                for q in range(len(apart))
                for i in range(apart.shape[1])
                if apart[q, i] <= radius
            ]
            matched = {q for q, _, _ in pairs}
            if len(matched) >= at_least:
                best = min(distance for _, _, distance in pairs)
                numbers = (len(matched), len(query), len({i for _, i, _ in pairs}), apart.shape[1])
                found.append((id, best, *numbers, tuple(pairs)))
        return sorted(found, key=lambda match: (-match[2], match[1]))

    def near(self, radius):
        """Pairs of items, in the order of the store."""
        ids = self.passing(None)
        pairs = []
        for place, a in enumerate(ids):
            for b in ids[place + 1 :]:
                distance = int(self.apart(self.items[a][1], b).min())
                if distance <= radius:
                    pairs.append((a, b, distance))
        return pairs


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
            self.delete: 8,
            self.transaction: 8,
            self.search: 15,
            self.nearest: 10,
            self.match: 20,
            self.get: 6,
            self.count: 4,
            self.reopen: 1,
            self.compare_all: 2,
        }
        self.kinds, weights = list(kinds), np.array(list(kinds.values()))
        self.shares = weights / weights.sum()

    def step(self):
        self.kinds[int(self.random.choice(len(self.kinds), p=self.shares))]()

    def codes(self, most):
        return CODES[self.random.integers(0, len(CODES), self.random.integers(1, most + 1))]

    def ids(self, most):
        return [IDS[place] for place in self.random.integers(0, len(IDS), self.random.integers(1, most + 1))]

    def rows(self, most):
        # Half of them have one code, and now and then one has as many as can be.
        sizes = [1, 1, 5, 64 if self.random.random() < 0.1 else 3]
        return [
            (
                id,
                self.codes(sizes[self.random.integers(len(sizes))]),
                {"n": int(n)} if (n := self.random.integers(3)) else None,
            )
            for id in self.ids(most)
        ]

    def filter(self):
        return {"n": int(self.random.integers(1, 3))} if self.random.random() < 0.3 else None

    def any_store(self):
        return self.store if self.random.random() < 0.6 else self.reader

    def put_items(self, rows):
        self.store.put(
            Item(id, code=codes[0], payload=payload)
            if len(codes) == 1 and self.random.random() < 0.5
            else Item(id, codes=codes, payload=payload)
            for id, codes, payload in rows
        )

    def remember(self, rows):
        # Of an id that comes twice in one call, the last one counts, and nobody has seen the other.
        for id, codes, payload in {row[0]: row for row in rows}.values():
            self.model.put(id, codes, payload)

    def put(self):
        rows = self.rows(6)
        if self.random.random() < 0.2:
            n_codes = int(self.random.integers(1, 4))
            rows = [(id, CODES[self.random.integers(0, len(CODES), n_codes)], payload) for id, _, payload in rows]
            ids, codes, payloads = zip(*rows, strict=True)
            self.store.put_rows(ids, codes=np.stack(codes), payloads=payloads)
        else:
            self.put_items(rows)
        self.remember(rows)

    def delete(self):
        ids = self.ids(6)
        assert self.store.delete(ids) == self.model.delete(ids)

    def transaction(self):
        rows, gone, late = self.rows(4), self.ids(4), self.rows(3)
        is_kept = self.random.random() < 0.7
        try:
            with self.store.transaction():
                self.put_items(rows)
                self.store.delete(gone)
                self.put_items(late)
                if not is_kept:
                    raise InterruptedError
        except InterruptedError:
            return
        self.remember(rows)
        self.model.delete(gone)
        self.remember(late)

    def search(self):
        query, radius, filter = self.codes(1)[0], int(self.random.integers(0, 7)), self.filter()
        limit = int(self.random.integers(1, 9)) if self.random.random() < 0.5 else None
        expected = [hit for hit in self.model.ranked(query, filter) if hit[1] <= radius][:limit]
        hits = self.any_store().search(code=query, radius=radius, limit=limit, filter=filter)
        assert [hit[:2] for hit in hits] == expected
        if self.mirror is not None and filter is None:
            assert [hit[:2] for hit in self.mirror.search(query, radius, limit=limit)] == expected

    def nearest(self):
        queries, k, filter = self.codes(3), int(self.random.integers(1, 9)), self.filter()
        found = self.any_store().nearest_batch(codes=queries, k=k, filter=filter)
        for query, hits in zip(queries, found, strict=True):
            assert [hit[:2] for hit in hits] == self.model.ranked(query, filter)[:k]

    def match(self):
        query, radius, filter = self.codes(6), int(self.random.integers(0, 7)), self.filter()
        at_least = int(self.random.integers(1, len(query) + 1))
        limit = int(self.random.integers(1, 9)) if self.random.random() < 0.5 else None
        matches = self.any_store().match(codes=query, radius=radius, at_least=at_least, limit=limit, filter=filter)
        expected = self.model.match(query, radius, at_least, filter)[:limit]
        assert [tuple(match) for match in matches] == expected
        if self.mirror is not None and filter is None:
            found = self.mirror.match(query, radius, at_least=at_least, limit=limit)
            assert [tuple(match) for match in found] == expected

    def get(self):
        ids = self.ids(6)
        for id, item in zip(ids, self.any_store().get(ids), strict=True):
            self.compare(id, item)

    def compare(self, id, item):
        if id not in self.model.items:
            assert item is None
            return
        _, codes, payload = self.model.items[id]
        assert (item.id, item.payload, item.code is None) == (id, payload, len(codes) > 1)
        np.testing.assert_array_equal(item.codes if len(codes) > 1 else item.code[None], codes)

    def count(self):
        filter = self.filter()
        assert self.any_store().count(filter) == len(self.model.passing(filter))
        assert self.store.stats().items == len(self.model.items)
        assert self.store.stats().codes == sum(len(codes) for _, codes, _ in self.model.items.values())

    def reopen(self):
        if self.random.random() < 0.5:
            self.store.compact()
        self.store.close()
        self.store = self.stores.open()

    def compare_all(self):
        store = self.any_store()
        filter = self.filter()
        items = list(store.scan(filter))
        assert [item.id for item in items] == self.model.passing(filter)
        for item in items:
            self.compare(item.id, item)
        assert sorted(map(str, store.sample_ids(1000))) == sorted(map(str, self.model.items))
        report = store.verify()
        assert report.ok, report.problems
        assert report.items == len(self.model.items)
        assert list(store.near_duplicates(2)) == self.model.near(2)

    def close(self):
        self.store.close()
        self.reader.close()
        if self.mirror is not None:
            self.mirror.close()


@pytest.mark.parametrize("seed", range(2))
def test_random_operations_give_what_loops_give(stores, seed, monkeypatch):
    # Few hits and many are grouped in two ways.
    monkeypatch.setattr(matching, "_FEW_HITS", 0 if seed else matching._FEW_HITS)
    run = Run(stores, seed)
    for _ in range(OPERATIONS if stores.has_files else POSTGRES_OPERATIONS):
        run.step()
    run.compare_all()
    run.close()
