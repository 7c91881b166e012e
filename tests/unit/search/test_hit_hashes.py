"""Hits hash as the plain tuples that they equal, although the core makes them without calling their types."""

from typing import NamedTuple

import numpy as np
import pytest

from hamtarget import _native
from hamtarget.search import MultiIndex

FIRST_NAMED = 2**62
RNG = np.random.default_rng(11)
CODES = RNG.integers(0, 256, (3000, 8), dtype=np.uint8)
CODES[1::2] = CODES[0]
EMBEDDINGS = RNG.standard_normal((3000, 4)).astype(np.float32)


class Hit(NamedTuple):
    id: object
    distance: int
    embedding_distance: float | None = None


class Hits(tuple[Hit, ...]):
    pass


def found(*, query=CODES[0], names=None, rerank=0, shift=0):
    core = _native.MultiIndex(8, 3, 2, 4)
    core.add(np.arange(3000, dtype=np.int64) + shift, CODES, EMBEDDINGS.view(np.uint8))
    embeddings = EMBEDDINGS[:1].view(np.uint8) if rerank else None
    search = _native.Search(query[None], 2, rerank=rerank, embeddings=embeddings)
    return core.search_one(search, Hits, Hit, names)[0]


def names_of_rows():
    names = _native.RowNames(FIRST_NAMED)
    names.add({FIRST_NAMED + i: f"picture-{i}" for i in range(3000)})
    return names


CASES = {
    "plain": lambda: found(),
    "reranked": lambda: found(rerank=100),
    "named": lambda: found(names=names_of_rows(), shift=FIRST_NAMED),
    "named and reranked": lambda: found(names=names_of_rows(), shift=FIRST_NAMED, rerank=100),
    "none": lambda: found(query=~CODES[0]),
}


@pytest.mark.parametrize("case", CASES)
def test_hashes_are_those_of_plain_tuples(case):
    hits = CASES[case]()
    plain = tuple(tuple(hit) for hit in hits)
    assert hits == plain
    for _ in range(2):  # the second time, Python 3.14 has the hash in the object
        assert hash(hits) == hash(plain)
        assert [hash(hit) for hit in hits] == [hash(hit) for hit in plain]
    assert (len(hits) == 0) == (case == "none")


@pytest.mark.parametrize("case", CASES)
def test_hits_and_plain_tuples_mix_in_sets_and_dicts(case):
    hits = CASES[case]()
    plain = [tuple(hit) for hit in hits]
    assert set(hits) == set(plain)
    assert len({*hits, *plain}) == len(set(plain))
    places = {hit: place for place, hit in enumerate(plain)}
    assert [places[hit] for hit in hits] == list(range(len(plain)))
    assert {hits: 1}[tuple(plain)] == 1
    assert {tuple(plain): 1}[hits] == 1


def test_there_are_no_hits_where_a_name_is_not_known():
    assert found(names=_native.RowNames(FIRST_NAMED), shift=FIRST_NAMED) is None


def test_hashes_of_an_index():
    index = MultiIndex(64, radius=2)
    index.add(np.arange(len(CODES)), CODES)
    for code in (CODES[0], ~CODES[0]):
        hits = index.search(code, 2)
        plain = tuple(tuple(hit) for hit in hits)
        assert hash(tuple(hits)) == hash(plain)
        assert set(hits) == set(plain)
