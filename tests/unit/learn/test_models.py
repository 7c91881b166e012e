import numpy as np
import pytest
import torch
from torch import nn

from hamtarget import codes
from hamtarget.errors import InputError, ShapeError
from hamtarget.learn import HashModel, NetworkOptions
from hamtarget.learn.networks.builder import DenseNet, SmallResNet, build_model
from hamtarget.learn.networks.head import HashHead
from hamtarget.learn.networks.standardize import Standardize


def test_training_logits_have_mean_0_and_variance_1():
    torch.manual_seed(0)
    head = HashHead(12, 16)
    logits = head(5 + 3 * torch.randn(500, 12))
    torch.testing.assert_close(logits.mean(0), torch.zeros(16), atol=1e-5, rtol=0)
    torch.testing.assert_close(logits.var(0, unbiased=False), torch.ones(16), atol=1e-3, rtol=0)


def test_median_centred_bits_are_balanced_where_mean_centred_ones_are_not():
    torch.manual_seed(0)
    skewed = torch.rand(4000, 4) ** 12
    share = {}
    for center in ("mean", "median"):
        head = HashHead(4, 8, center=center)
        with torch.no_grad():
            head.linear.weight.fill_(0.0)
            head.linear.weight[:, 0] = 1.0
        for _ in range(100):
            head(skewed)
        head.eval()
        share[center] = float((head(skewed) > 0).float().mean())
    assert share["mean"] < 0.3
    assert share["median"] == pytest.approx(0.5, abs=0.01)


def test_codes_on_a_tensor_equal_codes_by_numpy():
    logits = torch.randn(20, 72)
    np.testing.assert_array_equal(HashHead.codes(logits).numpy(), codes.from_logits(logits.numpy()))


def test_embeddings_have_unit_length():
    torch.testing.assert_close(HashHead.embedding(torch.randn(5, 16)).norm(dim=1), torch.ones(5))


def test_any_module_becomes_a_hasher():
    model = HashModel(nn.Linear(7, 9), 16)
    assert model(torch.randn(4, 7)).shape == (4, 16)
    assert model.n_bits == 16
    convolution = HashModel(nn.Conv2d(3, 5, 3), 8, in_features=5)
    assert convolution(torch.randn(4, 3, 10, 10)).shape == (4, 8)
    with pytest.raises(InputError, match="Tanh does not tell how many features it gives"):
        HashModel(nn.Tanh(), 8)


def test_the_papers_network_sees_the_input_and_all_layers():
    network = DenseNet(10, width=4, layers=3)
    assert network.out_features == 10 + 3 * 4
    assert [layer[0].in_features for layer in network.layers] == [10, 14, 18]
    inputs = torch.randn(6, 10)
    features = network(inputs)
    assert features.shape == (6, 22)
    torch.testing.assert_close(features[:, :10], inputs)
    assert (features[:, 10:] >= 0).all()


def test_the_residual_network_takes_images():
    network = SmallResNet((1, 28, 28), width=4, stages=3, blocks=2)
    features = network(torch.randint(0, 256, (3, 1, 28, 28), dtype=torch.uint8))
    assert features.shape == (3, network.out_features) == (3, 16)
    features.sum().backward()
    assert all(p.grad is not None for p in network.parameters())


def test_standardized_inputs_have_one_scale():
    inputs = torch.randint(0, 256, (10_000, 3), dtype=torch.uint8)
    inputs[:, 2] = 7
    standardize = Standardize((3,))
    standardize.fit(inputs)
    out = standardize(inputs)
    torch.testing.assert_close(out.mean(0), torch.zeros(3), atol=1e-3, rtol=0)
    assert float(out.pow(2).mean()) == pytest.approx(1, abs=1e-3)
    assert (out[:, 2] == 0).all()


def test_equal_inputs_are_standardized_to_zero():
    standardize = Standardize((2,))
    standardize.fit(torch.full((5, 2), 3.0))
    assert standardize(torch.full((5, 2), 3.0)).tolist() == [[0, 0]] * 5


def test_wrong_shapes_are_refused():
    with pytest.raises(ShapeError, match=r"features have shape \(3, 5\); this head takes \(rows, 4\)"):
        HashHead(4, 8)(torch.zeros(3, 5))
    with pytest.raises(ShapeError, match="a training batch has 1 row"):
        HashHead(4, 8)(torch.zeros(1, 4))
    with pytest.raises(ShapeError, match=r"inputs have shape \(2, 5\); this network takes \(rows, 4\)"):
        DenseNet(4)(torch.zeros(2, 5))
    with pytest.raises(ShapeError, match=r"this network takes \(rows, 1, 8, 8\)"):
        SmallResNet((1, 8, 8))(torch.zeros(2, 1, 9, 9))
    with pytest.raises(InputError, match="center is 'mode'"):
        HashHead(4, 8, center="mode")
    with pytest.raises(InputError, match="width 0"):
        DenseNet(4, width=0)
    with pytest.raises(InputError, match="stages 0"):
        SmallResNet((1, 8, 8), stages=0)


@pytest.mark.parametrize(
    ("shape", "center"), [((8,), "mean"), ((1, 16, 16), "mean"), ((3, 16, 16), "median"), ((4, 16, 16), "mean")]
)
def test_bits_of_colour_images_are_centred_by_the_median(shape, center):
    assert NetworkOptions().for_inputs(shape).center == center
    for chosen in ("mean", "median"):
        assert NetworkOptions(center=chosen).for_inputs(shape).center == chosen
    assert build_model(NetworkOptions(width=4), shape, n_logits=8, seed=0).head.center == center
