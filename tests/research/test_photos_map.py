"""The parts of the measurement on photos: who is learned from, searched in and searched for; the cosine's MAP."""

import numpy as np
import pytest

from research.benchmarks.photos_map import cosine_map, situations, split

LABELS = np.repeat(np.arange(9), 12)


def test_queries_are_never_searched_in():
    kept, asked = split(LABELS, photos=6, queries=2)
    assert np.bincount(LABELS[kept]).tolist() == [6] * 9
    assert np.bincount(LABELS[asked]).tolist() == [2] * 9
    assert not np.intersect1d(kept, asked).size
    np.testing.assert_array_equal(kept, split(LABELS, photos=6, queries=2)[0])
    # A smaller class gives what its queries leave.
    assert np.bincount(LABELS[split(LABELS, photos=100, queries=2)[0]]).tolist() == [10] * 9
    with pytest.raises(SystemExit, match="has 12 photos; expected 11 queries and 2 more"):
        split(LABELS, photos=6, queries=11)


def test_situations_are_what_they_are_called():
    kept, asked = split(LABELS, photos=6, queries=2)
    found = situations(LABELS, kept, asked)
    known, added, unlabelled = (found[name] for name in ("known", "added", "unlabelled"))
    np.testing.assert_array_equal(known.learned, known.database)
    assert not np.intersect1d(added.learned, added.database).size
    assert np.bincount(LABELS[added.learned]).tolist() == [3] * 9
    assert np.bincount(LABELS[added.database]).tolist() == [3] * 9
    assert not set(LABELS[unlabelled.learned]) & set(LABELS[unlabelled.database])
    assert set(LABELS[unlabelled.queries]) == set(LABELS[unlabelled.database])
    assert len(set(LABELS[unlabelled.database])) == 3
    for at in found.values():
        assert not np.intersect1d(at.queries, np.union1d(at.learned, at.database)).size


def test_cosine_map_is_the_mean_of_precision_at_what_is_relevant():
    random = np.random.default_rng(0)
    queries, database = random.normal(size=(5, 3)).astype(np.float32), random.normal(size=(20, 3)).astype(np.float32)
    relevant = random.random((5, 20)) < 0.3
    expected = []
    for query, wanted in zip(queries, relevant, strict=True):
        cosines = [float(query @ row / np.linalg.norm(query) / np.linalg.norm(row)) for row in database]
        order = sorted(range(20), key=lambda row: -cosines[row])
        hits = [rank for rank, row in enumerate(order, start=1) if wanted[row]]
        expected.append(np.mean([(place + 1) / rank for place, rank in enumerate(hits)]))
    assert cosine_map(queries, database, relevant) == pytest.approx(np.mean(expected))
