import numpy as np
import pytest

from hamtarget.codes import substring_bounds
from hamtarget.encoders import LSH
from hamtarget.evaluation import exact_neighbors
from hamtarget.query import Asked
from hamtarget.search import MultiIndex
from research.datasets.vector_sets import VectorSet
from research.paper.probing import ProbedIndex, index_read, nearest_read


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    centres = random.integers(40, 200, size=(40, 12))
    learn, base, queries = (
        np.clip(centres[random.integers(0, 40, rows)] + random.normal(scale=10, size=(rows, 12)), 0, 255).astype(
            np.uint8
        )
        for rows in (300, 4000, 150)
    )
    return VectorSet(learn, base, queries, exact_neighbors(queries, base, 5), "generated")


@pytest.fixture(scope="module")
def encoder(vectors):
    return LSH(32, seed=1).fit(vectors.learn)


def test_nearest_read_equals_its_definition(vectors, encoder):
    base, queries = encoder.logits(vectors.base) > 0, encoder.logits(vectors.queries)
    places = []
    for logits, truth in zip(queries, vectors.neighbors[:, 0], strict=True):
        weights = np.abs(logits).astype(np.float64) * (base != (logits > 0))
        cost = np.min([weights[:, a:b].sum(axis=1) for a, b in substring_bounds(32, 2)], axis=0)
        places.append((cost < cost[truth] - 1e-3).sum() + (np.abs(cost - cost[truth]) <= 1e-3).sum() / 2)
    for read, share in nearest_read(encoder, vectors, substrings=2, reads=(10, 100, 1000)).items():
        # One query may lie on the edge, by the rounding of a sum.
        assert share == pytest.approx(np.mean(np.array(places) < read), abs=1.5 / len(queries))


def test_index_read_counts_what_one_query_after_the_other_finds(vectors, encoder):
    index = MultiIndex(32, 1)
    index.add(np.arange(len(vectors.base)), encoder.encode(vectors.base))
    shares = index_read(encoder, vectors, substrings=2, reads=(10, 100, 8000))
    for read, share in shares.items():
        found = [
            truth in {hit.id for hit in index.search(Asked(logits=logits), budget=read, radius=31)}
            for logits, truth in zip(encoder.logits(vectors.queries), vectors.neighbors[:, 0], strict=True)
        ]
        assert share == np.mean(found)
    # Two tables of 4,000 rows: whatever the order, everything has been read.
    assert 0 < shares[10] < shares[100] < shares[8000] == 1


@pytest.mark.parametrize("ranking", ["vectors", "logits"])
def test_more_rows_read_find_no_less(vectors, encoder, ranking):
    probed = ProbedIndex.of(encoder, vectors, substrings=2, ranking=ranking)
    records = probed.measure(vectors, [(20, 4000), (200, 4000), (4000, 4000)], repeats=1)
    candidates = [record["candidates"] for record in records]
    assert candidates == sorted(candidates)
    assert records[0]["comparisons"] < records[1]["comparisons"] <= 200
    if ranking == "vectors":
        recalls = [record["recall_at_100"] for record in records]
        assert recalls == sorted(recalls)
        assert recalls[-1] == 1.0
    assert all(record["queries_per_second"] > 0 and record["bytes_per_row"] > 12 for record in records)


def test_floats_rank_like_the_bytes_they_are(vectors, encoder):
    wide = VectorSet(
        vectors.learn,
        vectors.base.astype(np.float32),
        vectors.queries.astype(np.float32),
        vectors.neighbors,
        "wide",
    )
    recalls = [
        ProbedIndex.of(encoder, some, substrings=2, ranking="vectors").measure(some, [(200, 200)], repeats=1)[0]
        for some in (vectors, wide)
    ]
    assert recalls[0]["recall_at_100"] == recalls[1]["recall_at_100"]
    assert recalls[0]["bytes_per_row"] < recalls[1]["bytes_per_row"]
