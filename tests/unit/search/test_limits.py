"""Limits: the clock, the counters, and what every call does when it reaches one of them."""

import math
import time

import numpy as np
import pytest

from hamtarget import FlatIndex, Limits, MultiIndex
from hamtarget.errors import DtypeError, InputError, LimitError
from hamtarget.search import pairs_within

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
    with pytest.raises(LimitError) as caught:
        call()
    return caught.value.limit


def test_without_any_bound_nothing_is_raised():
    limits = Limits()
    limits.check()
    limits.take(rows=2**62, hits=2**62, bytes=2**62)
    assert limits.seconds_left == math.inf


@pytest.mark.parametrize("bound", ["rows", "hits", "bytes"])
def test_taking_more_than_allowed_raises(bound):
    limits = Limits(**{bound: 10})
    limits.take(**{bound: 4})
    limits.take(**{bound: 6})
    assert reached(lambda: limits.take(**{bound: 1})) == bound
    assert reached(lambda: limits.take(**{bound: 2**62})) == bound
    limits.check()


def test_the_clock_starts_when_limits_are_made():
    limits = Limits(seconds=0.02)
    assert 0 < limits.seconds_left <= 0.02
    limits.check()
    time.sleep(0.03)
    assert limits.seconds_left < 0
    assert reached(limits.check) == "seconds"


def test_cancelled_limits_stay_cancelled():
    limits = Limits(seconds=100)
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
        Limits(**bounds)


def test_limits_of_another_kind_are_refused(index, codes):
    for call in (
        lambda: index.search(codes[0], 2, limits=5),
        lambda: index.nearest(codes[0], limits={"rows": 5}),
        lambda: index.probe(np.ones(64), 5, radius=2, limits=5),
        lambda: pairs_within(codes, 2, limits=5),
    ):
        with pytest.raises(DtypeError, match="expected Limits"):
            call()
