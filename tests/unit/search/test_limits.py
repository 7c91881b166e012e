"""Bounds: the clock, the counters, and what every call does when it reaches one of them."""

import math
import threading
import time
from functools import partial

import numpy as np
import pytest

from hamtarget import FlatIndex, MultiIndex
from hamtarget.errors import DtypeError, InputError, LimitError
from hamtarget.query import Asked, Bounds, Work
from hamtarget.search import Embeddings, pairs_within

N_ROWS = 20_000


@pytest.fixture(scope="module")
def codes():
    return np.random.default_rng(0).integers(0, 256, (N_ROWS, 8), dtype=np.uint8)


@pytest.fixture(scope="module", params=["multi", "flat"])
def index(request, codes):
    made = MultiIndex(64, radius=2) if request.param == "multi" else FlatIndex(64)
    made.add(np.arange(N_ROWS), codes)
    return made


def reached(call) -> str:
    """Return the limit that ends a call. The time of this thread is what counts in these tests: others may be busy."""
    with pytest.raises(LimitError) as caught:
        call()
    return caught.value.limit


def test_without_any_bound_nothing_is_raised():
    limits = Bounds().start()
    limits.check()
    limits.take(rows=2**62, hits=2**62, bytes=2**62)
    assert limits.seconds_left == math.inf


@pytest.mark.parametrize("bound", ["rows", "hits", "bytes"])
def test_taking_more_than_allowed_raises(bound):
    limits = Bounds(**{bound: 10}).start()
    limits.take(**{bound: 4})
    limits.take(**{bound: 6})
    assert reached(lambda: limits.take(**{bound: 1})) == bound
    assert reached(lambda: limits.take(**{bound: 2**62})) == bound
    limits.check()


def test_the_clock_starts_when_limits_are_made():
    limits = Bounds(seconds=0.02).start()
    assert 0 < limits.seconds_left <= 0.02
    limits.check()
    time.sleep(0.03)
    assert limits.seconds_left < 0
    assert reached(limits.check) == "seconds"


def test_cancelled_limits_stay_cancelled():
    limits = Bounds(seconds=100).start()
    limits.cancel()
    assert reached(limits.check) == reached(limits.check) == "cancelled"


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        ({"seconds": -1}, InputError),
        ({"seconds": math.nan}, InputError),
        ({"seconds": "1"}, DtypeError),
        ({"rows": -1}, InputError),
        ({"hits": 1.5}, DtypeError),
        ({"bytes": True}, DtypeError),
    ],
)
def test_bounds_are_checked(bounds, error):
    with pytest.raises(error):
        Bounds(**bounds)


def test_limits_of_another_kind_are_refused(index, codes):
    for call in (
        lambda: index.search(codes[0], 2, work=Work(5)),
        lambda: index.nearest(codes[0], work=Work({"rows": 5})),
        lambda: index.search(Asked(logits=np.ones(64)), budget=5, radius=2, work=Work(5)),
        lambda: pairs_within(codes, 2, work=Work(5)),
    ):
        with pytest.raises(DtypeError, match="expected Bounds"):
            call()


def test_a_search_counts_its_rows_and_hits(index, codes):
    hits = index.search_batch(codes[:5], 30, work=Work(costs=True))
    rows, found = int(hits.costs.candidates.sum()), len(hits.rows)
    limits = Bounds(rows=2 * rows, hits=2 * found).start()
    assert len(index.search_batch(codes[:5], 30, work=Work(limits)).rows) == found
    index.search_batch(codes[:5], 30, work=Work(limits))
    # Everything has been taken; the next search may take nothing.
    assert reached(lambda: index.search(codes[0], 30, work=Work(limits))) == "rows"


def test_rows_read_never_exceed_the_bound_by_more_than_a_block(codes):
    """A bound on rows ends a search within a block of rows for each thread, however long it would go on."""
    index = FlatIndex(64)
    index.add(np.arange(N_ROWS), codes)
    call = partial(index.search_batch, np.tile(codes, (50, 1)), 63)
    for threads in (1, 2):
        began = time.thread_time()
        with pytest.raises(LimitError, match="more than 5 rows"):
            call(work=Work(Bounds(rows=5), threads))
        assert time.thread_time() - began < 1


def long_calls(index, codes):
    """Return calls each of which would take many seconds."""
    many = np.tile(codes, (20, 1))
    logits = np.random.default_rng(1).standard_normal((100_000, 64)).astype(np.float32)
    half = np.arange(N_ROWS) % 2 == 0
    return {
        "search": lambda limits: index.search_batch(many, 20, work=Work(limits)),
        "all hits": lambda limits: index.search_batch(many, 63, work=Work(limits)),
        "threads": lambda limits: index.search_batch(many, 30, work=Work(limits, threads=3)),
        "filter": lambda limits: index.search_batch(many, 30, filter=half, work=Work(limits)),
        "ids": lambda limits: index.search_batch(many, 30, filter=np.flatnonzero(half), work=Work(limits)),
        "nearest": lambda limits: index.nearest_batch(many, 1000, work=Work(limits)),
        "probe": lambda limits: index.search_batch(Asked(logits=logits), budget=15_000, radius=63, work=Work(limits)),
        "ranked": lambda limits: index.search_batch(
            Asked(logits=logits), budget=15_000, radius=63, rerank=50, work=Work(limits)
        ),
        "pairs": lambda limits: list(pairs_within(index, 25, work=Work(limits))),
    }


CALLS = ("search", "all hits", "threads", "filter", "ids", "nearest", "probe", "ranked", "pairs")


@pytest.mark.parametrize("name", CALLS)
def test_a_deadline_ends_every_call(index, codes, name):
    call = long_calls(index, codes)[name]
    began = time.thread_time()
    assert reached(lambda: call(Bounds(seconds=0.1).start())) == "seconds"
    assert time.thread_time() - began < 1
    assert reached(lambda: call(Bounds(seconds=0).start())) == "seconds"


@pytest.mark.parametrize("name", CALLS)
def test_another_thread_cancels_every_call(index, codes, name):
    call = long_calls(index, codes)[name]
    limits = Bounds().start()
    timer = threading.Timer(0.1, limits.cancel)
    timer.start()
    began = time.thread_time()
    assert reached(lambda: call(limits)) == "cancelled"
    assert time.thread_time() - began < 1
    timer.join()


def test_reranking_ends_with_the_deadline(codes):
    index = FlatIndex(64, embeddings=Embeddings(256))
    vectors = np.ones((N_ROWS, 256), dtype=np.float32)
    index.add(np.arange(N_ROWS), codes, vectors)
    began = time.thread_time()
    call = partial(index.search_batch, Asked(codes, embeddings=vectors), 63, rerank=5)
    assert reached(lambda: call(work=Work(Bounds(seconds=0.1)))) == "seconds"
    assert time.thread_time() - began < 1
    assert reached(lambda: call(work=Work(Bounds(hits=N_ROWS)))) == "hits"


def test_large_results_are_the_same_under_limits():
    """Hits of one query that are many enough to be sorted and merged in pieces."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 256, (250_000, 8), dtype=np.uint8)
    whole = MultiIndex(64, radius=2)
    whole.add(3 * np.arange(len(codes)), codes)
    parts = MultiIndex(64, radius=2)
    for piece in np.split(np.arange(len(codes)), [190_000, 240_000, 249_000]):
        parts.add(3 * piece, codes[piece])
    for index in (whole, parts):
        for radius in (5, 31, 63):
            free = index.search_batch(codes[:2], radius)
            bound = index.search_batch(codes[:2], radius, work=Work(Bounds(seconds=1000, hits=len(free.rows))))
            np.testing.assert_array_equal(free.rows, bound.rows)
            np.testing.assert_array_equal(free.distances, bound.distances)


def test_a_filter_that_allows_few_rows_is_not_a_scan_of_all(codes):
    index = MultiIndex(64, radius=2)
    index.add(np.arange(N_ROWS), codes)
    index.compact()
    for filter in (np.arange(40), np.arange(40) >= 0):
        hits = index.search_batch(codes[:500], 63, limit=1, filter=filter, work=Work(costs=True))
        assert int(hits.costs.candidates[-1]) == 40
        assert int(hits.costs.candidates.sum()) < 100 * N_ROWS
    nothing = index.search_batch(codes[:500], 63, filter=np.array([-5, N_ROWS]), work=Work(costs=True))
    assert len(nothing.rows) == 0
    assert int(nothing.costs.candidates.sum()) == 0


def test_hits_that_rows_of_a_later_add_push_out_do_not_count(codes):
    index = MultiIndex(64, radius=2)
    index.add(np.arange(N_ROWS), codes)
    index.compact()
    near = np.repeat(codes[:100], 3, axis=0)
    near[:, 0] ^= np.tile(np.array([1, 2, 3], dtype=np.uint8), 100)
    index.add(N_ROWS + np.arange(300), near)
    assert len(index.core.parts) == 2
    everything = index.search_batch(codes[:100])
    within = index.search_batch(codes[:100], limit=2, work=Work(Bounds(hits=200)))
    for all_hits, hits in zip(everything, within, strict=True):
        assert len(all_hits) == 4
        assert list(hits) == list(all_hits)[:2]
    assert reached(lambda: index.search_batch(codes[:100], limit=2, work=Work(Bounds(hits=199)))) == "hits"
