"""Images changed at random, whole batches at a time on their own device: cropped, mirrored, recoloured, resized.

Nothing here waits for the device, and random numbers come from its default generator: a CUDA graph can hold it all.
Images are uint8 or floats of 0 to 255, (rows, 3, height, width), as they are stored; results are floats of 0 to 255 at
the size that a network takes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hamtarget.errors import InputError, ShapeError

# How bright red, green and blue look (ITU-R BT.601), as Pillow turns colours into grey.
_RED, _GREEN, _BLUE = 0.299, 0.587, 0.114


class Resize(nn.Module):
    """Brings images to `size` by bilinear interpolation; images of this size stay as they are.

    Args:
        size: side in pixels, or (height, width).
    """

    capturable = True

    def __init__(self, size: int | tuple[int, int]) -> None:
        super().__init__()
        self.size = _checked_size(size)

    def forward(self, images: Tensor) -> Tensor:
        """Return images as (rows, channels, *size), floats of 0 to 255."""
        if images.ndim != 4:
            raise ShapeError(f"images have shape {tuple(images.shape)}; expected (rows, channels, height, width)")
        pixels = _floats(images)
        if tuple(images.shape[2:]) == self.size:
            return pixels
        # Where the image shrinks, every pixel of it counts.
        shrinks = images.shape[2] > self.size[0] or images.shape[3] > self.size[1]
        return F.interpolate(pixels, size=self.size, mode="bilinear", align_corners=False, antialias=shrinks)


@dataclass(frozen=True)
class Draw:
    """Random crops and colours of the images of a batch; each attribute is (rows,).

    Attributes:
        height: height of the crop, as a share of the image's.
        width: width of the crop, likewise.
        top: place of the crop's upper edge, likewise.
        left: place of the crop's left edge, likewise.
        flipped: 1 if the crop is mirrored, else 0.
        brightness: factor; 1 leaves an image as it is.
        contrast: factor, likewise.
        saturation: factor, likewise.
    """

    height: Tensor
    width: Tensor
    top: Tensor
    left: Tensor
    flipped: Tensor
    brightness: Tensor
    contrast: Tensor
    saturation: Tensor


class CropFlipColor(nn.Module):
    """Augmentation of RGB images: a random crop at `size`, perhaps mirrored, in other colours.

    Crop, mirror and resize are one bilinear interpolation, without smoothing: images should not be stored much larger
    than `size`.

    Args:
        size: side in pixels, or (height, width).
        scale: least and largest share of the image's area.
        ratio: least and largest ratio of the crop's width to its height. A side longer than the image's is cut to it.
        flip: share of the images that are mirrored.
        brightness: brightness is multiplied by a factor between 1 - x and 1 + x.
        contrast: contrast, likewise.
        saturation: saturation, likewise.

    Example:
        >>> import torch
        >>> images = torch.randint(0, 256, (4, 3, 40, 40), dtype=torch.uint8)
        >>> CropFlipColor(32)(images).shape
        torch.Size([4, 3, 32, 32])
    """

    capturable = True

    def __init__(
        self,
        size: int | tuple[int, int],
        *,
        scale: tuple[float, float] = (0.5, 1.0),
        ratio: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
        brightness: float = 0.2,
        contrast: float = 0.2,
        saturation: float = 0.2,
    ) -> None:
        super().__init__()
        if not 0 < scale[0] <= scale[1] <= 1:
            raise InputError(f"scale is {scale}; expected 0 < least <= largest <= 1")
        if not 0 < ratio[0] <= ratio[1]:
            raise InputError(f"ratio is {ratio}; expected 0 < least <= largest")
        for name, value in {
            "flip": flip,
            "brightness": brightness,
            "contrast": contrast,
            "saturation": saturation,
        }.items():
            if not 0 <= value <= 1:
                raise InputError(f"{name} is {value}; expected 0 to 1")
        self.size = _checked_size(size)
        self.scale = scale
        self.ratio = ratio
        self.flip = flip
        self.brightness = brightness
        self.contrast = contrast
        self.saturation = saturation

    def forward(self, images: Tensor) -> Tensor:
        """Return changed images as (rows, 3, *size), floats of 0 to 255."""
        if images.ndim != 4 or images.shape[1] != 3:
            raise ShapeError(f"images have shape {tuple(images.shape)}; expected (rows, 3, height, width)")
        draw = self.draw(len(images), images.shape[3] / images.shape[2], device=images.device)
        # Colours first: there are fewer pixels then.
        return crop(recolor(_floats(images), draw), draw, self.size)

    def draw(self, n_rows: int, image_ratio: float, *, device: torch.device) -> Draw:
        """Return random crops and colours for `n_rows` images whose width is `image_ratio` times their height."""

        def uniform(low: float, high: float) -> Tensor:
            return torch.rand(n_rows, device=device) * (high - low) + low

        area = uniform(*self.scale)
        # Twice as wide as high and twice as high as wide are equally likely.
        root = (uniform(math.log(self.ratio[0]), math.log(self.ratio[1])) / 2).exp()
        width = (area.sqrt() * root / math.sqrt(image_ratio)).clamp(max=1)
        height = (area.sqrt() / root * math.sqrt(image_ratio)).clamp(max=1)
        return Draw(
            height=height,
            width=width,
            top=uniform(0, 1) * (1 - height),
            left=uniform(0, 1) * (1 - width),
            flipped=(uniform(0, 1) < self.flip).float(),
            brightness=uniform(1 - self.brightness, 1 + self.brightness),
            contrast=uniform(1 - self.contrast, 1 + self.contrast),
            saturation=uniform(1 - self.saturation, 1 + self.saturation),
        )

    def extra_repr(self) -> str:
        """Return the settings, for `print(module)`."""
        return (
            f"size={self.size}, scale={self.scale}, ratio={self.ratio}, flip={self.flip}, "
            f"brightness={self.brightness}, contrast={self.contrast}, saturation={self.saturation}"
        )


def recolor(images: Tensor, draw: Draw) -> Tensor:
    """Return images with other brightness, contrast (against their mean grey) and saturation (against own grey)."""
    brightness, contrast, saturation = (
        factor.view(-1, 1, 1, 1) for factor in (draw.brightness, draw.contrast, draw.saturation)
    )
    grey = _RED * images[:, 0:1] + _GREEN * images[:, 1:2] + _BLUE * images[:, 2:3]
    mean = grey.mean(dim=(1, 2, 3), keepdim=True)
    # All three are linear, and none changes what the others call grey: they can be done at once.
    colored = torch.lerp(grey.expand_as(images), images, saturation)
    return (brightness * torch.lerp(mean, colored, contrast)).clamp(0, 255)


def crop(images: Tensor, draw: Draw, size: tuple[int, int]) -> Tensor:
    """Return the crops that were drawn, mirrored or not, at `size`."""
    # grid_sample counts from -1 to 1 over the image.
    zeros = torch.zeros_like(draw.width)
    across = torch.stack([draw.width * (1 - 2 * draw.flipped), zeros, 2 * draw.left + draw.width - 1], dim=1)
    down = torch.stack([zeros, draw.height, 2 * draw.top + draw.height - 1], dim=1)
    corners = torch.stack([across, down], dim=1)
    grid = F.affine_grid(corners, [len(images), images.shape[1], *size], align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _checked_size(size: int | tuple[int, int]) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    if min(height, width) < 1:
        raise InputError(f"size is {size}; expected at least 1 pixel")
    return height, width


def _floats(images: Tensor) -> Tensor:
    return images if images.is_floating_point() else images.float()
