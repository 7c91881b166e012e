"""What a training run tells while it goes on."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hamtarget.errors import TrainingError
from hamtarget.learn.checkpoint import Progress
from hamtarget.learn.losses.base import LossTerms


class TrainingLog(contextlib.AbstractContextManager["TrainingLog"]):
    """Tells the caller and the log file how training goes."""

    def __init__(self, first_step: int, progress: Callable[[Progress], None] | None, log: str | Path | None) -> None:
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

    def training(self, progress: Progress, rate: float, terms: LossTerms) -> None:
        """Record a training step.

        Raises:
            TrainingError: its loss is not finite.
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

    def held_out(self, progress: Progress) -> None:
        """Record a look at held-out data."""
        self._write(step=progress.step, held_out=progress.cost, best_held_out=progress.best_cost)

    def _write(self, **record: Any) -> None:
        if self.file is not None:
            record["seconds"] = round(time.perf_counter() - self.started, 3)
            self.file.write(json.dumps(record) + "\n")
            self.file.flush()
