"""Networks to start from: the paper's DenseNet for vectors, and a small residual network for small images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError


class Standardize(nn.Module):
    """Inputs as float32 with mean 0 and, over all columns together, variance 1.

    One scale for all columns keeps what distances mean; a scale of its own would blow up a nearly constant column.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        # So that it can stand alone before a head, where inputs are features already.
        self.out_features = shape[0]
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("scale", torch.ones(()))

    @torch.no_grad()
    def fit(self, inputs: Tensor) -> None:
        """Take mean and scale from `inputs`, (rows, *shape), in blocks of rows."""
        total = torch.zeros_like(self.mean, dtype=torch.float64)
        squares = torch.zeros((), dtype=torch.float64, device=self.mean.device)
        for block in inputs.split(8192):
            total += block.to(total).sum(0)
        mean = total / len(inputs)
        for block in inputs.split(8192):
            squares += (block.to(total) - mean).pow(2).sum()
        deviation = (squares / inputs.numel()).sqrt()
        self.mean.copy_(mean)
        # Inputs that are all equal have no scale; 1 leaves them finite.
        self.scale.copy_(torch.where(deviation > 0, 1 / deviation.clamp(min=1e-30), 1.0))

    def forward(self, inputs: Tensor) -> Tensor:
        """Standardised inputs, float32."""
        return (inputs.float() - self.mean) * self.scale


class DenseNet(nn.Module):
    """The paper's network for vectors: each layer sees the input and all earlier layers (section 3.2).

    Args:
        in_features: columns of the input.
        width: relu-activated, batch-normalised units of a layer.
        layers: number of layers.
    """

    def __init__(self, in_features: int, *, width: int = 256, layers: int = 3) -> None:
        super().__init__()
        if min(in_features, width, layers) < 1:
            raise InputError(f"in_features {in_features}, width {width}, layers {layers}: expected at least 1 of each")
        self.in_features = in_features
        self.out_features = in_features + width * layers
        self.standardize = Standardize((in_features,))
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(in_features + width * index, width, bias=False),
                nn.BatchNorm1d(width),
                nn.ReLU(inplace=True),
            )
            for index in range(layers)
        )

    def forward(self, inputs: Tensor) -> Tensor:
        """The input and every layer's units side by side, (rows, out_features)."""
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
        width: channels of the first stage; each later one doubles them and halves the size.
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
        """Channels averaged over the image, (rows, out_features)."""
        if tuple(inputs.shape[1:]) != self.shape:
            raise ShapeError(f"inputs have shape {tuple(inputs.shape)}; this network takes (rows, *{self.shape})")
        maps: Tensor = self.body(self.stem(self.standardize(inputs)))
        return torch.relu(self.norm(maps)).mean(dim=(2, 3))
