"""Payloads written many at a time are what they are when written one by one."""

import math
from enum import IntEnum

import pytest

from hamtarget.errors import DtypeError, InputError, NotFiniteError
from hamtarget.store.items.payloads import _written_at_once, payload_as_json, payloads_as_json


class Color(IntEnum):
    RED = 1


ORDINARY = [{"a": 1, "b": "x,y", "c": None, "d": True, "e": 0.1}, None, {}, {"ü": '\N{PILE OF POO}\0"\\,[]{}'}]


@pytest.mark.parametrize(
    "odd",
    [
        {"text": "NaN"},
        {"text": "a,NaN,b"},
        {"NaN": ",NaN,"},
        {"text": "Infinity"},
        {"list": [1, 2, {"x": None}]},
        {"null": "null"},
        {"color": Color.RED},
        {"text": "null"},
    ],
    ids=repr,
)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_many_are_written_as_each_alone(odd, place):
    payloads = [*ORDINARY[:place], odd, *ORDINARY[place:]]
    assert payloads_as_json(payloads) == [payload_as_json(payload) for payload in payloads]
    many = payloads * 300
    assert payloads_as_json(many) == [payload_as_json(payload) for payload in payloads] * 300


def test_ordinary_ones_are_written_at_once():
    assert _written_at_once(ORDINARY) == [payload_as_json(payload) for payload in ORDINARY]
    assert payloads_as_json([]) == []
    assert payloads_as_json([None]) == [None]


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ({"a": math.nan}, NotFiniteError),
        ({"a": -math.inf}, NotFiniteError),
        ({"a": "\ud800"}, InputError),
        ({"a": "x" * 2**24}, InputError),
        ({1: 2}, DtypeError),
        ({"a": {1}}, DtypeError),
        ([], DtypeError),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_one_that_is_none_is_found_among_many(bad, error):
    with pytest.raises(error):
        payloads_as_json([*ORDINARY, bad, *ORDINARY])
