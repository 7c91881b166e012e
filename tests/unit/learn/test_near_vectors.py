"""Learning from near vectors: whose neighbours, by which metric, and how long."""

import numpy as np
import pytest
import torch

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn import HashEncoder, Labels, Neighbors, NetworkOptions, ProbingLoss, TrainingOptions
from hamtarget.learn.fitting.arrays import vector_markers, vector_training
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors

RNG = np.random.default_rng(2)
VECTORS = RNG.normal(size=(150, 5)).astype(np.float32) + 1
FAST = TrainingOptions(steps=4, batch_size=16)


def naive_neighbors(vectors, k, metric):
    """The nearest others of each row, by a sort of all."""
    vectors = vectors.astype(np.float64)
    if metric == "l2":
        far = ((vectors[:, None] - vectors[None]) ** 2).sum(2)
    else:
        if metric == "cosine":
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        far = -vectors @ vectors.T
    np.fill_diagonal(far, np.inf)
    return np.argsort(far, axis=1)[:, :k]


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_neighbours_of_all_and_of_some_are_those_of_a_sort(metric):
    expected = naive_neighbors(VECTORS, 4, metric)
    np.testing.assert_array_equal(nearest_neighbors(VECTORS, 4, metric=metric).numpy(), expected)
    some = torch.tensor([7, 3, 149])
    told = []
    found = nearest_neighbors(
        VECTORS, 4, metric=metric, rows=some, progress=lambda done, total: told.append((done, total))
    )
    np.testing.assert_array_equal(found.numpy(), expected[some])
    assert told[-1] == (3, 3)


def test_zeros_have_no_cosine_and_metrics_have_names():
    rows = VECTORS.copy()
    rows[11] = 0
    with pytest.raises(InputError, match="row 11"):
        nearest_neighbors(rows, 4, metric="cosine")
    with pytest.raises(InputError, match="metric"):
        nearest_neighbors(rows, 4, metric="angle")


def test_lists_of_some_items_are_a_relation_among_all():
    some = Neighbors([[4, 0], [1, 2]], items=[3, 0], n_items=5)
    dense = np.zeros((5, 5), dtype=bool)
    dense[3, [4, 0]] = dense[0, [1, 2]] = True
    # An item may be in a batch twice.
    items = torch.tensor([4, 3, 0, 1, 0, 2])
    found = some.between(items, items).numpy()
    np.testing.assert_array_equal(found, dense[np.ix_(items, items)])
    assert some.counts().tolist() == [2, 0, 0, 2, 0]
    assert some.markers(3).tolist() == [0, 3]
    drawn = some.draw(torch.tensor([3, 0]), 2, torch.Generator().manual_seed(0))
    assert [sorted(row) for row in drawn.tolist()] == [[0, 4], [1, 2]]
    part = some.subset(torch.tensor([0, 2, 3]))
    np.testing.assert_array_equal(part.between(*[torch.arange(3)] * 2).numpy(), dense[np.ix_([0, 2, 3], [0, 2, 3])])
    with pytest.raises(InputError, match="twice"):
        Neighbors([[1], [2]], items=[0, 0], n_items=3)
    with pytest.raises(InputError, match="own list"):
        Neighbors([[1]], items=[1], n_items=3)
    with pytest.raises(InputError, match="outside"):
        Neighbors([[1]], items=[3], n_items=3)
    with pytest.raises(ShapeError):
        Neighbors([[1], [0]], items=[2], n_items=3)


def test_rows_without_a_similar_one_change_nothing():
    logits = torch.randn(12, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    similar = torch.zeros(12, 12, dtype=torch.bool)
    similar[2, [5, 7]] = similar[9, 1] = True
    loss = ProbingLoss(16, substrings=2)
    # Each query with a similar row alone, by hand.
    costs = loss._costs(logits, logits)
    total = 0.0
    for share, closeness in (
        (1.0, costs.div(-loss.temperature).logsumexp(dim=0)),
        (loss.choosing_weight, costs.sum(dim=0) / -loss.choosing_temperature),
    ):
        each = []
        for query, near in ((2, 5), (2, 7), (9, 1)):
            rivals = [closeness[query, row] for row in range(12) if row != query and not similar[query, row]]
            each.append(torch.logsumexp(torch.stack([closeness[query, near], *rivals]), 0) - closeness[query, near])
        total += share * float(torch.stack(each).mean())
    assert float(loss(logits, similar).total) == pytest.approx(total, rel=1e-9)


def test_length_does_not_count_by_cosine(tmp_path):
    encoder = HashEncoder(16, network=NetworkOptions(width=8), training=FAST, device="cpu", metric="cosine")
    encoder.fit(VECTORS)
    lengths = RNG.uniform(0.1, 9, (150, 1)).astype(np.float32)
    np.testing.assert_allclose(encoder.logits(VECTORS * lengths), encoder.logits(VECTORS), atol=1e-4)
    encoder.save(tmp_path)
    loaded = HashEncoder.load(tmp_path, device="cpu")
    assert (loaded.neighbor_metric, loaded.metric, loaded.substrings) == ("cosine", "cosine", 1)
    np.testing.assert_array_equal(loaded.logits(VECTORS), encoder.logits(VECTORS))


def test_a_metric_is_for_vectors_alone():
    encoder = HashEncoder(16, network=NetworkOptions(width=8), training=FAST, device="cpu", metric="dot")
    with pytest.raises(InputError, match="vectors alone"):
        encoder.fit(VECTORS, np.arange(150) % 5)
    with pytest.raises(InputError, match="metric"):
        HashEncoder(16, training=FAST, device="cpu", metric="angle").fit(VECTORS)
    labelled = HashEncoder(16, network=NetworkOptions(width=8), training=FAST, device="cpu")
    labelled.fit(VECTORS, Labels(np.arange(150) % 5))
    assert (labelled.neighbor_metric, labelled.substrings) == (None, None)


def test_many_vectors_are_learned_from_in_large_batches_around_some_of_them():
    assert vector_training(9_999) == TrainingOptions()
    many = vector_training(10_000)
    assert (many.batch_size, many.steps_for(10_000)) == (1024, 800)
    assert vector_markers(25_000, 0) is None
    some = vector_markers(26_000, 0)
    assert len(some) == len(set(some.tolist())) == 25_000
    assert some.tolist() == sorted(some.tolist())
    assert 0 <= int(some[0]) <= int(some[-1]) < 26_000
