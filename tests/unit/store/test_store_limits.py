"""Limits of a store in a folder: what reads payloads and codes ends with the deadline, and counts before it reads."""

import threading
import time
import tracemalloc

import numpy as np
import pytest

from hamtarget import Store
from hamtarget.errors import DtypeError, LimitError
from hamtarget.filters import Range
from hamtarget.query import Bounds, Work
from hamtarget.search import Embeddings

N_ITEMS = 12_000
# Every item is asked for dozens of ranges, so that a scan takes seconds.
SLOW = {f"f{i}": Range(min=0) for i in range(40)}


@pytest.fixture(scope="module")
def codes():
    return np.random.default_rng(0).integers(0, 256, (N_ITEMS, 8), dtype=np.uint8)


@pytest.fixture(scope="module")
def store(codes, tmp_path_factory):
    payload = {f"f{i}": i for i in range(40)}
    with Store.create(tmp_path_factory.mktemp("limits") / "store", n_bits=64, radius=2) as made:
        ids = [number if number % 2 else f"n{number}" for number in range(N_ITEMS)]
        made.put_rows(ids, codes=codes, payloads=[{**payload, "n": number} for number in range(N_ITEMS)])
        yield made


def reached(call) -> str:
    """Return the limit that ends a call. The time of this thread is what counts in these tests: others may be busy."""
    with pytest.raises(LimitError) as caught:
        call()
    return caught.value.limit


def shown(items):
    return [item and (item.id, item.code.tobytes(), item.payload) for item in items]


def slow_calls(store, codes):
    return {
        "count": lambda limits: store.count(SLOW, work=Work(limits)),
        "scan": lambda limits: list(store.scan(SLOW, work=Work(limits))),
        "search": lambda limits: store.search(code=codes[0], radius=63, filter=SLOW, work=Work(limits)),
        "search_batch": lambda limits: store.search_batch(codes=codes[:50], radius=63, filter=SLOW, work=Work(limits)),
        "nearest": lambda limits: store.nearest_batch(codes=codes[:50], k=2000, filter=SLOW, work=Work(limits)),
        "pairs": lambda limits: list(store.near_duplicates(30, work=Work(limits))),
        "groups": lambda limits: store.groups(30, work=Work(limits)),
    }


CALLS = ("count", "scan", "search", "search_batch", "nearest", "pairs", "groups")


@pytest.mark.parametrize("name", CALLS)
def test_a_deadline_ends_every_call(store, codes, name):
    call = slow_calls(store, codes)[name]
    began = time.thread_time()
    assert reached(lambda: call(Bounds(seconds=0.1).start())) == "seconds"
    assert time.thread_time() - began < 1
    # What was interrupted leaves nothing behind: the next call reads as before.
    assert store.count({"n": Range(min=10)}) == N_ITEMS - 10


@pytest.mark.parametrize("name", CALLS)
def test_another_thread_cancels_every_call(store, codes, name):
    call = slow_calls(store, codes)[name]
    limits = Bounds().start()
    timer = threading.Timer(0.1, limits.cancel)
    timer.start()
    began = time.thread_time()
    assert reached(lambda: call(limits)) == "cancelled"
    assert time.thread_time() - began < 1
    timer.join()


def test_limits_that_suffice_change_nothing(store, codes):
    plenty = Bounds(seconds=1000, rows=10**9, hits=10**9, bytes=10**9).start()
    filter = {"n": Range(min=100, max=4000)}
    assert store.count(filter, work=Work(plenty)) == store.count(filter)
    assert shown(store.scan(filter, work=Work(plenty))) == shown(store.scan(filter))
    ids = ["n100", 101, "nobody", 5, "n100"]
    assert shown(store.get(ids, work=Work(plenty))) == shown(store.get(ids))
    assert store.payloads(ids, work=Work(plenty)) == store.payloads(ids)
    assert store.search(code=codes[7], radius=25, filter=filter, work=Work(plenty)) == store.search(
        code=codes[7], radius=25, filter=filter
    )
    assert store.search(code=codes[8], work=Work(plenty)) == store.search(code=codes[8])
    assert list(store.near_duplicates(12, work=Work(plenty))) == list(store.near_duplicates(12))
    assert store.groups(12, work=Work(plenty)) == store.groups(12)


def test_hits_of_names_that_are_not_known_yet_are_counted_once(codes, tmp_path):
    with Store.create(tmp_path / "store", n_bits=64) as store:
        store.put_rows(["a", "b", "c"], codes=np.zeros((3, 8), dtype=np.uint8))
    with Store.open(tmp_path / "store") as store:
        assert len(store.search(code=np.zeros(8, dtype=np.uint8), work=Work(Bounds(hits=3, rows=3)))) == 3
        assert reached(lambda: store.search(code=np.zeros(8, dtype=np.uint8), work=Work(Bounds(hits=2)))) == "hits"


def test_hits_that_a_filter_refuses_are_not_hits(store, codes):
    filter = {"n": Range(min=100, max=109)}
    passing = store.search(code=codes[0], radius=63, filter=filter)
    assert len(passing) == 10
    assert store.search(code=codes[0], radius=63, filter=filter, work=Work(Bounds(hits=10))) == passing
    assert reached(lambda: store.search(code=codes[0], radius=63, filter=filter, work=Work(Bounds(hits=9)))) == "hits"
    # The filter looks at every payload.
    rows = Bounds(rows=N_ITEMS - 1).start()
    assert reached(lambda: store.search(code=codes[0], radius=63, filter=filter, work=Work(rows))) == "rows"
    assert reached(lambda: store.count(filter, work=Work(Bounds(rows=N_ITEMS - 1)))) == "rows"
    assert store.count(filter, work=Work(Bounds(rows=N_ITEMS))) == 10


def test_bytes_are_counted_before_they_are_read(tmp_path):
    size, n_items = 1 << 20, 30
    with Store.create(tmp_path / "store", n_bits=64, embeddings=Embeddings(64)) as store:
        payloads = [{"text": "ä" * (size // 2)} for _ in range(n_items)]
        vectors = np.ones((n_items, 64), dtype=np.float32)
        store.put_rows(range(n_items), codes=np.zeros((n_items, 8), np.uint8), embeddings=vectors, payloads=payloads)
        bytes_of_one = len('{"text":""}') + size + 4 * 64
        assert len(store.get([1, 2], work=Work(Bounds(bytes=2 * bytes_of_one)))) == 2
        tracemalloc.start()
        try:
            assert reached(lambda: store.get(range(n_items), work=Work(Bounds(bytes=2 * size)))) == "bytes"
            assert reached(lambda: list(store.scan(work=Work(Bounds(bytes=2 * size))))) == "bytes"
            assert tracemalloc.get_traced_memory()[1] < 2 * size
        finally:
            tracemalloc.stop()
        assert reached(lambda: store.get([1, 2], work=Work(Bounds(bytes=2 * bytes_of_one - 1)))) == "bytes"
        assert len(list(store.scan(work=Work(Bounds(bytes=n_items * bytes_of_one))))) == n_items
        assert reached(lambda: list(store.scan(work=Work(Bounds(bytes=n_items * bytes_of_one - 1))))) == "bytes"


def test_limits_of_another_kind_are_refused(store, codes):
    for call in (
        lambda: store.count({"n": 1}, work=Work(5)),
        lambda: store.get([1], work=Work(5)),
        lambda: store.scan(work=Work(5)),
        lambda: store.near_duplicates(work=Work(5)),
        lambda: store.groups(work=Work(5)),
        lambda: store.search(code=codes[0], work=Work(5)),
    ):
        with pytest.raises(DtypeError, match="expected Bounds"):
            call()
