"""SmallResNet: a residual network for small images."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.networks.standardize import Standardize


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
