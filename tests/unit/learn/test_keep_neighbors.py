"""KeepNeighbors: its value beside a naive twin, its checks, and the similarity that gives it features."""

import math

import numpy as np
import pytest
import torch

from hamtarget.errors import DtypeError, InputError, ShapeError
from hamtarget.learn import GroupBatchSampler, HammingTargetLoss, Labels, SimilarPairs
from hamtarget.learn.losses.keep_neighbors import KeepNeighbors
from hamtarget.learn.losses.proxies import ProxyLoss
from hamtarget.learn.similarity.with_features import WithFeatures

N_BITS = 16
LABELS = [0, 0, 1, 1, 2, 2, None, None]


def batch(seed=0):
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(len(LABELS), N_BITS, generator=random)
    features = torch.randn(len(LABELS), 5, generator=random)
    return logits, WithFeatures(Labels(LABELS), features), features


def naive_divergence(logits, features, similar, *, focus, code_focus, sharpness):
    """Compute the loss of neighbourhoods pair by pair."""
    logits, features = logits.double().numpy(), features.double().numpy()
    soft = np.tanh(sharpness * logits)
    total = 0.0
    for row in range(len(logits)):
        others = [other for other in range(len(logits)) if other != row and not similar[row, other]]
        norms = np.linalg.norm(features[row]) * np.linalg.norm(features[others], axis=1)
        cosines = features[others] @ features[row] / norms
        wanted = np.exp(focus * (cosines - cosines.mean()) / cosines.std())
        found = np.exp(code_focus * (soft[others] @ soft[row]) / math.sqrt(N_BITS))
        wanted, found = wanted / wanted.sum(), found / found.sum()
        total += float((wanted * np.log(wanted / found)).sum())
    return total / len(logits)


@pytest.mark.parametrize("weight", [0.0, 2.5])
def test_the_value_is_that_of_the_naive_twin(weight):
    logits, similarity, features = batch()
    settings = {"focus": 1.5, "code_focus": 0.7, "sharpness": 3.0}
    alone = HammingTargetLoss(N_BITS, 2)
    loss = KeepNeighbors(alone, weight, **settings)
    items = torch.arange(len(LABELS))
    similar = similarity.matrix(items)
    expected = float(alone(logits, similar).total) + weight * naive_divergence(logits, features, similar, **settings)
    assert float(loss(logits, loss.target(similarity, items)).total) == pytest.approx(expected, rel=1e-4)


def test_codes_like_the_features_cost_less_than_others():
    logits, similarity, features = batch()
    loss = KeepNeighbors(HammingTargetLoss(N_BITS, 2, dissimilar_weight=0), 1.0)
    target = loss.target(similarity, torch.arange(len(LABELS)))
    like = features @ torch.randn(5, N_BITS, generator=torch.Generator().manual_seed(1))
    assert loss._divergence(like, target[:, -len(LABELS) :], similarity.matrix(torch.arange(len(LABELS)))) < (
        loss._divergence(logits, target[:, -len(LABELS) :], similarity.matrix(torch.arange(len(LABELS))))
    )


def test_it_has_a_finite_slope_where_all_rows_are_similar_or_have_one_direction():
    logits = torch.randn(6, N_BITS).requires_grad_()
    loss = KeepNeighbors(HammingTargetLoss(N_BITS, 2))
    for labels in ([0] * 6, [0, 0, 1, 1, 2, 2]):
        similarity = WithFeatures(Labels(labels), torch.ones(6, 3))
        loss(logits, loss.target(similarity, torch.arange(6))).total.backward()
        assert torch.isfinite(logits.grad).all()


def test_it_may_hold_a_loss_of_labels():
    logits, _, features = batch()
    similarity = WithFeatures(Labels([0, 0, 1, 1, 2, 2, 3, 3]), features)
    loss = KeepNeighbors(ProxyLoss(HammingTargetLoss(N_BITS, 2), 4))
    items = torch.arange(len(LABELS))
    target = loss.target(similarity, items)
    assert target.shape == (8, 4 + 8)
    alone = loss.loss(logits, similarity.labels(items)).total
    assert float(loss(logits, target).total.detach()) > float(alone.detach())


def test_wrong_arguments_are_refused():
    inner = HammingTargetLoss(N_BITS, 2)
    with pytest.raises(InputError, match="weight is -1"):
        KeepNeighbors(inner, -1)
    with pytest.raises(InputError, match="code_focus is 0"):
        KeepNeighbors(inner, code_focus=0)
    loss = KeepNeighbors(inner)
    with pytest.raises(InputError, match="Labels has no features; this loss needs WithFeatures"):
        loss.target(Labels([0, 1]), torch.arange(2))
    with pytest.raises(ShapeError, match=r"the target has shape \(4, 4\); expected \(4, columns\)"):
        loss(torch.randn(4, N_BITS), torch.zeros(4, 4))
    with pytest.raises(ShapeError, match=r"features have shape \(3, 2\); expected \(2, columns\)"):
        WithFeatures(Labels([0, 1]), torch.zeros(3, 2))


def test_unlabelled_items_are_similar_to_none():
    labels = Labels(["a", None, "a", None, "b"])
    assert labels.n_labels == 2
    assert labels.counts().tolist() == [1, 0, 1, 0, 0]
    assert labels.unlabelled.tolist() == [False, True, False, True, False]
    expected = np.zeros((5, 5), dtype=bool)
    expected[[0, 0, 2, 2, 4], [0, 2, 0, 2, 4]] = True
    np.testing.assert_array_equal(labels.between(torch.arange(5), torch.arange(5)).numpy(), expected)
    np.testing.assert_array_equal(labels.labels(torch.tensor([0, 1, 4])).numpy(), [[1, 0], [0, 0], [0, 1]])
    np.testing.assert_array_equal(Labels([3, -1, 3], unlabelled=-1).counts().numpy(), [1, 0, 1])
    assert Labels([3, -1, -1]).counts().tolist() == [0, 1, 1]
    part = labels.subset(torch.tensor([0, 1, 2]))
    assert part.unlabelled.tolist() == [False, True, False]
    with pytest.raises(DtypeError, match="labels are of several types"):
        Labels([1, "a", None])


def test_unlabelled_items_are_drawn_with_their_features():
    labels = [0, 0, 0, 1, 1, 1, None, None, None, None]
    alone, both = Labels(labels), WithFeatures(Labels(labels), torch.randn(10, 2))
    assert alone.markers(3).tolist() == [0, 1, 2, 3, 4, 5]
    assert both.markers(3).tolist() == list(range(10))
    # No more than the largest class, so that the group of a class is not too large.
    assert both.counts().tolist() == [2] * 10
    drawn = torch.cat([GroupBatchSampler(both, 6, 3, seed=1).batch(step) for step in range(20)]).view(-1, 3)
    kinds = [{labels[item] for item in group} for group in drawn.tolist()]
    assert all(len(kind) == 1 for kind in kinds)
    assert {None} in kinds
    assert all(len(set(group)) == 3 for group in drawn.tolist())


def test_features_go_with_other_relations():
    pairs = SimilarPairs([(0, 1)], 3)
    both = WithFeatures(pairs, torch.eye(3))
    assert both.counts().tolist() == pairs.counts().tolist()
    part = both.subset(torch.tensor([2, 0]))
    np.testing.assert_allclose(part.cosines(torch.arange(2)).numpy(), np.eye(2))
    assert both.to("cpu").between(torch.arange(3), torch.arange(3)).sum() == 2
