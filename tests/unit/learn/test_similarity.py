import numpy as np
import pytest
import torch

from hamtarget.errors import DtypeError, InputError, ShapeError, SimilarityError
from hamtarget.learn import GroupBatchSampler, Labels, MultiLabels, Neighbors, SimilarPairs
from hamtarget.learn.similarity.as_similarity import as_similarity
from hamtarget.learn.similarity.custom import Custom
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors

N = 40


def relations():
    """Each kind of similarity beside a dense matrix of the same relation, made by a plain loop."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 6, N)
    several = random.random((N, 8)) < 0.25
    shared = several.astype(int) @ several.T
    united = several.sum(1)[:, None] + several.sum(1) - shared
    lists = np.array([random.permutation(np.delete(np.arange(N), i))[:7] for i in range(N)])
    listed = np.zeros((N, N), dtype=bool)
    for i, row in enumerate(lists):
        listed[i, row] = True
    edges = random.integers(0, N, (150, 2))
    paired = np.zeros((N, N), dtype=bool)
    for i, j in edges:
        paired[i, j] = paired[j, i] = True
    one_way = np.zeros((N, N), dtype=bool)
    for i, j in edges:
        one_way[i, j] = True
    position = random.random(N)
    near = abs(position[:, None] - position) < 0.15
    where = torch.from_numpy(position)
    yield "labels", Labels(labels), labels[:, None] == labels
    yield "text labels", Labels([f"class {c}" for c in labels]), labels[:, None] == labels
    yield "share a label", MultiLabels(several), shared > 0
    yield "jaccard", MultiLabels(several, jaccard=0.2), shared > 0.2 * united
    yield "neighbors", Neighbors(lists), listed
    yield "pairs", SimilarPairs(edges, N), paired
    yield "pairs one way", SimilarPairs(edges, N, symmetric=False), one_way
    yield "function", Custom(lambda i, j: (where[i][:, None] - where[j]).abs() < 0.15, N), near


KINDS = [pytest.param(*rest, id=name) for name, *rest in relations()]


@pytest.mark.parametrize(("similarity", "dense"), KINDS)
def test_a_batch_gets_the_relation_of_its_items(similarity, dense):
    items = torch.from_numpy(np.random.default_rng(1).integers(0, N, 25))
    expected = dense[items][:, items] | (items[:, None] == items).numpy()
    np.testing.assert_array_equal(similarity.matrix(items).numpy(), expected)
    rows, columns = items[:5], items[5:]
    off = (rows[:, None] != columns).numpy()
    np.testing.assert_array_equal(similarity.between(rows, columns).numpy()[off], dense[rows][:, columns][off])


@pytest.mark.parametrize(("similarity", "dense"), KINDS)
def test_draws_are_similar_different_and_uniform(similarity, dense):
    dense = dense & ~np.eye(N, dtype=bool)
    able = np.flatnonzero(dense.sum(1) >= 3)
    assert len(able)
    markers = torch.from_numpy(np.repeat(able, 400))
    drawn = similarity.draw(markers, 3, torch.Generator().manual_seed(0)).numpy()
    assert drawn.shape == (len(markers), 3)
    assert dense[markers[:, None], drawn].all()
    assert all(len(set(row)) == 3 for row in drawn)
    for marker in able:
        mine = drawn[markers.numpy() == marker]
        expected = 400 * 3 / dense[marker].sum()
        counts = np.bincount(mine.ravel(), minlength=N)[dense[marker]]
        # Five standard deviations of a binomial count: a biased draw fails, chance does not.
        assert abs(counts - expected).max() < 5 * np.sqrt(expected) + 1


@pytest.mark.parametrize(("similarity", "dense"), KINDS)
def test_counts_are_the_other_similar_items(similarity, dense):
    counts = similarity.counts()
    if counts is not None:
        assert counts.tolist() == (dense & ~np.eye(N, dtype=bool)).sum(1).tolist()


@pytest.mark.parametrize(("similarity", "dense"), KINDS)
def test_a_subset_is_the_relation_among_its_items(similarity, dense):
    items = torch.from_numpy(np.random.default_rng(2).permutation(N)[:17])
    subset = similarity.subset(items)
    assert subset.n_items == 17
    everything = torch.arange(17)
    expected = dense[items][:, items] | np.eye(17, dtype=bool)
    np.testing.assert_array_equal(subset.matrix(everything).numpy(), expected)


def test_an_item_that_occurs_twice_is_similar_to_itself():
    neighbors = Neighbors(np.array([[1], [2], [0]]))
    assert neighbors.matrix(torch.tensor([0, 0, 2])).tolist() == [[1, 1, 0], [1, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize("n_columns", [3, 50])
def test_nearest_neighbors_equal_a_sort(n_columns, monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(90, n_columns)).astype(np.float32) + 100
    distance = ((vectors[:, None].astype(np.float64) - vectors) ** 2).sum(-1)
    np.fill_diagonal(distance, np.inf)
    expected = np.argsort(distance, axis=1)[:, :6]
    monkeypatch.setattr("hamtarget.learn.similarity.nearest_neighbors._CELLS", 1000)
    np.testing.assert_array_equal(nearest_neighbors(torch.from_numpy(vectors), 6).numpy(), expected)


def test_nearest_neighbors_need_more_rows_than_k():
    with pytest.raises(InputError, match="k is 5; expected 1 to 4, fewer than the 5 rows"):
        nearest_neighbors(torch.zeros(5, 2), 5)


def test_similar_may_be_labels_several_labels_or_a_function():
    assert isinstance(as_similarity([0, 1, 1], 3), Labels)
    assert isinstance(as_similarity(np.eye(3, 2), 3), MultiLabels)
    assert isinstance(as_similarity(np.eye(3, 2) > 0, 3), MultiLabels)
    assert isinstance(as_similarity([[0, 1], [1, 1], [1, 0]], 3), MultiLabels)
    assert isinstance(as_similarity(lambda i, j: i[:, None] == j, 3), Custom)
    labels = Labels([1, 1])
    assert as_similarity(labels, 2) is labels
    with pytest.raises(ShapeError, match="speaks of 2 items; there are 3 inputs"):
        as_similarity(labels, 3)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Labels(np.zeros((3, 2))), ShapeError, "2 dimensions; expected 1"),
        (lambda: Labels([0.5, 1.5]), DtypeError, "dtype float64; expected integers or strings"),
        (lambda: MultiLabels([1, 2]), ShapeError, "1 dimensions; expected 2"),
        (lambda: MultiLabels(np.eye(2), jaccard=1.0), InputError, "jaccard is 1.0"),
        (lambda: Neighbors([[1.0], [0.0]]), DtypeError, "dtype torch.float32; expected integers"),
        (lambda: Neighbors([[2], [0]]), InputError, "outside 0 to 1"),
        (lambda: Neighbors([[1], [1]]), InputError, "item 1 is in its own list"),
        (lambda: Neighbors([1, 2]), ShapeError, r"shape \(2,\); expected \(items, k\)"),
        (lambda: SimilarPairs([[0, 3]], 3), InputError, "outside 0 to 2"),
        (lambda: SimilarPairs([0, 1], 3), ShapeError, r"shape \(2,\); expected \(pairs, 2\)"),
        (lambda: SimilarPairs([[0.0, 1.0]], 3), DtypeError, "expected integers"),
        (
            lambda: Custom(lambda i, j: torch.zeros(1, dtype=torch.bool), 3).matrix(torch.arange(2)),
            ShapeError,
            r"expected torch.bool of shape \(2, 2\)",
        ),
    ],
)
def test_wrong_similarities_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("similar", "error", "message"),
    [
        (nearest_neighbors(torch.randn(6, 2), 2), InputError, r"shape \(6, 2\) and holds other.*Neighbors\(similar\)"),
        ([[0, 1], [2, 3], [4, 5]] * 2, InputError, r"other numbers than 0 and 1.*SimilarPairs\(similar, n_items\)"),
        (np.full((6, 2), np.nan), InputError, "holds other numbers than 0 and 1"),
        ([[0], [1, 2], [3], [1], [2], [0]], ShapeError, "lists of different lengths.*SimilarPairs"),
        ([["a", "b"]] * 6, DtypeError, "dtype <U1; expected several labels"),
        (np.arange(6).reshape(6, 1), ShapeError, r"shape \(6, 1\).*similar.ravel\(\)"),
        (np.eye(6, dtype=bool), InputError, r"SimilarPairs\(np.argwhere\(similar\), n_items\)"),
        (np.zeros((6, 2, 2)), ShapeError, r"shape \(6, 2, 2\); expected \(rows,\)"),
        ("cat", ShapeError, r"shape \(\); expected \(rows,\)"),
        (np.array([0.0, 0.5, 1.0, 1.5, 2.0, 2.5]), DtypeError, r"float64; expected integers.*labels.astype\(int\)"),
    ],
)
def test_what_may_mean_something_else_is_no_label(similar, error, message):
    with pytest.raises(error, match=message):
        as_similarity(similar, 6)


def test_no_pairs_at_all_is_a_relation_too():
    nobody = SimilarPairs(np.empty((0, 2), dtype=int), 4)
    assert not nobody.between(torch.arange(4), torch.arange(4)).any()


def test_every_batch_is_groups_of_a_marker_and_its_similars():
    labels = np.arange(60) % 12
    sampler = GroupBatchSampler(Labels(labels), 20, 4, steps=30, seed=3)
    for items in sampler:
        groups = labels[np.array(items).reshape(5, 4)]
        assert (groups == groups[:, :1]).all()
        assert all(len(set(group)) == 4 for group in np.array(items).reshape(5, 4).tolist())


def test_every_item_is_a_marker_once_an_epoch():
    sampler = GroupBatchSampler(Labels(np.arange(60) % 12), 20, 4, seed=3)
    markers = torch.cat([sampler.batch(step)[::4] for step in range(24)])
    first, second = markers[:60], markers[60:]
    assert sorted(first.tolist()) == list(range(60)) == sorted(second.tolist())
    assert first.tolist() != second.tolist()


def test_groups_of_one_are_random_batches_that_need_no_similars():
    sampler = GroupBatchSampler(MultiLabels(np.eye(40)), 8, 1, seed=3)
    epoch = torch.cat([sampler.batch(step) for step in range(5)])
    assert sorted(epoch.tolist()) == list(range(40))
    assert epoch.tolist() != list(range(40))


def test_a_batch_depends_on_seed_and_step_only():
    def make(seed):
        return GroupBatchSampler(Labels(np.arange(70) % 7), 24, 3, seed=seed)

    forward = [make(5).batch(step).tolist() for step in range(12)]
    backward_sampler = make(5)
    backward = [backward_sampler.batch(step).tolist() for step in reversed(range(12))]
    assert forward == backward[::-1]
    assert forward != [make(6).batch(step).tolist() for step in range(12)]
    assert len({tuple(batch) for batch in forward}) == 12


def test_a_sampler_without_steps_does_not_end_a_loop_before_it_begins():
    sampler = GroupBatchSampler(Labels(np.arange(60) % 12), 24, 4)
    with pytest.raises(InputError, match="no steps; expected steps=N"):
        next(iter(sampler))
    assert len(sampler.batch(0)) == 24


def test_processes_share_one_batch():
    whole = GroupBatchSampler(Labels(np.arange(60) % 12), 24, 4, steps=5)
    shares = [
        list(GroupBatchSampler(Labels(np.arange(60) % 12), 24, 4, steps=5, rank=rank, world_size=3))
        for rank in range(3)
    ]
    for step, batch in enumerate(whole):
        assert [item for share in shares for item in share[step]] == batch


def test_a_dataloader_takes_the_sampler():
    dataset = [torch.tensor([float(i)]) for i in range(30)]
    sampler = GroupBatchSampler(Labels(np.arange(30) % 3), 12, 2, steps=4, first_step=1)
    loader = torch.utils.data.DataLoader(dataset, batch_sampler=sampler)
    assert len(loader) == 3
    for step, batch in enumerate(loader, start=1):
        assert batch.flatten().tolist() == sampler.batch(step).tolist()


def test_a_marker_without_enough_similars_is_named():
    labels = [0, 0, 0, 1, 0, 1]
    with pytest.raises(SimilarityError, match=r"item 3 has 1 similar items; a group of 3 needs 2 \(2 of 6 markers"):
        GroupBatchSampler(Labels(labels), 6, 3)
    sampler = GroupBatchSampler(Labels(labels), 6, 3, markers=torch.tensor([0, 1, 2, 4]))
    assert set(sampler.batch(0).tolist()) <= {0, 1, 2, 4}
    lonely = MultiLabels(np.eye(4))
    with pytest.raises(SimilarityError, match="item . has 0 similar items; a group of 2 needs 1"):
        GroupBatchSampler(lonely, 2, 2).batch(0)


@pytest.mark.parametrize(
    ("batch_size", "group_size", "world_size", "message"),
    [
        (10, 4, 1, "batch_size is 10; expected a multiple of group_size"),
        (8, 4, 4, r"group_size \(4\) times the number of processes \(4\)"),
        (8, 0, 1, "group_size is 0; expected 1 or more"),
        (2, 4, 1, "batch_size is 2"),
    ],
)
def test_sizes_must_divide(batch_size, group_size, world_size, message):
    with pytest.raises(InputError, match=message):
        GroupBatchSampler(Labels([0] * 20), batch_size, group_size, world_size=world_size)


def test_reprs_say_what_is_in_them():
    assert repr(Labels([0, 1, None])) == "Labels(3 items, 2 labels, 1 item without one)"
    assert repr(Labels([0, 1, 1])) == "Labels(3 items, 2 labels)"
    assert repr(SimilarPairs([(0, 1)], 3)) == "SimilarPairs(3 items)"
    sampler = GroupBatchSampler(Labels([0, 0, 1, 1]), 4, 2, steps=3)
    assert repr(sampler) == "GroupBatchSampler(Labels(4 items, 2 labels), batch_size=4, group_size=2, steps=3)"


def test_a_function_may_answer_with_numpy():
    labels = np.array([0, 1, 0])
    relation = Custom(lambda rows, columns: labels[rows][:, None] == labels[columns], 3)
    assert relation.matrix(torch.arange(3)).int().tolist() == [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
    for wrong in (True, np.ones(3), [[True]]):
        with pytest.raises(ShapeError, match="answers for each pair"):
            Custom(lambda rows, columns, wrong=wrong: wrong, 3).between(torch.arange(3), torch.arange(3))
