"""HashHead and HashModel: from the features of any network to logits and packed codes."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hamtarget.codes import check_n_bits
from hamtarget.errors import InputError, ShapeError

# Share of a new batch in the running median, as batch norm has it for its mean.
_MEDIAN_MOMENTUM = 0.1


class HashHead(nn.Module):
    """A layer that gives logits of mean 0 and variance 1 for each bit (paper 2.1.1).

    It is a linear layer, followed by batch norm without affine parameters.

    Args:
        in_features: columns of the features.
        n_bits: length of a code.
        center: "mean" centres the logits of each bit at 0. "median" also moves their median to 0, so that each bit is 1
            for half of the inputs even where logits are skewed.
        normalize: if False, only a linear layer with a bias, for losses that set the scale of the logits.
    """

    running_median: Tensor

    def __init__(
        self, in_features: int, n_bits: int, *, center: Literal["mean", "median"] = "mean", normalize: bool = True
    ) -> None:
        super().__init__()
        if center not in ("mean", "median"):
            raise InputError(f"center is {center!r}; expected 'mean' or 'median'")
        self.n_bits = check_n_bits(n_bits)
        self.center = center
        # Batch norm takes the mean away: a bias would do nothing.
        self.linear = nn.Linear(in_features, self.n_bits, bias=not normalize)
        self.norm = nn.BatchNorm1d(self.n_bits, affine=False) if normalize else None
        if center == "median":
            self.register_buffer("running_median", torch.zeros(self.n_bits))

    def forward(self, features: Tensor) -> Tensor:
        """Return logits, (rows, n_bits); in training the rows of a batch are normalised together."""
        if features.ndim != 2 or features.shape[1] != self.linear.in_features:
            raise ShapeError(
                f"features have shape {tuple(features.shape)}; this head takes (rows, {self.linear.in_features})"
            )
        logits: Tensor = self.linear(features)
        if self.norm is not None:
            if self.training and len(features) < 2:
                raise ShapeError("a training batch has 1 row; batch norm needs at least 2")
            logits = self.norm(logits)
        if self.center == "median":
            median = self.running_median
            if self.training:
                median = logits.detach().float().median(dim=0).values
                self.running_median.lerp_(median, _MEDIAN_MOMENTUM)
            logits = logits - median.to(logits.dtype)
        return logits

    @staticmethod
    def embedding(logits: Tensor) -> Tensor:
        """Return logits scaled to unit length (z in the paper), by which hits can be ranked (HDT-E)."""
        return F.normalize(logits.float(), dim=1)

    @staticmethod
    def codes(logits: Tensor) -> Tensor:
        """Return packed codes, (rows, n_bits / 8) uint8, on the logits' device; as `hamtarget.codes.from_logits`."""
        bits = (logits > 0).view(len(logits), logits.shape[1] // 8, 8)
        places = torch.arange(8, device=logits.device, dtype=torch.uint8)
        return (bits.to(torch.uint8) << places).sum(dim=2, dtype=torch.uint8)


class HashModel(nn.Module):
    """Any network with a `HashHead` on top, which turns its features into logits.

    Args:
        backbone: network that gives features, (rows, in_features), or maps, (rows, channels, height, width), which are
            averaged.
        n_bits: length of a code.
        in_features: columns or channels of the backbone's output. None: its `out_features` or `num_features`.
        center: centring of the logits, see `HashHead`.
        normalize: False for a plain linear layer, see `HashHead`.

    Example:
        >>> import torch
        >>> model = HashModel(torch.nn.Linear(8, 12), n_bits=16)
        >>> model(torch.randn(4, 8)).shape
        torch.Size([4, 16])
    """

    def __init__(
        self,
        backbone: nn.Module,
        n_bits: int,
        *,
        in_features: int | None = None,
        center: Literal["mean", "median"] = "mean",
        normalize: bool = True,
    ) -> None:
        super().__init__()
        found: Any = in_features or getattr(backbone, "out_features", None) or getattr(backbone, "num_features", None)
        if not isinstance(found, int):
            raise InputError(
                f"{type(backbone).__name__} does not tell how many features it gives (no out_features or "
                "num_features); pass in_features="
            )
        self.backbone = backbone
        self.head = HashHead(found, n_bits, center=center, normalize=normalize)

    @property
    def n_bits(self) -> int:
        """Length of a code."""
        return self.head.n_bits

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits, (rows, n_bits)."""
        features = self.backbone(inputs)
        if features.ndim > 2:
            features = features.flatten(2).mean(dim=2)
        logits: Tensor = self.head(features)
        return logits
