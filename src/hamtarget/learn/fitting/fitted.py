"""FittedEncoder: what `HashEncoder` holds once it has learned or was loaded."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from hamtarget._metric import MetricName
from hamtarget.learn.fitting.inputs import Range, as_tensor, in_shape, range_of, warn_of_other_range
from hamtarget.learn.fitting.objectives import Recipe
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.networks.builder import NetworkOptions
from hamtarget.learn.networks.class_pull import ClassPull
from hamtarget.learn.networks.head import HashModel
from hamtarget.learn.training.options import TrainingOptions

# Inputs sent through the network at a time, and the numbers that they may have together: a network of pictures needs
# many times as much memory.
_ENCODED_ROWS = 4096
_ENCODED_CELLS = 1 << 22


@dataclass(frozen=True, eq=False)
class FittedEncoder:
    """A trained model, and the settings that it was trained by.

    Attributes:
        model: gives the logits of codes.
        loss: loss that the model was trained by. After loading, a loss of the caller's own is only a name.
        network: options of a built-in network, or the caller's own module.
        training: options of the training, with the number of steps filled in.
        held_out: share of the inputs that was held out.
        seed: seed of everything random.
        n_bits: bits of a code.
        radius: Hamming distance target, or several; None for probing.
        input_shape: shape of one input. Images have their channels first.
        input_range: least and largest number that was learned from; None where it is not known.
        metric: by what vectors are near, where codes were learned from near vectors; None if from anything else.
    """

    model: HashModel | ClassPull
    loss: BatchLoss | Recipe | str
    network: nn.Module | NetworkOptions
    training: TrainingOptions
    held_out: float
    seed: int
    n_bits: int
    radius: int | tuple[int, ...] | None
    input_shape: tuple[int, ...]
    input_range: Range | None
    metric: MetricName | None = None

    def logits(self, inputs: ArrayLike | Tensor) -> NDArray[np.float32]:
        """Return the real values before the sign, (rows, n_bits)."""
        rows = inputs if isinstance(inputs, Tensor) else np.asarray(inputs)
        device = next(self.model.parameters()).device
        result = np.empty((len(rows), self.n_bits), dtype=np.float32)
        low, high = np.inf, -np.inf
        at_once = max(1, min(_ENCODED_ROWS, _ENCODED_CELLS // math.prod(self.input_shape)))
        self.model.eval()
        with torch.inference_mode():
            # At least one block, so that the shape of no rows at all is checked too.
            for start in range(0, max(1, len(rows)), at_once):
                block = in_shape(as_tensor(rows[start : start + at_once]), self.input_shape)
                if len(block):
                    block_low, block_high = range_of(block)
                    low, high = min(low, block_low), max(high, block_high)
                result[start : start + at_once] = self.model(block.to(device)).float().cpu().numpy()
        if len(rows) and self.input_range is not None:
            floats = rows.is_floating_point() if isinstance(rows, Tensor) else rows.dtype.kind == "f"
            warn_of_other_range((low, high), self.input_range, floats=floats)
        return result
