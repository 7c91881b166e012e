"""TrainingLog: reports of a training run to the caller and to a log file."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hamtarget.errors import TrainingError
from hamtarget.learn.losses.base import LossTerms
from hamtarget.learn.training.checkpoint import TrainingProgress


class TrainingLog(contextlib.AbstractContextManager["TrainingLog"]):
    """Reports how training goes, to the caller and to the log file.

    Args:
        first_step: number of steps that were done before; records of later steps in an older log are dropped.
        progress: called with each record.
        log: file that gets one JSON line for each record.
    """

    def __init__(
        self, first_step: int, progress: Callable[[TrainingProgress], None] | None, log: str | Path | None
    ) -> None:
        self.progress = progress
        self.started = time.perf_counter()
        self.file = None
        if log is not None:
            kept = []
            if first_step and Path(log).exists():
                # Records after the checkpoint will be written once more.
                kept = [line for line in Path(log).read_text().splitlines() if json.loads(line)["step"] <= first_step]
            Path(log).parent.mkdir(parents=True, exist_ok=True)
            self.file = open(log, "w", encoding="utf-8")
            self.file.writelines(line + "\n" for line in kept)

    def __exit__(self, *_: object) -> None:
        if self.file is not None:
            self.file.close()

    def training(self, progress: TrainingProgress, rate: float, terms: LossTerms) -> None:
        """Record a training step.

        Raises:
            TrainingError: the loss of the step is not finite.
        """
        progress.loss = float(terms.total)
        if not math.isfinite(progress.loss):
            raise TrainingError(
                f"the loss is {progress.loss} at step {progress.step}; expected a finite number: lower learning_rate, "
                "or look for inputs with extreme values"
            )
        self._write(
            step=progress.step,
            rate=rate,
            loss=progress.loss,
            similar=float(terms.similar),
            dissimilar=float(terms.dissimilar),
            substring=float(terms.substring),
            quantization=float(terms.quantization),
            **(terms.diagnostics() if self.file is not None else {}),
        )
        if self.progress is not None:
            self.progress(progress)

    def held_out(self, progress: TrainingProgress) -> None:
        """Record a measurement of the held-out loss."""
        self._write(step=progress.step, held_out=progress.cost, best_held_out=progress.best_cost)

    def _write(self, **record: Any) -> None:
        if self.file is not None:
            record["seconds"] = round(time.perf_counter() - self.started, 3)
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()
