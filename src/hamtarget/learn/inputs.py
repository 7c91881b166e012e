"""Arrays of any kind as tensors that a network can take."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hamtarget.codes import check_finite
from hamtarget.errors import DtypeError, ShapeError


def as_tensor(inputs: ArrayLike | Tensor) -> Tensor:
    """Inputs as a finite tensor of at least two dimensions; grey images get their one channel.

    Raises:
        DtypeError: they are not numbers.
        ShapeError: they have fewer than two dimensions.
        NotFiniteError: some number is NaN or infinite; says in which row.
    """
    if isinstance(inputs, Tensor):
        tensor = inputs
        if tensor.dtype.is_floating_point and not bool(torch.isfinite(tensor).all()):
            check_finite(tensor.float().cpu().numpy(), name="inputs")
    else:
        array = np.asarray(inputs)
        if array.dtype.kind not in "fiub":
            raise DtypeError(f"inputs have dtype {array.dtype}; expected numbers")
        check_finite(array, name="inputs")
        if array.dtype.kind == "f":
            array = array.astype(np.float32, copy=False)
        elif array.dtype != np.uint8:
            array = array.astype(np.float32)
        array = np.ascontiguousarray(array)
        # torch would warn of an array that it must not write to, such as a mapped file.
        tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
    if tensor.ndim < 2:
        raise ShapeError(f"inputs have {tensor.ndim} dimensions; expected at least 2: (rows, columns)")
    return tensor[:, None] if tensor.ndim == 3 else tensor
