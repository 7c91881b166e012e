"""Codes of a trained model drawn to the codes of classes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.precision import full_float32


class ProxyPull(nn.Module):
    """A model whose logits are drawn to the code of the class that they are near to.

    A class is told by all logits together more surely than by the sign of each: so the bits of a row that is clearly of
    a class become those of its code, and rows of a class meet within fewer bits. Rows between classes stay where they
    are. For searches among classes that were learned from; others would be drawn to those.

    Logits are brought to the length of a code, and to them is added `weight` times the mean of the classes' codes, each
    with its share of a softmax over `scale` times the cosines between the logits and the classes' proxies.

    Args:
        model: gives logits, (rows, logits).
        proxies: of the classes, (n_classes, logits), as `LabelLoss.class_codes`; their signs are the classes' codes.
        n_bits: how many of the logits are of the code, the first ones; the others only tell classes, see `GuidedLoss`.
            All if not given.
        weight: of the pull.
        scale: of the cosines; the larger, the more the nearest class has it alone.
    """

    proxies: Tensor

    def __init__(
        self,
        model: nn.Module,
        proxies: Tensor,
        *,
        n_bits: int | None = None,
        weight: float = 0.5,
        scale: float = 20.0,
    ) -> None:
        super().__init__()
        if proxies.ndim != 2:
            raise ShapeError(f"proxies have shape {tuple(proxies.shape)}; expected (n_classes, logits)")
        if n_bits is not None and not 0 < n_bits <= proxies.shape[1]:
            raise InputError(f"n_bits is {n_bits}; expected 1 to {proxies.shape[1]}, as the proxies have")
        if not (weight >= 0 and scale >= 0):
            raise InputError(f"weight is {weight} and scale {scale}; expected 0 or more")
        self.model = model
        self.n_bits = proxies.shape[1] if n_bits is None else n_bits
        self.weight = float(weight)
        self.scale = float(scale)
        self.register_buffer("proxies", proxies.detach().float().clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits, (rows, n_bits)."""
        logits = self.model(inputs)
        with full_float32(logits.device.type):
            directions = F.normalize(logits.float(), dim=1)
            shares = torch.softmax(self.scale * directions @ F.normalize(self.proxies, dim=1).T, dim=1)
            own = F.normalize(directions[:, : self.n_bits], dim=1) * self.n_bits**0.5
            pulled: Tensor = own + self.weight * shares @ self.proxies[:, : self.n_bits].sign()
        return pulled
