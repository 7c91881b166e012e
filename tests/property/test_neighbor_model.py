"""A NeighborIndex against a dictionary of vectors: random additions, deletions and files, and never another answer."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hamtarget.errors import InputError
from hamtarget.query import Work
from hamtarget.search import NeighborIndex
from hamtarget.search import neighbor_index as module
from hamtarget.search.neighbors import cells

N_DIMS = 8
IDS = st.lists(st.integers(0, 400), max_size=12, unique=True)
# Whole numbers, which uint8 keeps exactly; few of them, so that many rows are at equal distances.
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), IDS, st.integers(0, 2**31)),
        st.tuples(st.just("delete"), IDS, st.just(0)),
        st.tuples(st.just("reopen"), st.just([]), st.just(0)),
        st.tuples(st.just("search"), st.just([]), st.integers(0, 2**31)),
    ),
    min_size=3,
    max_size=14,
)


def vectors_of(seed, count):
    return np.random.default_rng(seed).integers(0, 6, size=(count, N_DIMS), dtype=np.uint8) * 50


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files of an index in cells and of one that is scanned, of the same 300 vectors."""
    folder = tmp_path_factory.mktemp("neighbors")
    with pytest.MonkeyPatch.context() as patch:
        NeighborIndex("l2").fit(vectors_of(0, 300)).save(folder / "scan")
        patch.setattr(module, "FEWEST_ROWS_OF_CELLS", 10)
        patch.setattr(module, "_why_slower", lambda *_: None)
        patch.setattr(cells, "N_QUERIES", 60)
        NeighborIndex("l2", k=3).fit(vectors_of(0, 300)).save(folder / "cells")
    return folder


def check(index, model, query, k):
    """Compare an exact search of everything with the dictionary's."""
    ids, distances, costs = index.nearest(query, k, budget=10_000, comparisons=10_000, work=Work(costs=True))
    # The sketch of a deleted row may be read, its vector not.
    assert costs.candidates >= costs.comparisons == len(model)
    away = {id: float(np.linalg.norm(query.astype(float) - row)) for id, row in model.items()}
    np.testing.assert_allclose(distances, sorted(away.values())[:k], rtol=1e-5, atol=1e-3)
    np.testing.assert_allclose(distances, [away[id] for id in ids.tolist()], rtol=1e-5, atol=1e-3)
    assert len(set(ids.tolist())) == k


@pytest.mark.parametrize("way", ["scan", "cells"])
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=OPERATIONS)
def test_an_index_is_a_dictionary(way, operations, files):
    index = NeighborIndex.open(files / way)
    assert index.explain().way == way
    model = dict(enumerate(vectors_of(0, 300)))
    for name, ids, seed in operations:
        if name == "add":
            rows = vectors_of(seed, len(ids))
            if set(ids) & set(model):
                with pytest.raises(InputError, match="delete them first"):
                    index.add(np.array(ids), rows)
            else:
                index.add(np.array(ids, dtype=np.int64), rows)
                model.update(zip(ids, rows, strict=True))
        elif name == "delete":
            if set(ids) <= set(model):
                index.delete(ids)
            else:
                with pytest.raises(InputError, match="is not in this index"):
                    index.delete(ids)
                ids = [id for id in ids if id in model]
                index.delete(ids)
            for id in ids:
                del model[id]
        elif name == "reopen":
            index.save(files / f"{way}-changed")
            index = NeighborIndex.open(files / f"{way}-changed")
        else:
            check(index, model, vectors_of(seed, 1)[0], k=1 + seed % 20)
        assert len(index) == len(model)
        assert list(index) == sorted(model)
        assert [id in index for id in ids] == [id in model for id in ids]
        some = list(model)[:: max(1, len(model) // 5)]
        np.testing.assert_array_equal(index.get(some), np.array([model[id] for id in some]).reshape(-1, N_DIMS))
    check(index, model, vectors_of(7, 1)[0], k=10)
