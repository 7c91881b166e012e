"""The way of `hamtarget train` for texts: a sentence model sees them, and codes of what it sees are learned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from hamtarget.cli.terminal.bars import named_progress_on_stderr
from hamtarget.cli.terminal.output import note, printable, write_json
from hamtarget.cli.terminal.training_notes import warnings_as_notes
from hamtarget.errors import FileError, InputError, TrainingError

if TYPE_CHECKING:
    from hamtarget.learn.training.checkpoint import TrainingProgress

# Rows that cannot be read, which are named one by one.
_NAMED = 10
# How the library's advice is followed on the command line.
_OPTIONS = "(options: --dissimilar-weight, --epochs, --bits, --radius)"


@dataclass(frozen=True)
class TextTraining:
    """The options of a training on texts, as the command takes them."""

    source: Path
    model: Path
    sentence_model: Path
    text_column: str | None
    label_column: str | None
    bits: int | None
    radius: int | None
    classes: bool | None
    steps: int | None
    epochs: float | None
    dissimilar_weight: float | None
    batch_size: int | None
    held_out: float
    seed: int
    device: str
    checkpoint: Path
    keeps_checkpoint: bool
    as_json: bool


def train_texts(asked: TextTraining) -> None:
    """Learn codes of texts, write the model, and tell about it.

    Raises:
        FileError: there is no such file, or fewer than two texts in it.
        InputError: there is no such column.
    """
    import numpy as np

    from hamtarget.encoders.sentence.model_folder import is_sentence_model
    from hamtarget.encoders.sentence.text_encoder import TextEncoder
    from hamtarget.learn import HashEncoder, TrainingOptions
    from hamtarget.learn.fitting.objectives import loss_by_word
    from hamtarget.learn.fitting.texts import fit_texts
    from hamtarget.learn.similarity.labels import Labels
    from hamtarget.learn.training.checkpoint import TrainingProgress

    if not is_sentence_model(asked.sentence_model):
        raise FileError(
            f"{asked.sentence_model} is no sentence model; expected a folder with modules.json, tokenizer.json and "
            "onnx/model.onnx"
        )
    texts, names = _read(asked)
    sentence_model = TextEncoder.from_sentence_model(asked.sentence_model)
    similar: Labels | None = None
    description = f"{len(texts):,} texts"
    if names is not None:
        similar = Labels(np.array(names, dtype=object))
        description += f" of {similar.n_labels:,} classes"
        n_without = int(similar.unlabelled.sum())
        if n_without:
            description += f", {n_without:,} without one"
    elif asked.classes:
        raise InputError("--classes is given without --label-column; expected one label for each text")
    training = TrainingOptions()
    if asked.batch_size is not None:
        training = replace(training, batch_size=asked.batch_size)
    steps = asked.steps
    if asked.epochs is not None:
        steps = ceil(asked.epochs * len(texts) / training.batch_size)
    if steps is not None:
        training = replace(training, steps=steps)
    encoder = HashEncoder(
        loss=loss_by_word(
            "classes" if asked.classes else "auto",
            similar,
            of_vectors=True,
            n_bits=asked.bits,
            radius=asked.radius,
            dissimilar_weight=asked.dissimilar_weight,
        ),
        training=training,
        held_out=asked.held_out,
        seed=asked.seed,
        device=asked.device,
    )
    reached = TrainingProgress(steps=training.steps_for(len(texts)))
    asked.checkpoint.parent.mkdir(parents=True, exist_ok=True)
    with warnings_as_notes(_OPTIONS), named_progress_on_stderr() as tell:

        def show(progress: TrainingProgress) -> None:
            nonlocal reached
            reached = progress
            tell("Learning", progress.step, progress.steps, note=f"loss {progress.loss:.3f}")

        try:
            learned = fit_texts(
                texts,
                similar,
                sentence_model=sentence_model,
                encoder=encoder,
                progress=show,
                features_progress=partial(tell, "Reading texts"),
                neighbors_progress=partial(tell, "Nearest neighbours"),
                checkpoint=asked.checkpoint,
            )
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(
                "interrupted; features of texts are kept, and the same command goes on from them"
            ) from interrupt
        except TrainingError as error:
            # Such a run is not worth resuming, and would be in the way of one with other options.
            if not asked.keeps_checkpoint:
                asked.checkpoint.unlink(missing_ok=True)
            raise TrainingError(f"{error} {_OPTIONS}") from error
    learned.save(asked.model)
    if not asked.keeps_checkpoint:
        asked.checkpoint.unlink(missing_ok=True)
    if sentence_model.n_cut:
        note(f"hamtarget: {sentence_model.n_cut:,} texts were cut at {sentence_model.max_tokens} tokens")
    if asked.as_json:
        write_json(
            {
                "model": str(asked.model),
                "n_bits": learned.n_bits,
                "radius": learned.radius,
                "rows": len(texts),
                "steps": reached.steps,
                "loss": reached.loss,
                "onnx": True,
            }
        )
        return
    aim = "for probing" if learned.radius is None else f"radius {learned.radius}"
    typer.echo(f"Learned from {description} in {reached.steps:,} steps; loss {reached.loss:.3f}")
    typer.echo(f"Model: {asked.model} ({learned.n_bits} bits, {aim}, takes texts)")


def _read(asked: TextTraining) -> tuple[list[str], list[str | None] | None]:
    """Return the texts and, if a column has them, their labels: None where the column is empty.

    Rows that cannot be read are named and left out.
    """
    from hamtarget.datasets.texts.text_files import read_texts

    n_broken = 0

    def leave_out(reason: str) -> None:
        nonlocal n_broken
        n_broken += 1
        if n_broken <= _NAMED:
            note(f"hamtarget: left out {printable(reason)}")

    texts: list[str] = []
    labels: list[str | None] = []
    for row in read_texts(asked.source, text_column=asked.text_column, on_broken=leave_out):
        if asked.label_column is not None:
            if asked.label_column not in row.others:
                found = ", ".join(row.others) or "none"
                raise InputError(
                    f"{asked.source} has no column {asked.label_column!r} on line {row.line:,}; its other columns are "
                    f"{found}"
                )
            label = row.others[asked.label_column]
            labels.append(None if label is None else str(label).strip() or None)
        texts.append(row.text)
    if n_broken:
        note(f"hamtarget: {n_broken:,} rows could not be read")
    if len(texts) < 2:
        raise FileError(f"{asked.source}: {len(texts)} texts could be read; learning needs at least 2")
    return texts, labels if asked.label_column is not None else None
