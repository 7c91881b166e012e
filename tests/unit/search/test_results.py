"""Results of searches: what they are as tuples and arrays, and what they show of themselves."""

import numpy as np
import pytest

from hamtarget.answer import Cost, Costs, Hits, bytes_in_words
from hamtarget.search import Answer, Embeddings, FlatIndex, Hit, MultiIndex

BATCH = Answer(
    np.array([0, 2, 2, 3]),
    np.array([5, 9, 7]),
    np.array([0, 3, 1], dtype=np.uint16),
    costs=Costs(np.array([1, 2, 3]), np.array([4, 5, 6]), np.array([0, 0, 0])),
)


def test_a_batch_is_the_hits_of_its_queries():
    assert len(BATCH) == 3
    assert [*BATCH] == [(Hit(5, 0), Hit(9, 3)), (), (Hit(7, 1),)]
    assert [hits.cost for hits in BATCH] == [Cost(1, 4, 0), Cost(2, 5, 0), Cost(3, 6, 0)]
    assert BATCH[-1] == BATCH[2]
    assert BATCH.ids is BATCH.rows
    for query in (3, -4):
        with pytest.raises(IndexError, match=f"query {query} of a batch of 3"):
            BATCH[query]


def test_ids_of_a_store_stand_in_place_of_rows():
    named = BATCH.with_names(lambda rows: np.array([f"item {row}" for row in rows.tolist()], dtype=object))
    assert named.ids.tolist() == ["item 5", "item 9", "item 7"]
    assert [hit.id for hit in named[0]] == ["item 5", "item 9"]
    assert named[0].cost == Cost(1, 4, 0)
    assert named.with_costs(None)[0].cost is None


def test_batches_are_joined_in_their_order():
    joined = Answer.join([BATCH, BATCH])
    assert [*joined] == [*BATCH, *BATCH]
    assert [hits.cost for hits in joined] == 2 * [hits.cost for hits in BATCH]
    ranked = Answer(BATCH.offsets, BATCH.rows, BATCH.distances, np.array([0.5, 1, 2], dtype=np.float32))
    assert Answer.join([ranked, ranked]).embedding_distances.tolist() == [0.5, 1, 2, 0.5, 1, 2]


def test_results_show_themselves_in_a_line():
    assert repr(Hit("a", 2)) == "Hit(id='a', distance=2)"
    assert repr(Hit(1, 2, 0.25)) == "Hit(id=1, distance=2, embedding_distance=0.25)"
    assert repr(Hits()) == "Hits(0 hits)"
    assert repr(Hits([Hit(1, 0)])) == "Hits(1 hit: Hit(id=1, distance=0))"
    many = Hits(Hit(number, 0) for number in range(5000))
    assert repr(many).startswith("Hits(5,000 hits: Hit(id=0, distance=0), Hit(id=1, distance=0), ")
    assert repr(many).endswith(", ...)")
    assert len(repr(many)) < 120
    assert repr(BATCH) == "Answer(3 queries, 3 hits)"
    assert repr(BATCH[2]) == "Hits(1 hit: Hit(id=7, distance=1))"


def test_indexes_show_themselves_in_a_line():
    codes = np.zeros((2000, 8), dtype=np.uint8)
    index = MultiIndex(64, 2)
    index.add(np.arange(2000), codes)
    assert repr(index) == (
        f"MultiIndex(rows=2,000, n_bits=64, radius=2, substrings=3, memory={bytes_in_words(index.memory)})"
    )
    flat = FlatIndex(64, embeddings=Embeddings(12, "int8", "dot"))
    assert repr(flat) == f"FlatIndex(rows=0, n_bits=64, embeddings=12 x int8, memory={bytes_in_words(flat.memory)})"
    assert [bytes_in_words(size) for size in (0, 999, 1500, 2_340_000, 7 * 10**9)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "2.3 MB",
        "7.0 GB",
    ]
