"""The form of a picture: how it becomes the array that an encoder takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import numpy as np

from hamtarget.errors import InputError

Fit = Literal["crop", "squeeze", "imagehash", "pdqhash"]
Resampling = Literal["bicubic", "lanczos"]


@dataclass(frozen=True, slots=True)
class PictureForm:
    """How a picture, already upright, becomes an encoder's input.

    Attributes:
        shape: (height, width) or (1, height, width) for grey, (3, height, width) for RGB.
        fit: "crop": the short side is resized and the centre cropped. "squeeze": the whole picture is resized, whatever
            its aspect. In both, transparent parts become white. "imagehash": as "squeeze", with colours made grey as
            the package imagehash does. "pdqhash": reduced as the package pdqhash does, to 64 x 64 real numbers.
        resampling: filter of "crop", "squeeze" and "imagehash".
    """

    shape: tuple[int, ...]
    fit: Fit = "crop"
    resampling: Resampling = "bicubic"

    def __post_init__(self) -> None:
        try:
            sides = tuple(int(side) for side in self.shape)
        except (TypeError, ValueError) as error:
            raise InputError(f"shape is {self.shape!r}; expected (height, width) or (3, height, width)") from error
        if not (len(sides) == 2 or (len(sides) == 3 and sides[0] in (1, 3))) or min(sides) < 1:
            raise InputError(
                f"shape is {sides}; expected (height, width) or (1, height, width) for grey, (3, height, width) for RGB"
            )
        object.__setattr__(self, "shape", sides)
        for name, value, kind in (("fit", self.fit, Fit), ("resampling", self.resampling, Resampling)):
            if value not in get_args(kind):
                raise InputError(f"{name} is {value!r}; expected one of {', '.join(get_args(kind))}")
        if self.fit == "pdqhash" and sides != (64, 64):
            raise InputError(f"shape is {sides}; pdqhash reduces pictures to (64, 64)")
        if self.fit == "imagehash" and self.is_rgb:
            raise InputError(f"shape is {sides}; imagehash makes pictures grey: expected (height, width)")

    @property
    def dtype(self) -> type[np.uint8] | type[np.float32]:
        """Type of a picture's numbers."""
        return np.float32 if self.fit == "pdqhash" else np.uint8

    @property
    def is_rgb(self) -> bool:
        """True if the picture has three channels."""
        return len(self.shape) == 3 and self.shape[0] == 3


class _Shaped(Protocol):
    """An encoder, as far as its inputs go."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input."""
        ...


def as_form(shape: Sequence[int] | PictureForm) -> PictureForm:
    """Return a form; a shape alone means that pictures are cropped.

    Raises:
        InputError: it is not the shape of a picture.
    """
    return shape if isinstance(shape, PictureForm) else PictureForm(tuple(shape))


def form_of(encoder: _Shaped) -> PictureForm:
    """Return the form in which an encoder takes pictures: its `picture_form` if it has one, else a crop of its shape.

    Raises:
        InputError: the encoder takes no pictures.
    """
    form = getattr(encoder, "picture_form", None)
    if isinstance(form, PictureForm):
        return form
    shape = tuple(encoder.input_shape)
    if len(shape) == 1:
        raise InputError(f"this model takes vectors of {shape[0]} numbers, no images")
    return PictureForm(shape)
