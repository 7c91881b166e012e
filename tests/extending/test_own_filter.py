"""A kind of filter of your own: a frozen dataclass with `passes`, for searches, counts and scans of a folder."""

from dataclasses import dataclass

import numpy as np
import pytest

from hamtarget import Store
from hamtarget.errors import DtypeError
from hamtarget.filters import Condition, Filter, Range
from hamtarget.store import Item

N_ITEMS = 300
CODES = np.random.default_rng(0).integers(0, 256, (N_ITEMS, 8), dtype=np.uint8)


@dataclass(frozen=True, slots=True)
class Prefix(Condition):
    """Texts that begin with another one."""

    prefix: str

    def __post_init__(self):
        if not isinstance(self.prefix, str):
            raise DtypeError(f"prefix is {self.prefix!r}; expected a string")

    def passes(self, value):
        return isinstance(value, str) and value.startswith(self.prefix)


def payload(number):
    """Return a payload whose name begins with a, b or c; some have another type, and some no name."""
    name = number if number % 10 == 0 else f"{'abc'[number % 3]}-{number}"
    return {"year": 2000 + number % 20} | ({} if number % 7 == 0 else {"name": name})


PAYLOADS = [payload(number) for number in range(N_ITEMS)]
IN_A = [number for number, each in enumerate(PAYLOADS) if str(each.get("name", "")).startswith("a")]


@pytest.fixture
def store(tmp_path):
    with Store.create(tmp_path / "store", n_bits=64, radius=2) as store:
        store.put(Item(number, code=CODES[number], payload=each) for number, each in enumerate(PAYLOADS))
        yield store


def test_searches_counts_and_scans(store):
    wanted = {"name": Prefix("a")}
    assert [hit.id for hit in store.search(code=CODES[IN_A[0]], filter=wanted)] == [IN_A[0]]
    assert store.search(code=CODES[1], filter=wanted) == ()
    assert sorted(hit.id for hit in store.search(code=CODES[0], radius=63, filter=wanted)) == IN_A
    assert sorted(hit.id for hit in store.nearest(code=CODES[0], k=N_ITEMS, filter=wanted)) == IN_A
    assert store.count(wanted) == len(IN_A)
    assert sorted(item.id for item in store.scan(wanted)) == IN_A


def test_it_goes_with_other_kinds(store):
    both = {"name": Prefix("a"), "year": Range(min=2010)}
    expected = [number for number in IN_A if PAYLOADS[number]["year"] >= 2010]
    assert sorted(hit.id for hit in store.search(code=CODES[0], radius=63, filter=both)) == expected
    assert store.count(both) == len(expected)


def test_it_goes_through_json():
    wanted = Filter.of({"name": Prefix("a"), "year": 2010})
    assert wanted.as_json() == {"name": {"prefix": "a"}, "year": 2010}
    assert Filter.from_json(wanted.as_json()) == wanted
    with pytest.raises(DtypeError, match="expected a string"):
        Filter.from_json({"name": {"prefix": 1}})
