"""Checkpoints: everything that a training run needs to go on as if it had never stopped."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hamtarget.errors import CorruptFileError, InputError
from hamtarget.learn.files.weights import read_tensors, write_tensors


@dataclass
class TrainingProgress:
    """How far training has come; `HashEncoder.fit` and `train` pass it to `progress`.

    Attributes:
        step: number of steps done.
        steps: number of all steps.
        loss: loss of the last recorded step; infinite before the first.
        cost: last measured held-out loss; infinite before the first measurement.
        best_cost: lowest held-out loss so far.
        best_step: step at which it was measured.
        looks_without_gain: number of measurements since then.
    """

    step: int = 0
    steps: int = 0
    loss: float = math.inf
    cost: float = math.inf
    best_cost: float = math.inf
    best_step: int = 0
    looks_without_gain: int = 0


class TrainingState:
    """A model, its optimiser and its progress, saved to and loaded from one file.

    Args:
        model: module whose parameters and buffers are kept.
        optimizer: optimiser whose moments are kept.
        settings: settings of the run; a file of a run with other settings is refused.
    """

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer, settings: dict[str, Any]) -> None:
        self.model = model
        self.optimizer = optimizer
        # As JSON gives them back, so that tuples and lists compare equal.
        self.settings: dict[str, Any] = json.loads(json.dumps(settings))
        self.progress = TrainingProgress(steps=settings["steps"])
        self.best: dict[str, Tensor] = {}

    def note_cost(self, cost: float) -> None:
        """Note the cost of held-out data, and keep the weights if it is the lowest."""
        self.progress.cost = cost
        if cost < self.progress.best_cost:
            self.progress.best_cost = cost
            self.progress.best_step = self.progress.step
            self.progress.looks_without_gain = 0
            self.best = {name: value.detach().clone() for name, value in self.model.state_dict().items()}
        else:
            self.progress.looks_without_gain += 1

    def out_of_patience(self, patience: int) -> bool:
        """Return True if so many measurements in a row brought no gain; never if `patience` is 0."""
        return self.progress.looks_without_gain >= patience > 0

    def restore_best(self) -> None:
        """Give the model the weights of the lowest held-out cost, if one was measured."""
        if self.best:
            self.model.load_state_dict(self.best)

    def save(self, path: str | Path) -> None:
        """Write the whole state. An older file stays until the new one is complete."""
        tensors = {f"model/{name}": value for name, value in self.model.state_dict().items()}
        tensors |= {f"best/{name}": value for name, value in self.best.items()}
        for number, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{number}/{name}": value for name, value in moments.items()}
        tensors["random/cpu"] = torch.get_rng_state()
        if self._cuda():
            tensors["random/cuda"] = torch.cuda.get_rng_state()
        description = {"settings": self.settings, "progress": _finite(asdict(self.progress))}
        write_tensors(path, tensors, description, kind="checkpoint")

    def load(self, path: str | Path) -> None:
        """Take the whole state from a file.

        Raises:
            InputError: the file belongs to a run with other settings; the error names them.
            CorruptFileError: the file is damaged, or belongs to another model.
        """
        tensors, description = read_tensors(path, kind="checkpoint")
        _check_same(path, description["settings"], self.settings)
        parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimizer": {}, "random": {}}
        for name, tensor in tensors.items():
            part, _, rest = name.partition("/")
            parts[part][rest] = tensor
        try:
            self.model.load_state_dict(parts["model"])
        except RuntimeError as error:
            raise CorruptFileError(f"{path} is of another model: {error}") from error
        self.best = {name: value.clone() for name, value in parts["best"].items()}
        state = self.optimizer.state_dict()
        state["state"] = {}
        for name, tensor in parts["optimizer"].items():
            number, _, moment = name.partition("/")
            state["state"].setdefault(int(number), {})[moment] = tensor
        self.optimizer.load_state_dict(state)
        torch.set_rng_state(parts["random"]["cpu"])
        if self._cuda() and "cuda" in parts["random"]:
            torch.cuda.set_rng_state(parts["random"]["cuda"])
        kept: dict[str, Any] = description["progress"]
        for name, value in kept.items():
            setattr(self.progress, name, math.inf if value is None else value)

    def _cuda(self) -> bool:
        return next(self.model.parameters()).is_cuda


def check_checkpoint(path: str | Path, settings: dict[str, Any]) -> None:
    """Refuse a checkpoint of a run with other settings, so that nothing is computed in vain; none need be there.

    Args:
        path: file of the checkpoint.
        settings: those settings of this run that are known already.

    Raises:
        InputError: the file belongs to a run with other settings; the error names them.
        CorruptFileError: the file is damaged.
    """
    if Path(path).exists():
        _, description = read_tensors(path, kind="checkpoint")
        _check_same(path, description["settings"], json.loads(json.dumps(settings)))


def _check_same(path: str | Path, theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    different = sorted(key for key in ours if theirs.get(key) != ours[key])
    if different:
        key = different[0]
        raise InputError(
            f"{path} is of a run with {key}={theirs.get(key)!r}; this run has {ours[key]!r} "
            f"(different: {', '.join(different)}): use the same settings, or delete the file to begin anew"
        )


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Return the values with None for infinity, which JSON does not know."""
    return {key: None if value == math.inf else value for key, value in values.items()}
