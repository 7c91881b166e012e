"""A miner of your own: a loss around another one, which sees only the rows of a batch that the miner chooses."""

import pytest

torch = pytest.importorskip("torch")

from clusters import clusters, mean_distances  # noqa: E402

from hamtarget import HammingTargetLoss, HashEncoder  # noqa: E402
from hamtarget.learn import NetworkOptions, PairLoss, ProbingLoss, TrainingOptions  # noqa: E402

N_BITS = 16


class HardestPairs(PairLoss):
    """The loss of the rows of a batch that are in the similar pairs whose soft codes are the farthest apart."""

    capturable = False

    def __init__(self, loss, n_pairs):
        super().__init__(loss.n_bits)
        self.loss = loss
        self.n_pairs = n_pairs

    @property
    def radius(self):
        return self.loss.radius

    def chosen(self, logits, similar):
        soft = torch.tanh(logits.detach())
        others = similar & ~torch.eye(len(soft), dtype=torch.bool)
        closeness = (soft @ soft.T).masked_fill(~others, float("inf"))
        places = closeness.flatten().topk(self.n_pairs, largest=False).indices
        return torch.unique(torch.cat([places // len(soft), places % len(soft)]))

    def _terms(self, logits, similar):
        rows = self.chosen(logits, similar)
        part = self.loss._terms(logits[rows], similar[rows][:, rows])
        return self._report_around(part, part.total, logits, similar)


def test_it_chooses_the_farthest_pairs():
    signs = torch.tensor([[1] * 8, [1] * 4 + [-1] * 4, [1] * 7 + [-1], [-1] * 8, [-1] * 8])
    labels = torch.tensor([0, 0, 0, 1, 1])
    similar = labels[:, None] == labels
    inner = ProbingLoss(8)
    loss = HardestPairs(inner, n_pairs=2)
    assert loss.chosen(3.0 * signs, similar).tolist() == [0, 1]
    rows = torch.tensor([0, 1])
    expected = inner(3.0 * signs[rows], similar[rows][:, rows]).total
    assert torch.equal(loss(3.0 * signs, similar).total, expected)


def test_only_chosen_rows_have_a_gradient():
    torch.manual_seed(0)
    logits = torch.randn(12, N_BITS, requires_grad=True)
    similar = torch.arange(12)[:, None] % 3 == torch.arange(12) % 3
    loss = HardestPairs(HammingTargetLoss(N_BITS, radius=2), n_pairs=4)
    loss(logits, similar).total.backward()
    moved = logits.grad.abs().sum(dim=1).nonzero().squeeze(1)
    assert set(moved.tolist()) <= set(loss.chosen(logits, similar).tolist())
    assert len(moved) >= 2


def test_an_encoder_learns_with_it():
    vectors, labels = clusters()
    loss = HardestPairs(HammingTargetLoss(N_BITS, radius=2, dissimilar_weight=20), n_pairs=24)
    training = TrainingOptions(steps=80, batch_size=64, group_size=4)
    encoder = HashEncoder(loss=loss, network=NetworkOptions(width=16), training=training, device="cpu", seed=0)
    packed = encoder.fit(vectors, labels).encode(vectors)
    assert encoder.radius == 2
    near, far = mean_distances(packed, labels[:, None] == labels, N_BITS)
    assert near + 3 < far
