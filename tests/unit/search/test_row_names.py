"""Names of rows, in Python and in the native core, beside a dict."""

import sys
import threading

import numpy as np
import pytest

from hamtarget.answer import Hits
from hamtarget.query import Asked, Query
from hamtarget.search import Embeddings, Hit, MultiIndex
from hamtarget.search.row_names import RowNames

FIRST = 2**62
LAST = 2**63 - 1
RNG = np.random.default_rng(23)


def some_rows(n_rows):
    """Rows that are their own ids and rows that are not, those at the ends of int64 among them; each once."""
    below = RNG.integers(-(2**63), FIRST, n_rows // 4)
    ends = [-(2**63), -1, 0, FIRST - 1, FIRST]
    return np.unique(np.concatenate((ends, below, FIRST + RNG.integers(0, 3 * n_rows, n_rows)))).astype(np.int64)


def name_of(row):
    """As various as ids are: strings of one, two and four bytes a character, and large integers."""
    return [f"picture-{row}", f"Käse-{row}", f"\N{PILE OF POO}{row}", row + 1 - 2**40][row % 4]


def named_index(**settings):
    return MultiIndex(64, 2, **settings), RowNames(FIRST)


def search(index, names, code, vector=None, rerank=None):
    """Hits with names, if all of them are known, or None."""
    return index.find_one_named(index.request(Asked(code[None], embeddings=vector), Query(2, rerank=rerank)), names)


def test_what_is_known_is_what_a_dict_knows():
    for n_rows in (1, 30, 500):
        rows = some_rows(n_rows)
        known = {row: row for row in rows.tolist() if row < FIRST}
        names = RowNames(FIRST)
        unknown = RNG.permutation(rows[rows >= FIRST]).tolist()
        while True:
            assert names.are_known(rows).tolist() == [row in known for row in rows.tolist()]
            for _ in range(20):
                asked = RNG.choice(rows, RNG.integers(0, 4))
                assert names.know(asked) == all(row in known for row in asked.tolist())
            there = RNG.permutation([row for row in rows.tolist() if row in known]).astype(np.int64)
            ids = names.of(there)
            assert ids.tolist() == [known[row] for row in there.tolist()]
            assert (ids.dtype == object) == any(row >= FIRST for row in there.tolist())
            if not unknown:
                break
            n_new = int(RNG.integers(1, 1 + len(unknown)))
            new = {row: name_of(row) for row in unknown[:n_new]}
            del unknown[:n_new]
            names.add(new)
            known.update(new)


def test_the_last_row_can_have_a_name():
    names = RowNames(LAST - 3)
    names.add({LAST - 1: "b"})
    assert not names.know(np.array([LAST]))
    names.add({LAST - 2: "a"})
    assert names.of(np.array([LAST - 1, LAST - 2])).tolist() == ["b", "a"]


@pytest.mark.parametrize("rerank", [None, 40])
def test_hits_of_one_query_have_names_if_all_are_known(rerank):
    rows = some_rows(400)
    codes = RNG.integers(0, 2, (len(rows), 8), dtype=np.uint8)
    vectors = RNG.standard_normal((len(rows), 4)).astype(np.float32)
    plain = MultiIndex(64, 2, embeddings=Embeddings(4))
    index, names = named_index(embeddings=Embeddings(4))
    for each in (plain, index):
        each.add(rows, codes, vectors)
    known = {}
    named = 0
    for block in np.array_split(RNG.permutation(rows[rows >= FIRST]), 30):
        for query, vector in zip(codes[:40], vectors[:40], strict=True):
            vectors_asked = None if rerank is None else vector[None]
            found = search(index, names, query, vectors_asked, rerank)
            asked = Asked(query[None], embeddings=vectors_asked)
            (expected,) = plain.search_batch(asked, rerank=rerank)
            assert index.search_batch(asked, rerank=rerank)[0] == expected
            if all(hit.id < FIRST or hit.id in known for hit in expected):
                named += any(hit.id >= FIRST for hit in expected)
                assert type(found) is Hits
                assert found == tuple((known.get(hit.id, hit.id), *hit[1:]) for hit in expected)
                assert all(type(hit) is Hit for hit in found)
            else:
                assert found is None
        new = {row: name_of(row) for row in block.tolist()}
        names.add(new)
        known.update(new)
    assert named > 0
    # A batch has row numbers, whatever is known.
    assert np.array_equal(index.search_batch(codes[:40]).ids, plain.search_batch(codes[:40]).ids)


def test_names_are_given_back_when_nobody_needs_them():
    index, names = named_index()
    index.add([FIRST], np.zeros((1, 8), np.uint8))
    name = "".join(["a", " name of its own"])
    before = sys.getrefcount(name)
    names.add({FIRST: name})
    assert sys.getrefcount(name) == before + 1
    hits = [search(index, names, np.zeros(8, np.uint8)) for _ in range(10)]
    assert all(found[0].id is name for found in hits)
    assert sys.getrefcount(name) == before + 11
    del hits
    assert sys.getrefcount(name) == before + 1
    # The table grows; what held it before is gone.
    names.add({FIRST + 1000: "another"})
    assert sys.getrefcount(name) == before + 1
    del names
    assert sys.getrefcount(name) == before


def test_hits_stay_when_names_and_index_are_gone():
    index, names = named_index()
    index.add([FIRST, 7], np.zeros((2, 8), np.uint8))
    names.add({FIRST: f"name {FIRST}"})
    found = search(index, names, np.zeros(8, np.uint8))
    del index, names
    assert found == ((7, 0, None), (f"name {FIRST}", 0, None))


def test_threads_search_while_one_adds_names():
    rows = FIRST + np.arange(3000)
    codes = RNG.integers(0, 2, (len(rows), 8), dtype=np.uint8)
    index, names = named_index()
    index.add(rows, codes)
    expected = [
        tuple((name_of(row), distance) for row, distance, _ in found) for found in index.search_batch(codes[:50])
    ]
    wrong, done = [], threading.Event()

    def look():
        while not done.is_set():
            for query, wanted in zip(codes[:50], expected, strict=True):
                found = search(index, names, query)
                if found is not None and tuple(hit[:2] for hit in found) != wanted:
                    wrong.append(found)

    threads = [threading.Thread(target=look) for _ in range(2)]
    for thread in threads:
        thread.start()
    for row in RNG.permutation(rows).tolist():
        names.add({row: name_of(row)})
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert [tuple(hit[:2] for hit in search(index, names, query)) for query in codes[:50]] == expected


def test_the_core_refuses_what_is_not_a_row_with_an_id_of_its_own():
    names = RowNames(FIRST)
    with pytest.raises(ValueError, match="below"):
        names.add({FIRST - 1: "a"})
    with pytest.raises(RuntimeError, match="cast"):
        names.add({"a": "b"})
    with pytest.raises(TypeError):
        names.add(["a"])
    assert len(names) == 0


def test_rows_far_apart_take_little_memory():
    names = RowNames(FIRST)
    names.add({FIRST: "first", LAST: "last"})
    assert names.of(np.array([LAST, FIRST])).tolist() == ["last", "first"]
    assert len(names) == 2
