"""DenseNet: the paper's network for vectors."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.networks.standardize import Standardize


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
