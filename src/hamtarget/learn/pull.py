"""Codes of a trained model drawn to the codes of classes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError


class ProxyPull(nn.Module):
    """A model whose logits are drawn to the code of the class that they are near to.

    A class is told by all logits together more surely than by the sign of each: so the bits of a row that is clearly of
    a class become those of its code, and rows of a class meet within fewer bits. Rows between classes stay where they
    are. For searches among classes that were learned from; others would be drawn to those.

    Logits are brought to the length of a code, and to them is added `weight` times the mean of the classes' codes, each
    with its share of a softmax over `scale` times the cosines between the logits and the classes' proxies.

    Args:
        model: gives logits, (rows, n_bits).
        proxies: of the classes, (n_classes, n_bits), as of `ProxyLoss.proxies`; their signs are the classes' codes.
        weight: of the pull.
        scale: of the cosines; the larger, the more the nearest class has it alone.
    """

    proxies: Tensor

    def __init__(self, model: nn.Module, proxies: Tensor, *, weight: float = 0.5, scale: float = 20.0) -> None:
        super().__init__()
        if proxies.ndim != 2:
            raise ShapeError(f"proxies have shape {tuple(proxies.shape)}; expected (n_classes, n_bits)")
        if not (weight >= 0 and scale >= 0):
            raise InputError(f"weight is {weight} and scale {scale}; expected 0 or more")
        self.model = model
        self.weight = float(weight)
        self.scale = float(scale)
        self.register_buffer("proxies", proxies.detach().float().clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (rows, n_bits)."""
        directions = F.normalize(self.model(inputs).float(), dim=1)
        shares = torch.softmax(self.scale * directions @ F.normalize(self.proxies, dim=1).T, dim=1)
        pulled: Tensor = directions * self.proxies.shape[1] ** 0.5 + self.weight * shares @ self.proxies.sign()
        return pulled
