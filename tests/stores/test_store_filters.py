"""Filters: exactly the items that a loop over the payloads would take, however the search goes about it."""

import math

import numpy as np
import pytest

from hamtarget.codes import distances, unpack
from hamtarget.errors import DtypeError, InputError, NotFiniteError
from hamtarget.filters import Filter
from hamtarget.query import Asked
from hamtarget.search import MultiIndex
from hamtarget.store import Item, Range, Store
from hamtarget.store.sqlite.index import searching
from hamtarget.store.sqlite.tables import database, filters

RNG = np.random.default_rng(5)
CODES = RNG.integers(0, 256, (600, 4), dtype=np.uint8)
ODD = "é 1.$[0]'%"
PAYLOADS = [
    {
        "label": f"class {number % 7}",
        "number": number,
        "half": number / 2,
        "flag": number % 3 == 0,
        "date": f"2024-{number % 12 + 1:02}-{number % 28 + 1:02}",
        ODD: number % 5,
        **({"rare": [None, "a\0b", "a", "a\0", 1, 1.0, True, "1"][number % 8]} if number % 4 else {}),
    }
    if number % 50
    else None
    for number in range(600)
]


def naive(payload, filter):
    """Whether a payload passes, without SQLite."""
    for field, wanted in filter.items():
        if payload is None or field not in payload:
            return False
        value = payload[field]
        if isinstance(wanted, Range):
            bounds = [bound for bound in (wanted.min, wanted.max) if bound is not None]
            if value is None or isinstance(value, bool) or isinstance(value, str) != isinstance(bounds[0], str):
                return False
            if (wanted.min is not None and value < wanted.min) or (wanted.max is not None and value > wanted.max):
                return False
        elif isinstance(value, bool) != isinstance(wanted, bool) or value != wanted:
            return False
    return True


FILTERS = [
    {"label": "class 3"},
    {"label": "class 3", "flag": True},
    {"number": 17},
    {"number": 17.0},
    {"half": 8},
    {"half": 8.5},
    {"number": Range(100, 110)},
    {"half": Range(max=3.25)},
    {"half": Range(min=297, max=math.inf)},
    {"number": Range(min=2**70)},
    {"date": Range("2024-03-01", "2024-04-30")},
    {"date": Range(min="2024-12")},
    {"number": Range("a", "b")},
    {"flag": False},
    {"flag": 0},
    {"rare": None},
    {"rare": "a"},
    {"rare": "a\0b"},
    {"rare": "a\0"},
    {"rare": Range("a", "a\0a")},
    {"rare": Range("a\0a")},
    {"rare": 1},
    {"rare": "1"},
    {"rare": True},
    {ODD: 3, "number": Range(5, 500), "flag": True},
    {"nowhere": 1},
    {"label": "' OR 1=1 --"},
    {},
]


@pytest.fixture(scope="module", params=["folder", "postgres"])
def store(request, tmp_path_factory):
    from hamtarget.store import Store

    if request.param == "folder":
        place = tmp_path_factory.mktemp("filters") / "store"
    else:
        place = request.getfixturevalue("postgres_server").url(store="filters")
    ids = [number if number % 2 else f"{number}" for number in range(600)]
    with Store.create(place, n_bits=32, radius=6) as store:
        store.put(Item(id, code=code, payload=payload) for id, code, payload in zip(ids, CODES, PAYLOADS, strict=True))
        yield store


@pytest.fixture(params=[1e-3, 4, 10**9], ids=["hits are checked", "as it is", "filter first"])
def way(request, monkeypatch):
    """Both ways of searching with a filter, whichever would be chosen."""
    monkeypatch.setattr(searching, "_LOOK_UP_COST", request.param)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("filter", FILTERS, ids=repr)
def test_filtered_searches_find_what_a_loop_finds(store, filter):
    order = sorted(range(600), key=lambda number: (number % 2 == 0, number))
    passing = [number for number in order if naive(PAYLOADS[number], filter)]
    ids = [number if number % 2 else f"{number}" for number in passing]
    assert [item.id for item in store.scan(filter)] == ids
    assert store.count(filter) == len(ids)
    queries = CODES[:5]
    table = distances(queries, CODES[passing], 32) if passing else np.zeros((5, 0), dtype=int)
    for radius, limit in ((6, None), (12, None), (14, 3)):
        hits = store.search_batch(codes=queries, radius=radius, limit=limit, filter=filter)
        for query in range(5):
            ranked = sorted((int(distance), place) for place, distance in enumerate(table[query]) if distance <= radius)
            expected = [(ids[place], distance) for distance, place in ranked[:limit]]
            assert [(hit.id, hit.distance) for hit in hits[query]] == expected
            one = store.search(code=queries[query], radius=radius, limit=limit, filter=filter)
            assert [(hit.id, hit.distance) for hit in one] == expected
    for k in (1, 4, 50, 1000):
        hits = store.nearest_batch(codes=queries, k=k, filter=filter)
        for query in range(5):
            ranked = sorted((int(distance), place) for place, distance in enumerate(table[query]))[:k]
            assert [(hit.id, hit.distance) for hit in hits[query]] == [(ids[place], dist) for dist, place in ranked]


def test_numbers_are_compared_to_the_last_bit(stores):
    """SQLite itself promises 15 digits only."""
    numbers = RNG.normal(size=300) * 10.0 ** RNG.integers(-300, 300, 300)
    with stores.create(n_bits=32) as store:
        store.put(Item(n, code=CODES[0], payload={"x": float(x)}) for n, x in enumerate(numbers))
        for place, number in enumerate(numbers.tolist()):
            assert [item.id for item in store.scan({"x": number})] == [place]
            above = math.nextafter(number, math.inf)
            assert store.count({"x": above}) == 0
            if place % 10 == 0:
                assert {item.id for item in store.scan({"x": Range(min=above)})} == set(
                    np.flatnonzero(numbers >= above).tolist()
                )
                assert store.count({"x": Range(number, number)}) == 1


@pytest.mark.parametrize("number", [0, -0.0, 2**53 + 1, float(2**60), 2**63, 10**22, 1e22, 1e300, 10**400, -1])
def test_integers_of_any_size_are_found(stores, number):
    with stores.create(n_bits=32) as store:
        store.put([Item(1, code=CODES[0], payload={"x": number}), Item(2, code=CODES[0], payload={"x": 12.5})])
        assert [item.id for item in store.scan({"x": number})] == [1]
        assert [item.id for item in store.scan({"x": Range(number, number)})] == [1]
        if isinstance(number, int) and abs(number) < 10**300:
            assert store.count({"x": number + 1}) == 0
            assert store.count({"x": float(number)}) == (float(number) == number)


def test_ranges_of_strings_go_by_code_points(stores):
    texts = [
        "",
        "\0",
        "a",
        "a\0",
        "a\0b",
        "a\1",
        "ab",
        "b",
        "é",
        "\ud7ff",
        "\ue000",
        "\uffff",
        "\U00010000",
        "\U0010ffff",
    ]
    payloads = [{"x": value} for value in [*texts, 5, True, None, -1.5]]
    with stores.create(n_bits=32) as store:
        store.put(Item(n, code=CODES[0], payload=payload) for n, payload in enumerate(payloads))
        for low in [None, *texts, 0]:
            for high in [None, *texts, 7]:
                if (low is None and high is None) or (None not in (low, high) and type(low) is not type(high)):
                    continue
                filter = {"x": Range(low, high)}
                wanted = [n for n, payload in enumerate(payloads) if naive(payload, filter)]
                assert [item.id for item in store.scan(filter)] == wanted, filter


@pytest.mark.parametrize("text", ["a\ud800", "\udfff"])
def test_a_bound_may_hold_half_a_pair_of_surrogates(tmp_path, text):
    with Store.create(tmp_path / "store", n_bits=32) as store:
        store.put([Item(n, code=CODES[0], payload={"x": x}) for n, x in enumerate(["a", "a\U00010000", "b"])])
        assert [item.id for item in store.scan({"x": Range(max=text)})] == [
            n for n, x in enumerate(["a", "a\U00010000", "b"]) if x <= text
        ]


def test_numbers_far_from_a_range_are_not_compared_in_python(tmp_path, monkeypatch):
    asked = []
    real = filters.passes
    monkeypatch.setattr(database, "passes", lambda *values: asked.append(values) or real(*values))
    with Store.create(tmp_path / "store", n_bits=32) as store:
        store.put(Item(n, code=CODES[0], payload={"x": n, "day": f"2024-{n:03}"}) for n in range(100))
        assert store.count({"x": Range(40, 49.5)}) == 10
        assert store.count({"day": Range("2024-040", "2024-049")}) == 10
    assert len(asked) == 20


@pytest.mark.parametrize(
    ("filter", "error", "what"),
    [
        ({"a": [1]}, DtypeError, "expected a string, number"),
        ({"a": math.nan}, NotFiniteError, "nan"),
        ({1: 1}, DtypeError, "expected a string"),
        ({'a"b': 1}, InputError, "rename"),
        ({"a\\b": 1}, InputError, "rename"),
        ({"a\0b": 1}, InputError, "rename"),
    ],
    ids=repr,
)
def test_filters_that_cannot_be_are_refused(store, filter, error, what):
    with pytest.raises(error, match=what):
        store.search(code=CODES[0], filter=filter)
    with pytest.raises(error, match=what):
        next(store.scan(filter))


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        ((), InputError),
        ((1, "a"), DtypeError),
        ((math.nan,), NotFiniteError),
        ((True,), DtypeError),
        (([],), DtypeError),
    ],
)
def test_ranges_that_cannot_be_are_refused(bounds, error):
    with pytest.raises(error, match="Range"):
        Range(*bounds)


def test_a_filter_goes_with_reranking(stores):
    from hamtarget.search import Embeddings

    vectors = RNG.normal(size=(200, 3))
    with stores.create(n_bits=32, radius=2, embeddings=Embeddings(3)) as store:
        store.put_rows(range(200), codes=np.tile(CODES[0], (200, 1)), embeddings=vectors, payloads=PAYLOADS[:200])
        hits = store.search(Asked(CODES[0], embeddings=vectors[0]), filter={"label": "class 3"}, rerank=5)
        passing = [number for number in range(200) if naive(PAYLOADS[number], {"label": "class 3"})]
        closest = np.argsort(np.linalg.norm(vectors[passing] - vectors[0], axis=1))[:5]
        assert [hit.id for hit in hits] == [passing[place] for place in closest]


@pytest.mark.parametrize("most_hits", [1, 700, 2_000_000])
@pytest.mark.parametrize("kind", ["search", "nearest", "probe"])
def test_a_filtered_batch_holds_no_more_hits_than_a_few_queries_have(folder_stores, monkeypatch, kind, most_hits):
    """What is looked at before the limit counts does not grow with rows x queries."""
    monkeypatch.setattr(searching, "_MOST_HITS", most_hits)
    held = []
    find = MultiIndex.find

    def counted(index, request):
        hits = find(index, request)
        held.append(len(hits.rows))
        return hits

    monkeypatch.setattr(MultiIndex, "find", counted)
    n_queries = 200
    queries = RNG.integers(0, 256, (n_queries, 4), dtype=np.uint8)
    with folder_stores.create(n_bits=32, radius=2, durability="os") as store:
        store.put_rows(range(600), codes=CODES, payloads=[{"odd": number % 2} for number in range(600)])
        for wanted in ({"odd": 1}, {"odd": 2}):
            held.clear()
            if kind == "search":
                found = store.search_batch(codes=queries, radius=31, limit=1, filter=wanted)
            elif kind == "nearest":
                found = store.nearest_batch(codes=queries, k=1, filter=wanted)
            else:
                logits = unpack(queries, 32) - 0.5
                found = store.search_batch(Asked(logits=logits), budget=600, radius=31, limit=1, filter=wanted)
            # The answer, and looks at one query after another or at so many hits; all rows of all queries are 120,000.
            assert max(held) <= max(600, n_queries, 4 * n_queries if kind == "nearest" else 0)
            passing = [number for number in range(600) if number % 2 == wanted["odd"]]
            table = distances(queries, CODES[passing], 32) if passing else np.zeros((n_queries, 0), dtype=int)
            nearest = [[passing[int(row.argmin())]] if len(row) else [] for row in table]
            assert [[hit.id for hit in hits] for hits in found] == nearest


def test_a_filter_goes_to_json_and_back():
    wanted = Filter.of({"kind": "photo", "year": Range(min=2020), "seen": True})
    assert wanted.as_json() == {"kind": "photo", "year": {"min": 2020}, "seen": True}
    assert Filter.from_json(wanted.as_json()) == wanted == Filter.from_json(wanted)
    assert hash(Filter.from_json(wanted.as_json())) == hash(wanted)
    assert Filter.of({"seen": 1}) != Filter.of({"seen": True})
    assert Filter.from_json(None) is Filter.from_json({}) is None
    for wrong in (5, "kind", [1], {"year": {"most": 1}}):
        with pytest.raises(InputError, match="expected"):
            Filter.from_json(wrong)
