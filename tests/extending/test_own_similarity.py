"""A similarity of your own: a subclass of `Similarity` with two methods, in `HashEncoder` and in a training run."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from clusters import mean_distances  # noqa: E402

from hamtarget import HammingTargetLoss, HashEncoder, HashModel, codes  # noqa: E402
from hamtarget.learn import GroupBatchSampler, NetworkOptions, Similarity, TrainingOptions, train  # noqa: E402

N_BITS = 16
TRAINING = TrainingOptions(steps=80, batch_size=32, group_size=4)


class TimesOfDay(Similarity):
    """Times are similar if less than so many hours lie between them, around the clock."""

    def __init__(self, hours, within):
        self.hours = torch.as_tensor(hours)
        self.n_items = len(self.hours)
        self.within = within

    def between(self, rows, columns):
        apart = (self.hours[rows][:, None] - self.hours[columns]).abs()
        return torch.minimum(apart, 24 - apart) < self.within

    def subset(self, items):
        return TimesOfDay(self.hours[items], self.within)


@pytest.fixture
def times():
    hours = np.linspace(0, 24, 160, endpoint=False)
    inputs = np.stack([np.cos(hours * np.pi / 12), np.sin(hours * np.pi / 12)], axis=1).astype(np.float32)
    return inputs, TimesOfDay(hours, within=2)


def test_it_is_asked_about_pairs_and_groups(times):
    _, similarity = times
    items = torch.tensor([0, 1, 80, 159])
    assert similarity.matrix(items).int().tolist() == [[1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 1, 0], [1, 1, 0, 1]]
    assert similarity.subset(items).matrix(torch.arange(4)).equal(similarity.matrix(items))
    groups = GroupBatchSampler(similarity, batch_size=32, group_size=4).batch(0).view(8, 4)
    assert all(similarity.matrix(group)[0].all() for group in groups)


def test_an_encoder_learns_by_it(times):
    inputs, similarity = times
    loss = HammingTargetLoss(N_BITS, radius=2, dissimilar_weight=20)
    encoder = HashEncoder(loss=loss, network=NetworkOptions(width=16), training=TRAINING, device="cpu", seed=0)
    packed = encoder.fit(inputs, similarity).encode(inputs)
    near, far = mean_distances(packed, similarity.matrix(torch.arange(160)).numpy(), N_BITS)
    assert near + 3 < far


def test_a_run_of_your_own_trains_by_it(times):
    inputs, similarity = times
    torch.manual_seed(0)
    model = HashModel(torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU()), n_bits=N_BITS, in_features=32)
    rows = torch.from_numpy(inputs)
    train(model, HammingTargetLoss(N_BITS, radius=2, dissimilar_weight=20), rows, similarity, TRAINING)
    with torch.inference_mode():
        packed = codes.from_logits(model(rows).numpy())
    near, far = mean_distances(packed, similarity.matrix(torch.arange(160)).numpy(), N_BITS)
    assert near + 3 < far
