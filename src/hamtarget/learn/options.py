"""How to train."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from hamtarget.errors import InputError


@dataclass(frozen=True)
class TrainingOptions:
    """How long, how large and how fast to train.

    Attributes:
        steps: batches to train on.
        batch_size: inputs of a batch (b), over all processes.
        group_size: inputs of a group (g): a marker and its similars.
        learning_rate: the highest of the schedule.
        backbone_rate: factor on the rate of a `HashModel`'s backbone: less than 1 where it is pre-trained.
        warmup: share of the steps in which the rate rises; then it falls as a cosine to 0.
        weight_decay: of matrices and kernels, not of biases and norms (lambda_w in the paper).
        clip_norm: longest gradient of a step; None: any.
        precision: "bfloat16" runs the network, never the loss, under autocast.
        seed: of batches, and of dropout.
        log_every: steps between two records, and two calls of `progress`.
        evaluate_every: steps between two looks at held-out data.
        patience: stop after so many looks without a better one; 0: never.
        checkpoint_every: steps between two checkpoints.
        workers: processes that load a Dataset.
        cuda_graph: replay a step as one CUDA graph where inputs live on the GPU.
    """

    steps: int = 2000
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
    checkpoint_every: int = 500
    workers: int = 0
    cuda_graph: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "log_every", "evaluate_every", "checkpoint_every"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if self.learning_rate <= 0 or not 0 <= self.warmup < 1:
            raise InputError(
                f"learning_rate is {self.learning_rate} and warmup {self.warmup}; expected above 0, and 0 to below 1"
            )
        if self.backbone_rate < 0:
            raise InputError(f"backbone_rate is {self.backbone_rate}; expected 0 or more")
        if self.precision not in ("float32", "bfloat16"):
            raise InputError(f"precision is {self.precision!r}; expected 'float32' or 'bfloat16'")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        rise = self.warmup * self.steps
        if step < rise:
            return self.learning_rate * (step + 1) / (rise + 1)
        return self.learning_rate * 0.5 * (1 + math.cos(math.pi * (step - rise) / max(1.0, self.steps - rise)))
