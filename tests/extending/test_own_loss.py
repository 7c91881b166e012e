"""A loss of your own: a subclass of `PairLoss` with one method, in `HashEncoder` and in a training run."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from clusters import clusters, mean_distances  # noqa: E402

from hamtarget import HashEncoder, HashModel, codes  # noqa: E402
from hamtarget.learn import Labels, NetworkOptions, PairLoss, TrainingOptions, train  # noqa: E402

N_BITS = 16
TRAINING = TrainingOptions(steps=60, batch_size=32, group_size=4)


class Cosines(PairLoss):
    """The squared error of the cosines of soft codes: 1 is aimed at for similar rows, 0 for others."""

    def _terms(self, logits, similar):
        soft = torch.nn.functional.normalize(torch.tanh(logits))
        return self._report((soft @ soft.T - similar.float()).square().mean(), logits, similar)


def test_its_value():
    logits = torch.tensor([[9.0] * 8, [9.0] * 8, [-9.0] * 8])
    similar = torch.tensor([[True, True, False], [True, True, False], [False, False, True]])
    # Four ordered pairs of opposite rows have the cosine -1, and are no similar ones.
    assert float(Cosines(8)(logits, similar).total) == pytest.approx(4 / 9)


def test_an_encoder_learns_by_it(tmp_path):
    vectors, labels = clusters()
    encoder = HashEncoder(
        loss=Cosines(N_BITS), network=NetworkOptions(width=16), training=TRAINING, device="cpu", seed=0
    ).fit(vectors, labels)
    near, far = mean_distances(encoder.encode(vectors), labels[:, None] == labels, N_BITS)
    assert near + 3 < far
    # What is learned needs no loss: it opens where the class is unknown.
    encoder.save(tmp_path / "model")
    opened = HashEncoder.load(tmp_path / "model", device="cpu")
    np.testing.assert_array_equal(opened.encode(vectors), encoder.encode(vectors))


def test_a_run_of_your_own_trains_by_it():
    vectors, labels = clusters()
    torch.manual_seed(0)
    model = HashModel(torch.nn.Linear(vectors.shape[1], 16), n_bits=N_BITS, in_features=16)
    inputs = torch.from_numpy(vectors)
    reached = train(model, Cosines(N_BITS), inputs, Labels(labels), TRAINING)
    assert reached.step == TRAINING.steps
    with torch.inference_mode():
        packed = codes.from_logits(model(inputs).numpy())
    near, far = mean_distances(packed, labels[:, None] == labels, N_BITS)
    assert near + 3 < far
