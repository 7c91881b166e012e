"""Whatever an argument is, a call works or raises a typed error; nothing is lost or half-written."""

import numpy as np
import pytest

from hamtarget import Asked, Bounds, MultiIndex, NeighborIndex, Query, Store, Work
from hamtarget.errors import HamtargetError
from hamtarget.store import Item, Range

CODES = np.random.default_rng(0).integers(0, 256, (200, 8), dtype=np.uint8)
CODE = CODES[0]
QUESTION = Asked(CODES[:2])


class Odd:
    """Nothing that a call takes."""


def values():
    """Return values of many kinds; most calls take a few of them."""
    return [
        *(None, True, 5, -1, 1.5, 2**70, float("nan"), "x", b"xx", object(), Odd, lambda: 1),
        *({"a": 1}, {1, 2}, range(3), (x for x in [1]), [None], [[1, 2], [3]], [[["a"]]]),
        *(np.array(3), np.array([[1.5]]), np.array(["a"]), np.array([Odd()])),
    ]


STORE_CALLS = {
    "get": lambda s, x: s.get(x),
    "delete": lambda s, x: s.delete(x),
    "payloads": lambda s, x: s.payloads(x),
    "search": lambda s, x: s.search(code=x),
    "search, asked": lambda s, x: s.search(Asked(x)),
    "search_batch": lambda s, x: s.search_batch(codes=x),
    "radius": lambda s, x: s.search(code=CODE, radius=x),
    "limit": lambda s, x: s.search(code=CODE, limit=x),
    "filter": lambda s, x: s.search(code=CODE, filter=x),
    "filter of a field": lambda s, x: s.search(code=CODE, filter={"n": x}),
    "filter of count": lambda s, x: s.count(x),
    "filter of scan": lambda s, x: list(s.scan(x)),
    "k": lambda s, x: s.nearest(code=CODE, k=x),
    "recall": lambda s, x: s.nearest(code=CODE, recall=x),
    "rerank": lambda s, x: s.search(code=CODE, rerank=x),
    "budget": lambda s, x: s.search(Asked(logits=np.ones(64)), budget=x),
    "work": lambda s, x: s.search(code=CODE, work=x),
    "match": lambda s, x: s.match(codes=x),
    "match_batch": lambda s, x: s.match_batch(codes=x),
    "at_least": lambda s, x: s.match(codes=CODES[:2], at_least=x),
    "answer": lambda s, x: s.answer(x, Query(2)),
    "answer, query": lambda s, x: s.answer(QUESTION, x),
    "answer, work": lambda s, x: s.answer(QUESTION, Query(2), x),
    "put": lambda s, x: s.put(x),
    "put, item": lambda s, x: s.put([x]),
    "put, id": lambda s, x: s.put([Item(x, code=CODE)]),
    "put, code": lambda s, x: s.put([Item(1, code=x)]),
    "put, codes": lambda s, x: s.put([Item(1, codes=x)]),
    "put, payload": lambda s, x: s.put([Item(1, code=CODE, payload=x)]),
    "put_rows, ids": lambda s, x: s.put_rows(x, codes=CODES[:2]),
    "put_rows, codes": lambda s, x: s.put_rows([1, 2], codes=x),
    "put_rows, payloads": lambda s, x: s.put_rows([1, 2], codes=CODES[:2], payloads=x),
    "groups": lambda s, x: s.groups(x),
    "groups, limit": lambda s, x: s.groups(limit=x),
    "groups, after": lambda s, x: s.groups(after=x),
    "near_duplicates": lambda s, x: list(s.near_duplicates(x)),
    "sample_codes": lambda s, x: s.sample_codes(x),
    "tune": lambda s, x: s.tune(x),
}
OTHER_CALLS = {
    "index.get": lambda i, _, x: i.get(x),
    "index.delete": lambda i, _, x: i.delete(x),
    "index.search": lambda i, _, x: i.search(x),
    "index, filter": lambda i, _, x: i.search(CODE, filter=x),
    "index, logits": lambda i, _, x: i.search_batch(Asked(logits=x), budget=4),
    "index, offsets": lambda i, _, x: i.answer(Asked(CODES[:4], offsets=x), Query(2)),
    "index.answer": lambda i, _, x: i.answer(x, x),
    "vectors.nearest": lambda _, n, x: n.nearest(x),
    "vectors.nearest_batch": lambda _, n, x: n.nearest_batch(x),
    "vectors, k": lambda _, n, x: n.nearest(np.ones(5), x),
    "vectors, recall": lambda _, n, x: n.nearest(np.ones(5), recall=x),
    "vectors, budget": lambda _, n, x: n.nearest(np.ones(5), budget=x),
    "vectors.add, ids": lambda _, n, x: n.add(x, np.ones((1, 5))),
    "vectors.add": lambda _, n, x: n.add([1000], x),
    "vectors.delete": lambda _, n, x: n.delete(x),
    "vectors.get": lambda _, n, x: n.get(x),
    "fit": lambda *_: NeighborIndex().fit(_[2]),
    "metric": lambda *_: NeighborIndex(_[2]),
    "seconds": lambda *_: Bounds(_[2]),
    "rows": lambda *_: Bounds(rows=_[2]),
    "bounds": lambda *_: Work(_[2]),
    "threads": lambda *_: Work(threads=_[2]),
    "Range": lambda *_: Range(_[2]),
    "open": lambda *_: Store.open(_[2]),
}


@pytest.mark.parametrize("name", STORE_CALLS)
def test_a_store_works_or_raises_a_typed_error(tmp_path, name):
    with Store.create(tmp_path / "store", n_bits=np.int64(64), radius=np.int16(2), durability="os") as store:
        store.put_rows(range(200), codes=CODES, payloads=[{"n": number % 10} for number in range(200)])
        for value in values():
            before = store.sequence
            try:
                STORE_CALLS[name](store, value)
            except HamtargetError:
                assert store.sequence == before
        assert store.verify().problems == ()


@pytest.mark.parametrize("name", OTHER_CALLS)
def test_an_index_works_or_raises_a_typed_error(name):
    index = MultiIndex(64, 2)
    index.add(np.arange(200), CODES)
    vectors = NeighborIndex("l2").fit(np.random.default_rng(1).normal(size=(300, 5)))
    for value in values():
        try:
            OTHER_CALLS[name](index, vectors, value)
        except HamtargetError:
            continue
