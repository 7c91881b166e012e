"""Inputs of any kind as tensors that a network can take."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hamtarget.codes import check_finite
from hamtarget.errors import DtypeError, InputRangeWarning, ShapeError

# Numbers of channels that make the last axis of an array look like channels.
_CHANNELS = (1, 3)
_OTHER_CHANNELS = (2, 4)
# Fewer pixels than this a side are more likely channels of feature maps, or the maps' own small sides.
_SMALLEST_SIDE = 8
# Inputs whose largest number is above this are taken to be on a scale such as 0 to 255.
_LARGE = 16.0

Range = tuple[float, float]


def as_tensor(inputs: ArrayLike | Tensor) -> Tensor:
    """Return inputs as a finite tensor of at least two dimensions.

    Raises:
        DtypeError: the inputs are not numbers.
        ShapeError: they have fewer than two dimensions.
        NotFiniteError: a number is NaN or infinite; the error names its row.
    """
    if isinstance(inputs, Tensor):
        tensor = inputs
        if tensor.dtype.is_floating_point and not bool(torch.isfinite(tensor).all()):
            check_finite(tensor.float().cpu().numpy(), name="inputs")
    else:
        array = np.asarray(inputs)
        if array.dtype.kind not in "fiub":
            hint = ": turn texts into vectors first, by a sentence model" if array.dtype.kind in "US" else ""
            raise DtypeError(f"inputs have dtype {array.dtype}; expected numbers{hint}")
        check_finite(array, name="inputs")
        if array.dtype.kind == "f":
            array = array.astype(np.float32, copy=False)
        elif array.dtype != np.uint8:
            array = array.astype(np.float32)
        array = np.ascontiguousarray(array)
        # torch would warn of an array that it must not write to, such as a mapped file.
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if tensor.ndim < 2:
        found = "1 dimension" if tensor.ndim == 1 else f"{tensor.ndim} dimensions"
        raise ShapeError(
            f"inputs have {found}; expected at least 2: (rows, columns). One row is a batch of one: row[None]"
        )
    return tensor


def channels_first(inputs: Tensor) -> Tensor:
    """Return images as (rows, channels, height, width), whichever of the two usual orders they come in.

    Grey images of shape (rows, height, width) get their one channel. Otherwise the last axis holds the channels if it
    is 1 or 3 long, the first axis of an image is not, and the two others are at least 8 pixels long. Inputs that are
    not images are returned as they are.

    Raises:
        ShapeError: the order cannot be told from the shape; the error says how to transpose.
    """
    if inputs.ndim != 4:
        return with_channel(inputs)
    first, middle, last = inputs.shape[1:]
    if last not in _CHANNELS + _OTHER_CHANNELS or (first not in _CHANNELS and middle == last):
        return inputs
    if last in _CHANNELS and first not in _CHANNELS and min(first, middle) >= _SMALLEST_SIDE:
        return inputs.movedim(3, 1)
    if last in _OTHER_CHANNELS:
        if first in _CHANNELS + _OTHER_CHANNELS:
            return inputs
        raise ShapeError(
            f"inputs have shape {_shape(inputs)}: the last axis looks like {last} channels; expected (rows, 3, height, "
            "width): drop the alpha channel, inputs[..., :3], or transpose, np.moveaxis(inputs, -1, 1)"
        )
    raise ShapeError(
        f"inputs have shape {_shape(inputs)}, in which channels and pixels cannot be told apart; expected (rows, "
        "channels, height, width) with sides of at least 8 pixels: np.moveaxis(inputs, -1, 1) brings channels from the "
        "last axis to the front"
    )


def with_channel(inputs: Tensor) -> Tensor:
    """Return grey images, (rows, height, width), with their one channel; other inputs as they are."""
    return inputs[:, None] if inputs.ndim == 3 else inputs


def in_shape(inputs: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return inputs of the shape that an encoder learned from; images may have their channels last.

    Raises:
        ShapeError: the inputs have another shape.
    """
    inputs = with_channel(inputs)
    found = tuple(inputs.shape[1:])
    if found == shape:
        return inputs
    if len(shape) == 3 and found == (*shape[1:], shape[0]):
        return inputs.movedim(3, 1)
    raise ShapeError(
        f"inputs have shape {_shape(inputs)}; this encoder learned from (rows, {', '.join(map(str, shape))})"
    )


def range_of(inputs: Tensor) -> Range:
    """Return the least and the largest number of the inputs."""
    low, high = torch.aminmax(inputs)
    return float(low), float(high)


def warn_of_other_range(found: Range, learned: Range, *, floats: bool) -> None:
    """Warn with an `InputRangeWarning` if inputs are on another scale than those that were learned from.

    Args:
        found: range of the inputs.
        learned: range of the inputs that were learned from.
        floats: True if the inputs are floats. Integers of 0 and 1 may well be dark pixels.
    """
    if learned[0] < 0 or found[0] < 0:
        return
    if learned[1] > _LARGE and 0 < found[1] <= 1 and floats:
        advice = "multiply them by 255"
    elif learned[1] <= 1 and found[1] > _LARGE:
        advice = "divide them by 255"
    else:
        return
    warnings.warn(
        f"inputs are between {found[0]:g} and {found[1]:g}, but this encoder learned from inputs between "
        f"{learned[0]:g} and {learned[1]:g}; if they are on another scale, {advice}",
        InputRangeWarning,
        stacklevel=4,
    )


def _shape(inputs: Tensor) -> str:
    return f"(rows, {', '.join(map(str, inputs.shape[1:]))})"
