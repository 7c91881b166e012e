"""`hamtarget train`: learn a model from images with labels, or from vectors."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hamtarget.cli.terminal.arguments import AsJson, Key, Seed, Workers
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import note, write_json
from hamtarget.errors import CrowdedCodesWarning, FileError, InputError, TrainingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hamtarget.learn import HashEncoder
    from hamtarget.learn.checkpoint import TrainingProgress

CHECKPOINT = "checkpoint.safetensors"
# How the library's advice is followed on the command line.
_OPTIONS = "(options: --dissimilar-weight, --center median, --epochs, --bits, --radius)"


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Inputs to learn from, their labels if there are any, and a description for people."""

    inputs: NDArray[Any]
    labels: NDArray[Any] | None
    description: str


def train(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="Folder with one folder of images for each class; CSV (path,label or path,label;label); or vectors "
            "(npy, npz, fvecs, bvecs, hdf5; an npz may hold `labels`).",
        ),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the model. An older model is replaced.")],
    bits: Annotated[
        int | None, typer.Option(metavar="N", help="Bits of a code. Default: 32 with labels, 64 without.")
    ] = None,
    radius: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="R",
            help="Similar inputs get codes within R bits. Default: 2 with labels; without labels, codes for probing.",
        ),
    ] = None,
    classes: Annotated[
        bool,
        typer.Option(
            "--classes",
            help="Everything that will be searched belongs to one of the classes in INPUT. A search then finds more "
            "of a class. Do not use it for collections with other items: they would be moved to a known class.",
        ),
    ] = False,
    steps: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Batches to train on. Default: 15 passes, 300 to 4,000.")
    ] = None,
    epochs: Annotated[
        float | None, typer.Option(metavar="E", help="Passes through the inputs, instead of --steps.")
    ] = None,
    dissimilar_weight: Annotated[
        float | None,
        typer.Option(
            metavar="W",
            help="Weight of dissimilar pairs: more gives fewer, but surer hits. Default: 30 with labels, else 300.",
        ),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=4, metavar="N", help="Inputs in a batch. Default: 256.")] = None,
    size: Annotated[int, typer.Option(min=8, metavar="PIXELS", help="Side to which images are scaled and cut.")] = 64,
    grey: Annotated[bool, typer.Option("--grey", help="Learn from grey images instead of colour images.")] = False,
    center: Annotated[
        Literal["mean", "median"] | None,
        typer.Option(help="median keeps every bit balanced. Default: median for colour images, else mean."),
    ] = None,
    augment: Annotated[
        bool,
        typer.Option("--augment", help="Learn from random crops, mirrored and recoloured; for colour images only."),
    ] = False,
    width: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Width of the network. Default: 256 (vectors), 32 (images).")
    ] = None,
    sample: Annotated[
        int, typer.Option(min=2, metavar="N", help="Learn from at most N vectors, drawn at random.")
    ] = 100_000,
    held_out: Annotated[
        float,
        typer.Option(min=0, max=0.9, metavar="SHARE", help="Share of the inputs to hold out and choose weights by."),
    ] = 0.0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to resume from and to save to. Default: in the model's folder."),
    ] = None,
    onnx: Annotated[bool, typer.Option(help="Export the model, too, so that it runs without torch.")] = True,
    key: Key = None,
    seed: Seed = 0,
    workers: Workers = 0,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn codes: images of one class, or vectors near to each other, get codes that differ in few bits.

    After Ctrl-C, the same command goes on from the last checkpoint.
    """
    if steps is not None and epochs is not None:
        raise InputError("--steps and --epochs are given, but mean the same; pass one of them")
    if epochs is not None and epochs <= 0:
        raise InputError(f"--epochs is {epochs}; expected more than 0")
    data = read_training_data(
        source, shape=(size, size) if grey else (3, size, size), key=key, sample=sample, seed=seed, workers=workers
    )
    if classes and (data.labels is None or data.labels.ndim > 1):
        found = "no labels" if data.labels is None else "several labels for an input"
        raise InputError(f"--classes is given, but {source} has {found}; expected one label for each input")

    from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions
    from hamtarget.learn.checkpoint import TrainingProgress
    from hamtarget.learn.networks.augmentation import CropFlipColor
    from hamtarget.learn.objectives import loss_by_word
    from hamtarget.learn.similarity import as_similarity

    similar = None if data.labels is None else as_similarity(data.labels, len(data.inputs))
    training = TrainingOptions() if batch_size is None else TrainingOptions(batch_size=batch_size)
    if epochs is not None:
        steps = ceil(epochs * len(data.inputs) / training.batch_size)
    training = replace(training, steps=steps)
    encoder = HashEncoder(
        loss=loss_by_word(
            "classes" if classes else "auto", similar, n_bits=bits, radius=radius, dissimilar_weight=dissimilar_weight
        ),
        network=NetworkOptions(width=width, center=center),
        training=training,
        held_out=held_out,
        seed=seed,
        device=device,
    )
    kept = checkpoint or model / CHECKPOINT
    reached = TrainingProgress(steps=training.steps_for(len(data.inputs)))
    with _warnings_as_notes(), progress_on_stderr("Learning") as tell, ExitStack() as finding:
        tell_neighbors = finding.enter_context(progress_on_stderr("Nearest neighbours"))

        def show(progress: TrainingProgress) -> None:
            nonlocal reached
            # One bar at a time.
            finding.close()
            reached = progress
            tell(progress.step, progress.steps, note=f"loss {progress.loss:.3f}")

        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            encoder.fit(
                data.inputs,
                similar,
                augment=CropFlipColor(size) if augment and data.inputs.ndim == 4 else None,
                progress=show,
                neighbors_progress=tell_neighbors,
                checkpoint=kept,
            )
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(_after_interrupt(kept)) from interrupt
        except TrainingError as error:
            # Such a run is not worth resuming, and would be in the way of one with other options.
            if checkpoint is None:
                kept.unlink(missing_ok=True)
            raise TrainingError(f"{error} {_OPTIONS}") from error
    encoder.save(model)
    exported = onnx and _export(encoder, model)
    if checkpoint is None:
        kept.unlink(missing_ok=True)
    if as_json:
        write_json(
            {
                "model": str(model),
                "n_bits": encoder.n_bits,
                "radius": encoder.radius,
                "input_shape": encoder.input_shape,
                "rows": len(data.inputs),
                "steps": reached.steps,
                "loss": reached.loss,
                "onnx": exported,
            }
        )
        return
    aim = "for probing" if encoder.radius is None else f"radius {encoder.radius}"
    typer.echo(f"Learned from {data.description} in {reached.steps:,} steps; loss {reached.loss:.3f}")
    typer.echo(f"Model: {model} ({encoder.n_bits} bits, {aim}{', with ONNX' if exported else ''})")


def read_training_data(
    source: Path, *, shape: tuple[int, ...], key: str | None, sample: int | None, seed: int, workers: int
) -> TrainingData:
    """Return the inputs to learn from, or to evaluate with.

    Args:
        source: folder of class folders, CSV, or file of vectors.
        shape: shape of an image.
        key: name of the array in a file of vectors.
        sample: largest number of vectors, drawn at random. None: all.
        seed: seed of that draw.
        workers: number of processes that read images.

    Raises:
        FileError: the source cannot be read, or fewer than two of its images can.
        InputError: there is not one label for each vector.
    """
    if source.is_dir() or source.suffix.lower() == ".csv":
        return _read_images(source, shape, workers)
    return _read_vectors(source, key=key, sample=sample, seed=seed)


def _read_images(source: Path, shape: tuple[int, ...], workers: int) -> TrainingData:
    from hamtarget.datasets import ImageSet

    images = ImageSet.from_folder(source) if source.is_dir() else ImageSet.from_csv(source)
    with progress_on_stderr("Reading images") as tell:
        decoded = images.decode(shape, workers=workers, progress=tell)
    for row, reason in decoded.broken.items():
        note(f"hamtarget: left out image {row:,}: {reason}")
    if len(decoded.rows) < 2:
        raise FileError(f"{source}: {len(decoded.rows)} images could be read; learning needs at least 2")
    labels = images.labels
    description = f"{len(decoded.rows):,} images of {len(images.class_names):,} classes"
    return TrainingData(decoded.images, None if labels is None else labels[decoded.rows], description)


def _read_vectors(source: Path, *, key: str | None, sample: int | None, seed: int) -> TrainingData:
    import numpy as np

    from hamtarget.datasets import open_vectors
    from hamtarget.datasets.vector_files import read_arrays, vector_format

    vectors = open_vectors(source, key=key)
    labels = None
    if vector_format(source) in (".npz", ".hdf5"):
        arrays = read_arrays(source)
        if "labels" in arrays and key != "labels":
            labels = arrays["labels"]()
            if len(labels) != len(vectors):
                raise InputError(f"{source} has {len(labels):,} labels for {len(vectors):,} vectors; expected as many")
    description = f"{len(vectors):,} vectors"
    if sample is not None and len(vectors) > sample:
        chosen = np.sort(np.random.default_rng(seed).permutation(len(vectors))[:sample])
        vectors, labels = vectors[chosen], None if labels is None else labels[chosen]
        description = f"{sample:,} of {description}"
    return TrainingData(vectors, labels, description)


@contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Show warnings about the codes as notes on the standard error, after the work."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CrowdedCodesWarning)
        yield
    for each in caught:
        if issubclass(each.category, CrowdedCodesWarning):
            note(f"hamtarget: {each.message} {_OPTIONS}")
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def _export(encoder: HashEncoder, model: Path) -> bool:
    from hamtarget.errors import MissingExtraError

    try:
        encoder.export_onnx(model)
    except MissingExtraError as error:
        note(f"hamtarget: not exported: {error}")
        return False
    return True


def _after_interrupt(checkpoint: Path) -> str:
    if checkpoint.exists():
        return f"interrupted; the same command goes on from {checkpoint}"
    return "interrupted before the first checkpoint"
