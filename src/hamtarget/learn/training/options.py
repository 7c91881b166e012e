"""TrainingOptions: how long, how large and how fast to train."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from hamtarget.errors import InputError

# A set is gone through so often, within these bounds on the steps.
_EPOCHS = 15
_MIN_STEPS, _MAX_STEPS = 300, 4000
# At most this part of the training is done again after an interruption.
_CHECKPOINTS = 20


@dataclass(frozen=True)
class TrainingOptions:
    """How long, how large and how fast to train.

    Attributes:
        steps: batches to train on. None: 15 passes through the inputs, but at least 300 and at most 4,000 batches.
        batch_size: inputs in a batch (b in the paper), over all processes.
        group_size: inputs in a group (g in the paper): one input, the marker, and others that are similar to it.
        learning_rate: highest learning rate of the schedule.
        backbone_rate: factor on the learning rate of a `HashModel`'s backbone; below 1 for a pretrained one.
        warmup: share of the steps in which the rate rises; then it falls to 0 along a cosine.
        weight_decay: decay of matrices and kernels, not of biases and norms (lambda_w in the paper).
        clip_norm: longest gradient of a step. None: no limit.
        precision: "bfloat16" runs the network, but never the loss, under autocast.
        seed: seed of batches and dropout. `HashEncoder` puts its own seed here.
        log_every: steps between two records and two calls of `progress`.
        evaluate_every: steps between two measurements of the held-out loss.
        patience: stop after so many measurements without improvement. 0: never.
        checkpoint_every: steps between two checkpoints. None: a twentieth of the steps.
        workers: processes that load a Dataset.
        cuda_graph: replay a step as one CUDA graph where the inputs are on the GPU.
        stop_on_collapse: stop with a `TrainingError` when nearly all inputs have got one code.

    Example:
        >>> TrainingOptions(batch_size=128).steps_for(5000)
        586
    """

    steps: int | None = None
    batch_size: int = 256
    group_size: int = 4
    learning_rate: float = 2e-3
    backbone_rate: float = 1.0
    warmup: float = 0.1
    weight_decay: float = 1e-4
    clip_norm: float | None = 5.0
    precision: Literal["float32", "bfloat16"] = "float32"
    seed: int = 0
    log_every: int = 20
    evaluate_every: int = 100
    patience: int = 0
    checkpoint_every: int | None = None
    workers: int = 0
    cuda_graph: bool = True
    stop_on_collapse: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "group_size", "log_every", "evaluate_every", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"{name} is {value}; expected 1 or more")
        if self.learning_rate <= 0 or not 0 <= self.warmup < 1:
            raise InputError(
                f"learning_rate is {self.learning_rate} and warmup {self.warmup}; expected above 0, and 0 to below 1"
            )
        if self.backbone_rate < 0:
            raise InputError(f"backbone_rate is {self.backbone_rate}; expected 0 or more")
        if self.precision not in ("float32", "bfloat16"):
            raise InputError(f"precision is {self.precision!r}; expected 'float32' or 'bfloat16'")

    def steps_for(self, n_rows: int) -> int:
        """Return the number of steps for a set of so many inputs."""
        if self.steps is not None:
            return self.steps
        return max(_MIN_STEPS, min(_MAX_STEPS, math.ceil(_EPOCHS * n_rows / self.batch_size)))

    def saves_at(self, step: int, steps: int) -> bool:
        """Return True if a checkpoint is due after this step of `steps`."""
        return step % (self.checkpoint_every or max(1, steps // _CHECKPOINTS)) == 0

    def rate(self, step: int, steps: int) -> float:
        """Return the learning rate of step 0, 1, ... of `steps`."""
        rise = self.warmup * steps
        if step < rise:
            return self.learning_rate * (step + 1) / (rise + 1)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, steps - rise)))

    def for_groups(self, most: int) -> TrainingOptions:
        """Return these options for inputs of which at most `most` are similar to each other.

        The group becomes no larger than `most`. The batch becomes the multiple of the group next below it.
        """
        group_size = min(self.group_size, most)
        if group_size == self.group_size:
            return self
        return replace(self, group_size=group_size, batch_size=max(1, self.batch_size // group_size) * group_size)
