"""The built-in networks `DenseNet` and `SmallResNet`, their options, and models built of them or any other network."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.networks.head import HashModel
from hamtarget.learn.networks.standardize import Standardize

# Units of a layer for vectors, channels of the first stage for images, and layers for vectors, as in the paper.
_VECTOR_WIDTH, _IMAGE_WIDTH, _LAYERS = 256, 32, 3
_COLOUR_CHANNELS = 3


@dataclass(frozen=True)
class NetworkOptions:
    """Size of the built-in network: a `DenseNet` for vectors, a `SmallResNet` for images.

    Attributes:
        width: units of a layer, or channels of the first stage for images. None: 256 for vectors, 32 for images.
        layers: layers of the DenseNet; fewer make encoding faster. None: 3, as in the paper.
        center: "mean" centres each bit's logits by their mean. "median" keeps every bit 1 for half of the inputs, which
            keeps codes of colour photos from collapsing. None: "median" for colour images, else "mean".
        unit_length: True: each vector is scaled to unit length first, so that its length does not count.

    Example:
        >>> NetworkOptions(width=64).for_inputs((128,))
        NetworkOptions(width=64, layers=3, center='mean', unit_length=False)
    """

    width: int | None = None
    layers: int | None = None
    center: Literal["mean", "median"] | None = None
    unit_length: bool = False

    def __post_init__(self) -> None:
        for name in ("width", "layers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; expected 1 or more")
        if self.center not in (None, "mean", "median"):
            raise InputError(f"center is {self.center!r}; expected 'mean' or 'median'")

    def for_inputs(self, shape: tuple[int, ...]) -> NetworkOptions:
        """Return these options with the defaults for inputs of this shape filled in."""
        if len(shape) == 1:
            layers = self.layers or _LAYERS
            return replace(self, width=self.width or _VECTOR_WIDTH, layers=layers, center=self.center or "mean")
        is_colour = len(shape) == 3 and shape[0] == _COLOUR_CHANNELS
        return replace(
            self, width=self.width or _IMAGE_WIDTH, center=self.center or ("median" if is_colour else "mean")
        )

    def network(self, shape: tuple[int, ...]) -> nn.Module:
        """Return a new network for inputs of this shape.

        Raises:
            ShapeError: the inputs are neither vectors nor images.
        """
        if len(shape) == 1:
            width, layers = self.width or _VECTOR_WIDTH, self.layers or _LAYERS
            return DenseNet(shape[0], width=width, layers=layers, unit_length=self.unit_length)
        if len(shape) == 3:
            return SmallResNet((shape[0], shape[1], shape[2]), width=self.width or _IMAGE_WIDTH)
        raise ShapeError(
            f"inputs have shape (rows, {', '.join(map(str, shape))}); expected (rows, columns), "
            "(rows, height, width) or (rows, channels, height, width)"
        )


Network = str | nn.Module | NetworkOptions
"""What a `HashEncoder` takes as its network."""


def network_choice(network: Network) -> nn.Module | NetworkOptions:
    """Return the network of a `HashEncoder`, or the options of a built-in one.

    Raises:
        InputError: it is neither.
    """
    if isinstance(network, nn.Module | NetworkOptions):
        return network
    if network != "auto":
        raise InputError(f"network is {network!r}; expected 'auto', NetworkOptions or an nn.Module")
    return NetworkOptions()


def build_model(
    network: nn.Module | NetworkOptions,
    shape: tuple[int, ...],
    *,
    n_logits: int,
    seed: int,
    center: Literal["mean", "median"] = "mean",
) -> HashModel:
    """Return a new model for inputs of this shape; the same for the same seed.

    Args:
        network: options of a built-in network, or any module that turns inputs into features. The model gets a copy of
            a module. A `HashModel` is taken with its own head.
        shape: shape of one input.
        n_logits: number of logits.
        seed: seed of the first weights.
        center: centring of the logits of a module; see `NetworkOptions`.

    Raises:
        InputError: a `HashModel` has another number of logits.
        ShapeError: there is no built-in network for inputs of this shape.
    """
    if isinstance(network, HashModel):
        if network.n_bits != n_logits:
            raise InputError(f"the network has {network.n_bits} logits; expected {n_logits}, as the loss has")
        return copy.deepcopy(network)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        if isinstance(network, NetworkOptions):
            return HashModel(network.network(shape), n_logits, center=network.for_inputs(shape).center or center)
        return HashModel(copy.deepcopy(network), n_logits, center=center)


class DenseNet(nn.Module):
    """The paper's network for vectors: each layer sees the input and all earlier layers (section 3.2).

    Args:
        in_features: columns of the input.
        width: units of a layer, which are batch-normalised and then relu-activated.
        layers: number of layers.
        unit_length: True: inputs are scaled to unit length first.
    """

    def __init__(self, in_features: int, *, width: int = 256, layers: int = 3, unit_length: bool = False) -> None:
        super().__init__()
        if min(in_features, width, layers) < 1:
            raise InputError(f"in_features {in_features}, width {width}, layers {layers}: expected at least 1 of each")
        self.in_features = in_features
        self.out_features = in_features + width * layers
        self.standardize = Standardize((in_features,), unit_length=unit_length)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(in_features + width * index, width, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(inplace=True),
            )
            for index in range(layers)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the input and the units of every layer side by side, (rows, out_features)."""
        if inputs.ndim != 2 or inputs.shape[1] != self.in_features:
            raise ShapeError(f"inputs have shape {tuple(inputs.shape)}; this network takes (rows, {self.in_features})")
        features: Tensor = self.standardize(inputs)
        for layer in self.layers:
            features = torch.cat([features, layer(features)], dim=1)
        return features


class _PreactivationBlock(nn.Module):
    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.shortcut = (
            nn.Identity()
            if stride == 1 and in_channels == out_channels
            else nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        activated = torch.relu(self.norm1(inputs))
        residual: Tensor = self.conv2(torch.relu(self.norm2(self.conv1(activated))))
        shortcut: Tensor = self.shortcut(inputs if isinstance(self.shortcut, nn.Identity) else activated)
        return shortcut + residual


class SmallResNet(nn.Module):
    """A pre-activation residual network (ResNet V2) for images of about 28 to 64 pixels.

    Args:
        shape: (channels, height, width) of an image.
        width: channels of the first stage. Each later stage doubles the channels and halves the image.
        stages: number of stages.
        blocks: residual blocks of a stage.
    """

    def __init__(self, shape: tuple[int, int, int], *, width: int = 32, stages: int = 3, blocks: int = 1) -> None:
        super().__init__()
        if min(*shape, width, stages, blocks) < 1:
            raise InputError(
                f"shape {shape}, width {width}, stages {stages}, blocks {blocks}: expected at least 1 of each"
            )
        self.shape = tuple(shape)
        self.standardize = Standardize(self.shape)
        # The stem halves the image: what it skips costs the most time and teaches the least.
        self.stem = nn.Conv2d(shape[0], width, 3, stride=2, padding=1, bias=False)
        body: list[nn.Module] = []
        channels = width
        for stage in range(stages):
            for block in range(blocks):
                out_channels = width * 2**stage
                body.append(_PreactivationBlock(channels, out_channels, 2 if stage and not block else 1))
                channels = out_channels
        self.body = nn.Sequential(*body)
        self.norm = nn.BatchNorm2d(channels)
        self.out_features = channels

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the channels averaged over the image, (rows, out_features)."""
        if tuple(inputs.shape[1:]) != self.shape:
            expected = ", ".join(map(str, self.shape))
            raise ShapeError(f"inputs have shape {tuple(inputs.shape)}; this network takes (rows, {expected})")
        maps: Tensor = self.body(self.stem(self.standardize(inputs)))
        return torch.relu(self.norm(maps)).mean(dim=(2, 3))
