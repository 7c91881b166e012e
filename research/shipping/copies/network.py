"""The network of a learned perceptual hash: small, so that a picture takes milliseconds on one core."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

_LAST_SIDE = 4


class CopyNetwork(nn.Module):
    """A residual network of strided blocks. Its last map is flattened, so that it knows where things are.

    Args:
        n_bits: logits of a picture.
        width: channels of the stem; each block doubles them, up to eight times as many.
        side: side of the pictures that it takes.
    """

    def __init__(self, n_bits: int = 64, *, width: int = 32, side: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(width), nn.SiLU()
        )
        blocks: list[nn.Module] = []
        channels, here = width, side // 2
        while here > _LAST_SIDE:
            wider = min(2 * channels, 8 * width)
            blocks.append(_StridedBlock(channels, wider))
            channels, here = wider, here // 2
        self.blocks = nn.Sequential(*blocks)
        self.squeeze = nn.Sequential(
            nn.Conv2d(channels, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width), nn.SiLU()
        )
        self.head = nn.Linear(4 * width * here * here, n_bits, bias=False)
        self.balance = nn.BatchNorm1d(n_bits, affine=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return the logits of pictures, (b, 3, side, side) from 0 to 1."""
        # A picture's own mean and spread are taken out, and with them its brightness and contrast.
        mean = pictures.mean((1, 2, 3), keepdim=True)
        spread = (pictures - mean).square().mean((1, 2, 3), keepdim=True).add(1e-3).sqrt()
        features = self.squeeze(self.blocks(self.stem((pictures - mean) / spread)))
        logits: Tensor = self.balance(self.head(features.flatten(1)).float())
        return logits


class _StridedBlock(nn.Module):
    def __init__(self, n_in: int, n_out: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(n_in, n_out, 3, stride=2, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(n_out)
        self.second = nn.Conv2d(n_out, n_out, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(n_out)
        self.short = nn.Conv2d(n_in, n_out, 1, bias=False) if n_in != n_out else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.first_norm(self.first(x)))
        return F.silu(self.short(F.avg_pool2d(x, 2)) + self.second_norm(self.second(y)))
