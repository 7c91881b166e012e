"""One cell of table 1: a method trained on a task, and its codes, kept in files so that it is trained once.

A run leaves `NAME.json` (what was trained, how fast, where) and `NAME.npz` (codes and labels of database and queries),
from which every figure can be computed again without training.
"""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from hamtarget._files import write_atomically
from hamtarget.encoders import ITQ, LSH
from hamtarget.errors import CorruptFileError, InputError
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import TrainingOptions
from hamtarget.learn.losses.base import BatchLoss, LabelLoss
from hamtarget.learn.losses.class_codes import class_means
from hamtarget.learn.networks.class_pull import ClassPull
from hamtarget.learn.networks.head import HashHead
from hamtarget.learn.similarity.as_similarity import as_similarity
from research.comparators.fine_tuning import FineTuner
from research.paper.image_methods import METHODS, LossTask, Setting
from research.paper.image_tasks import Task

# How often a run reports, while it trains.
_REPORTS = 8
_WEIGHT_DECAY = 1e-4

SMALL_SIDE = 64
"""Pixels of a side that images are kept with where they have no more."""


@dataclass(frozen=True)
class Run:
    """A method to train and measure.

    Attributes:
        method: a name in `image_methods.NAMES`.
        n_bits: length of a code.
        task: name of the task.
        setting: how the method is trained.
        epochs: how often each image to learn from is seen, on average; the same for every method.
        size: pixels of a side that the network sees.
        seed: of the head's first weights, of batches and of augmentation.
        variant: "paper", "plain" or "pulled" if it differs from the method's ordinary run, else "".
        stored_side: pixels of a side that images are kept with, before they are augmented.
    """

    method: str
    n_bits: int
    task: str
    setting: Setting
    epochs: float
    size: int
    seed: int = 0
    variant: str = ""
    stored_side: int = SMALL_SIDE

    @property
    def name(self) -> str:
        """Name of its files."""
        variant = f"-{self.variant}" if self.variant else ""
        return f"{self.method}{variant}-{self.n_bits}-{self.task}-seed{self.seed}"

    def description(self) -> dict[str, Any]:
        """Return all settings as JSON gives them back; two runs are the same if these are."""
        described: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        # Runs of small images were kept before there were others.
        if self.stored_side == SMALL_SIDE:
            del described["stored_side"]
        return described


@dataclass(frozen=True, eq=False)
class RunCodes:
    """Codes and labels of a task's database and queries.

    Attributes:
        n_bits: length of a code.
        database, queries: packed codes.
        database_labels, query_labels: (rows,) class numbers or (rows, labels) of 0 and 1.
        trained: True for each row of the database that was learned from.
    """

    n_bits: int
    database: NDArray[np.uint8]
    queries: NDArray[np.uint8]
    database_labels: NDArray[Any]
    query_labels: NDArray[Any]
    trained: NDArray[np.bool_]

    def save(self, path: Path) -> None:
        """Write the codes and labels to an npz file."""
        content = io.BytesIO()
        np.savez_compressed(
            content,
            n_bits=self.n_bits,
            database=self.database,
            queries=self.queries,
            database_labels=self.database_labels.astype(np.uint8),
            query_labels=self.query_labels.astype(np.uint8),
            trained=self.trained,
        )
        write_atomically(path, content.getvalue())

    @classmethod
    def load(cls, path: Path) -> RunCodes:
        """Read what `save` wrote.

        Raises:
            CorruptFileError: the file is damaged.
        """
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
                return cls(
                    int(kept["n_bits"]),
                    kept["database"],
                    kept["queries"],
                    kept["database_labels"],
                    kept["query_labels"],
                    kept["trained"],
                )
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise CorruptFileError(f"{path} does not hold the codes of a run: {error}; delete it") from error


def kept_runs(folder: Path) -> list[tuple[dict[str, Any], RunCodes]]:
    """Return facts and codes of every run in `folder`, in the order of their names."""
    found = []
    for path in sorted(folder.glob("*.json")):
        codes = path.with_suffix(".npz")
        if codes.exists():
            found.append((json.loads(path.read_text(encoding="utf-8")), RunCodes.load(codes)))
    return found


def is_kept(run: Run, folder: Path) -> bool:
    """Return True if `folder` holds this run, with the same setting."""
    try:
        told = json.loads((folder / f"{run.name}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return bool(told.get("run") == run.description()) and (folder / f"{run.name}.npz").exists()


def do_run(
    run: Run,
    task: Task,
    tuner: FineTuner,
    *,
    features: Callable[[], NDArray[np.float32]],
    progress: Callable[[int, int], None] | None = None,
) -> tuple[dict[str, Any], RunCodes]:
    """Do a run, and return its facts, ready for JSON, and its codes.

    Args:
        run: the run.
        task: the rows to learn from and to search.
        tuner: trains on the task's images.
        features: returns features of the task's images from the untrained backbone, for methods that need them.
        progress: called with the steps done and all steps.
    """
    if run.method in METHODS:
        ((facts, codes),) = do_pulled(run, [run], task, tuner, features=features, progress=progress)
        return facts, codes
    start = time.perf_counter()
    known = features()
    encoder = (ITQ if run.method == "ITQ" else LSH)(run.n_bits, seed=run.seed).fit(known[task.train])
    seconds = time.perf_counter() - start
    codes = _codes_of(run, task, encoder.encode(known[task.database]), encoder.encode(known[task.queries]))
    return {"training_seconds": seconds, **_described(run)}, codes


def do_pulled(
    run: Run,
    pulled: Sequence[Run],
    task: Task,
    tuner: FineTuner,
    *,
    features: Callable[[], NDArray[np.float32]],
    progress: Callable[[int, int], None] | None = None,
) -> list[tuple[dict[str, Any], RunCodes]]:
    """Train once, and return facts and codes of each of `pulled`: runs that differ from `run` in the pull alone.

    The pull changes codes when they are made, not the network. For other arguments see `do_run`.
    """
    method = METHODS[run.method]
    options = training_options(run, len(task.train))
    steps = options.steps_for(len(task.train))
    known = LossTask(run.n_bits, task.n_labels, steps, lambda: _means_of_classes(task, features()))
    loss = method.build(known, run.setting.loss)
    tuned = tuner.fit(
        task.train,
        task.source.labels[task.train],
        loss,
        options,
        normalize=method.normalize,
        progress=None if progress is None else lambda state: progress(state.step, steps),
    )
    start = time.perf_counter()
    logits = [tuner.logits(tuned.model, rows) for rows in (task.database, task.queries)]
    facts = {
        "steps": steps,
        "training_seconds": tuned.seconds,
        "encoding_seconds": time.perf_counter() - start,
        "images_per_second": tuned.images_per_second,
        "loss": loss.extra_repr(),
    }
    found = []
    for one in pulled:
        pull = _pull(loss, one, task)
        packed = [HashHead.codes(pull(rows)).cpu().numpy() for rows in logits]
        found.append(({**facts, **_described(one)}, _codes_of(one, task, *packed)))
    return found


def _described(run: Run) -> dict[str, Any]:
    return {"run": run.description(), "provenance": provenance(seed=run.seed)}


def _codes_of(run: Run, task: Task, database: NDArray[np.uint8], queries: NDArray[np.uint8]) -> RunCodes:
    labels = task.source.labels
    return RunCodes(run.n_bits, database, queries, labels[task.database], labels[task.queries], task.trained)


def save_run(run: Run, folder: Path, facts: dict[str, Any], codes: RunCodes) -> None:
    """Write the run's two files; the facts come last, so that codes exist wherever facts do."""
    codes.save(folder / f"{run.name}.npz")
    write_json(folder / f"{run.name}.json", facts)


def training_options(run: Run, n_rows: int) -> TrainingOptions:
    """Return the options with which the run is trained on a number of rows."""
    steps = max(1, round(run.epochs * n_rows / run.setting.batch_size))
    return TrainingOptions(
        steps=steps,
        batch_size=run.setting.batch_size,
        group_size=run.setting.group_size,
        learning_rate=run.setting.learning_rate,
        backbone_rate=run.setting.backbone_rate,
        weight_decay=_WEIGHT_DECAY,
        seed=run.seed,
        log_every=max(1, steps // _REPORTS),
        stop_on_collapse=False,
    )


def _pull(loss: BatchLoss, run: Run, task: Task) -> nn.Module:
    """Return what turns logits into those of the code, pulled to codes of classes if only these are searched."""
    weight = run.setting.pull if task.is_closed else 0.0
    if not weight and loss.n_bits == run.n_bits:
        return nn.Identity()
    if not isinstance(loss, LabelLoss):
        raise InputError(f"{run.method} has no codes of classes; expected a pull of 0, not {weight}")
    # With a weight of 0, it only leaves out the logits of a guide.
    return ClassPull(nn.Identity(), loss.class_codes, n_bits=run.n_bits, weight=weight)


def _means_of_classes(task: Task, features: NDArray[np.float32]) -> Tensor:
    similarity = as_similarity(task.source.labels[task.train], len(task.train))
    return class_means(torch.from_numpy(features[task.train]), similarity.labels(torch.arange(len(task.train))))
