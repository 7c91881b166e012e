"""Alterations of pictures, in batches on a device: what people do to a picture before they post it again."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

# Views are drawn at twice the side of the network's input and averaged, so that nothing is aliased.
_OVERSAMPLING = 2
# Of the side of a view; each is for a part of the batch.
_LOW_RESOLUTIONS = (0.17, 0.22, 0.28, 0.35, 0.42, 0.5, 0.6, 0.72)
# Other resamplers shift a picture by so much of half its side.
_SHIFT = 0.006
_LUMINANCE = (0.299, 0.587, 0.114)

Chosen = Callable[[float], Tensor]
"""Draws which views of a batch an alteration is for, given its chance."""


@dataclass(frozen=True)
class Strength:
    """How frequent and how strong alterations are.

    Attributes:
        share: chance of each kind of alteration for a view; some kinds have a part of it.
        light: share of views that are altered by nothing but a new resampling.
        crop: largest part of the width and the height that is cut off.
        rotation: largest angle, in degrees.
        border: widest border, as a part of the side.
        box: largest box over the picture, as a part of its area.
    """

    share: float = 0.3
    light: float = 0.2
    crop: float = 0.45
    rotation: float = 16.0
    border: float = 0.12
    box: float = 0.28


def alter(pictures: Tensor, aspect: Tensor, side: int, strength: Strength) -> Tensor:
    """Return one altered view of each picture.

    Args:
        pictures: (b, 3, h, w), squeezed to a square, from 0 to 1.
        aspect: width / height of each picture before it was squeezed.
        side: side of the views.
        strength: frequency and strength of the alterations.

    Returns:
        The views, (b, 3, side, side), from 0 to 1.
    """
    device = pictures.device
    is_altered = torch.rand(len(pictures), device=device) >= strength.light

    def chosen(share: float) -> Tensor:
        return (torch.rand(len(pictures), device=device) < share) & is_altered

    views = _moved(pictures, aspect, side * _OVERSAMPLING, chosen, strength)
    views = _blurred(views, chosen(0.7 * strength.share))
    views = _coloured(views, chosen, strength.share)
    views = _covered(views, chosen, strength)
    views = _compressed(views, chosen(strength.share))
    noise = torch.randn_like(views) * (0.05 * _each(chosen(0.5 * strength.share)))
    return F.avg_pool2d((views + noise).clamp(0, 1), _OVERSAMPLING)


def _each(values: Tensor) -> Tensor:
    """Return one value for each picture in a shape that broadcasts over its pixels."""
    return values.view(-1, 1, 1, 1)


def _uniform(like: Tensor, low: float, high: float) -> Tensor:
    return torch.rand_like(like) * (high - low) + low


def _colours(n: int, device: torch.device, *, white: float, plain: float) -> Tensor:
    """Return colours, (n, 3, 1, 1): black or white with the chance `plain`, else any."""
    extreme = (torch.rand(n, 1, 1, 1, device=device) < white).float().expand(n, 3, 1, 1)
    is_plain = torch.rand(n, 1, 1, 1, device=device) < plain
    return torch.where(is_plain, extreme, torch.rand(n, 3, 1, 1, device=device))


def _moved(pictures: Tensor, aspect: Tensor, side: int, chosen: Chosen, strength: Strength) -> Tensor:
    """Return the pictures cropped, turned, mirrored, or with a border."""
    n, share = len(pictures), strength.share
    one, none = torch.ones_like(aspect), torch.zeros_like(aspect)
    cut = chosen(share) * _uniform(one, 0, strength.crop)
    uneven = torch.rand_like(one) < 0.5
    cut_x = torch.where(uneven, cut * torch.rand_like(one), cut)
    cut_y = torch.where(uneven, cut * torch.rand_like(one), cut)
    has_border = chosen(0.7 * share)
    border = has_border * _uniform(one, 0.01, strength.border)
    all_round = torch.rand_like(one) < 0.6
    border_x = torch.where(all_round | (torch.rand_like(one) < 0.5), border, none)
    border_y = torch.where(all_round | (border_x == 0), border, none)
    is_turned = chosen(share)
    angle = is_turned * _uniform(one, -strength.rotation, strength.rotation) * (math.pi / 180)
    # Some programs cut off the empty corners of a turned picture, others leave them.
    zoom = torch.where(is_turned & (torch.rand_like(one) < 0.4), 1 - 0.9 * angle.abs(), one)
    flip = torch.where(chosen(0.6 * share), -one, one)
    scale_x = zoom * (one - cut_x) / (1 - 2 * border_x)
    scale_y = zoom * (one - cut_y) / (1 - 2 * border_y)
    cos, sin = torch.cos(angle), torch.sin(angle)
    across = torch.stack([flip * scale_x * cos, -flip * scale_x * sin / aspect, cut_x * _uniform(one, -1, 1)], 1)
    down = torch.stack([scale_y * sin * aspect, scale_y * cos, cut_y * _uniform(one, -1, 1)], 1)
    motion = torch.stack([across, down], 1)
    motion[:, :, 2] += _SHIFT * torch.randn_like(motion[:, :, 2])
    grid = F.affine_grid(motion, [n, 3, side, side], align_corners=False)
    views = F.grid_sample(pictures, grid, mode="bilinear", padding_mode="border", align_corners=False)
    # A crop never leaves the picture: what is outside belongs to a border, or to the corners of a turned picture.
    is_outside = (grid.abs() > 1).any(3)[:, None] & _each(has_border | is_turned)
    return torch.where(is_outside, _colours(n, pictures.device, white=0.5, plain=0.65), views)


def _blurred(views: Tensor, which: Tensor) -> Tensor:
    """Return some views in a lower resolution."""
    side = views.shape[-1]
    parts = []
    n_parts = len(_LOW_RESOLUTIONS)
    parts_of_batch = zip(views.tensor_split(n_parts), which.tensor_split(n_parts), strict=True)
    for share, (part, wanted) in zip(_LOW_RESOLUTIONS, parts_of_batch, strict=True):
        small = int(side * share)
        low = F.interpolate(part, (small, small), mode="area")
        low = F.interpolate(low, (side, side), mode="bicubic", align_corners=False)
        parts.append(torch.where(_each(wanted), low, part))
    return torch.cat(parts)


def _coloured(views: Tensor, chosen: Chosen, share: float) -> Tensor:
    """Return views of another brightness, contrast, saturation, tint or gamma."""
    n, device = len(views), views.device

    def factor(chance: float, spread: float) -> Tensor:
        return _each(torch.exp(chosen(chance) * _uniform(torch.empty(n, device=device), -spread, spread)))

    views = (views * factor(share, 0.55)).clamp(0, 1)
    mean = views.mean((1, 2, 3), keepdim=True)
    views = ((views - mean) * factor(share, 0.6) + mean).clamp(0, 1)
    grey = (views * torch.tensor(_LUMINANCE, device=device).view(1, 3, 1, 1)).sum(1, keepdim=True)
    saturation = _each(~chosen(0.6 * share)) * factor(0.7 * share, 0.8)
    views = ((views - grey) * saturation + grey).clamp(0, 1)
    tint = _each(chosen(0.5 * share)) * (torch.rand(n, 3, 1, 1, device=device) - 0.5) * 0.4
    views = (views * (1 + tint)).clamp(0, 1)
    return views.clamp(min=1e-4) ** factor(0.6 * share, 0.5)


def _covered(views: Tensor, chosen: Chosen, strength: Strength) -> Tensor:
    """Return views with boxes over them: of one colour, with lines as of text, or half transparent."""
    n, device, side = len(views), views.device, views.shape[-1]
    one = torch.ones(n, device=device)
    places = (torch.arange(side, device=device) + 0.5) / side
    y, x = places.view(1, 1, side, 1), places.view(1, 1, 1, side)
    for chance in (0.8, 0.25):
        area = _uniform(one, 0.01, strength.box)
        # Captions are wide and low; stickers are about square.
        is_caption = torch.rand_like(one) < 0.6
        ratio = torch.where(is_caption, _uniform(one, 2, 8), _uniform(one, 0.5, 2))
        width = (area * ratio).sqrt().clamp(max=1.0)
        height = (area / width).clamp(max=0.5)
        left = torch.rand_like(one) * (1 - width)
        place = torch.rand_like(one)
        # Some lie along the upper or lower edge.
        place = torch.where(torch.rand_like(one) < 0.3, place.round(), place)
        top = place * (1 - height)
        left, top, width, height = (_each(value) for value in (left, top, width, height))
        is_inside = (x >= left) & (x < left + width) & (y >= top) & (y < top + height)
        paper = _colours(n, device, white=0.6, plain=0.6)
        lines = torch.sin((y - top) / height * (2 * math.pi) * torch.randint(1, 4, (n, 1, 1, 1), device=device)) > 0.2
        letters = (torch.rand(n, 1, side // 4, side // 2, device=device) < 0.5).float()
        letters = F.interpolate(letters, (side, side), mode="nearest")
        text = lines * letters * (torch.rand(n, 1, 1, 1, device=device) < 0.6)
        content = paper * (1 - text) + (1 - paper).round() * text
        opacity = torch.where(torch.rand_like(one) < 0.75, one, _uniform(one, 0.3, 1))
        cover = is_inside * _each(opacity * chosen(chance * strength.share))
        views = views * (1 - cover) + content * cover
    return views


def _compressed(views: Tensor, which: Tensor) -> Tensor:
    """Return some views as a strong JPEG compression leaves them: coarse coefficients of blocks of 8 x 8."""
    basis = _cosines(views.device)
    n, channels, side, _ = views.shape
    blocks = views.reshape(n, channels, side // 8, 8, side // 8, 8).permute(0, 1, 2, 4, 3, 5)
    frequency = torch.arange(8, device=views.device)
    coarseness = _uniform(torch.empty(n, 1, 1, 1, 1, 1, device=views.device), 0.2, 1.6)
    step = (0.04 + 0.03 * (frequency[:, None] + frequency[None, :])) * coarseness
    coefficients = torch.round(basis @ blocks @ basis.T / step) * step
    restored = (basis.T @ coefficients @ basis).permute(0, 1, 2, 4, 3, 5).reshape(views.shape).clamp(0, 1)
    return torch.where(_each(which), restored, views)


def _cosines(device: torch.device) -> Tensor:
    """Return the matrix of the discrete cosine transform of length 8."""
    k = torch.arange(8, device=device, dtype=torch.float32)
    matrix = torch.cos(math.pi / 8 * (k[None, :] + 0.5) * k[:, None]) * 0.5
    matrix[0] *= math.sqrt(0.5)
    return matrix
