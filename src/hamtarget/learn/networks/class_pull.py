"""ClassPull: a trained model whose codes are moved toward the codes of classes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError
from hamtarget.learn.precision import full_float32


class ClassPull(nn.Module):
    """A model that moves each code toward the code of the class that its logits favour.

    All logits together tell the class of an input more surely than the sign of each tells a bit. So the bits of an
    input that clearly belongs to a class become those of the class's code, and inputs of a class meet within fewer
    bits. Inputs between classes hardly move. Inputs of a class that was not learned from are moved, too: use this only
    where there are none.

    The logits are scaled to the length of a code. Added to them is `weight` times the mean of the classes' codes; each
    class counts by its share in a softmax of `scale` times the cosines between the logits and the classes' proxies.

    Args:
        model: network that gives logits, (rows, logits).
        proxies: proxies of the classes, (n_classes, logits), as `LabelLoss.class_codes`; their signs are the classes'
            codes.
        n_bits: how many of the logits belong to the code, from the first on. The others only tell classes apart, see
            `GuidedLoss`. None: all.
        weight: how far a code is moved.
        scale: scale of the cosines. The larger it is, the more the nearest class counts alone.
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
        """Return logits, (rows, n_bits)."""
        logits = self.model(inputs)
        with full_float32(logits.device.type):
            directions = F.normalize(logits.float(), dim=1)
            shares = torch.softmax(self.scale * directions @ F.normalize(self.proxies, dim=1).T, dim=1)
            own = F.normalize(directions[:, : self.n_bits], dim=1) * self.n_bits**0.5
            pulled: Tensor = own + self.weight * shares @ self.proxies[:, : self.n_bits].sign()
        return pulled
