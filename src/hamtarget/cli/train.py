"""`hamtarget train`: a model from images with labels, or from vectors."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hamtarget.cli.terminal.options import AsJson, Key, Seed, Workers
from hamtarget.cli.terminal.output import note, write_json
from hamtarget.cli.terminal.progress import progress_on_stderr
from hamtarget.errors import FileError, InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hamtarget.learn import HashEncoder
    from hamtarget.learn.encoder import Objective

CHECKPOINT = "checkpoint.safetensors"
# At most this part of the training is done again after an interruption.
_CHECKPOINTS = 20
# How often a small set is gone through by default, within these bounds on the steps.
_EPOCHS = 15
_MIN_STEPS, _MAX_STEPS = 300, 4000
# Without labels, so many nearest neighbours are similar (paper 3.2).
_NEIGHBORS = 10
# Inputs by which codes are judged after training, and the share of dissimilar pairs within the radius that is too much.
_LOOKED_AT = 1000
_CROWDED = 0.2


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Inputs to learn from, their labels if they have some, and how to speak of them."""

    inputs: NDArray[Any]
    labels: NDArray[Any] | None
    description: str


def train(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="Folder with a folder of images for each class, CSV (path,label or path,label;label), or vectors "
            "(npy, npz, fvecs, bvecs, hdf5; an npz may hold `labels`).",
        ),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the model; an older one is replaced.")],
    bits: Annotated[
        int | None, typer.Option(metavar="N", help="Bits of a code; by default 32 with labels, 64 without.")
    ] = None,
    radius: Annotated[
        int | None,
        typer.Option(min=0, metavar="R", help="Similar inputs shall lie within R bits; by default 2 with labels."),
    ] = None,
    classes: Annotated[
        bool,
        typer.Option(
            "--classes",
            help="All that will be searched is of the classes learned from: finds more of each, most if they are many.",
        ),
    ] = False,
    steps: Annotated[int | None, typer.Option(min=1, metavar="N", help="Batches to train on.")] = None,
    epochs: Annotated[float | None, typer.Option(metavar="E", help="The same as passes through the inputs.")] = None,
    dissimilar_weight: Annotated[
        float, typer.Option(metavar="W", help="More of it means fewer, but surer, hits within the radius.")
    ] = 30.0,
    batch_size: Annotated[int, typer.Option(min=4, metavar="N", help="Inputs of a batch.")] = 256,
    size: Annotated[int, typer.Option(min=8, metavar="PIXELS", help="Images are cut to this size.")] = 64,
    grey: Annotated[bool, typer.Option("--grey", help="Images without colours.")] = False,
    center: Annotated[
        Literal["mean", "median"],
        typer.Option(help="median keeps every bit balanced, which helps where the classes are hard to tell apart."),
    ] = "mean",
    augment: Annotated[
        bool, typer.Option("--augment", help="Learn from parts of images, mirrored and in other colours; RGB only.")
    ] = False,
    width: Annotated[int | None, typer.Option(min=1, metavar="N", help="Width of the network's layers.")] = None,
    sample: Annotated[
        int, typer.Option(min=2, metavar="N", help="Learn from at most so many vectors, drawn at random.")
    ] = 100_000,
    held_out: Annotated[
        float, typer.Option(min=0, max=0.9, metavar="SHARE", help="Part kept aside, to choose the best weights by.")
    ] = 0.0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File to go on from and to save to; by default in the model's folder."),
    ] = None,
    onnx: Annotated[bool, typer.Option(help="Export the model too, so that it runs without torch.")] = True,
    key: Key = None,
    seed: Seed = 0,
    workers: Workers = 0,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn codes: images of one class, or vectors that are near, get codes that differ in few bits.

    After Ctrl-C, the same command goes on from the last checkpoint.
    """
    if steps is not None and epochs is not None:
        raise InputError("--steps and --epochs are given; they say the same: pass one of them")
    if epochs is not None and epochs <= 0:
        raise InputError(f"--epochs is {epochs}; expected more than 0")
    data = read_training_data(
        source, shape=(size, size) if grey else (3, size, size), key=key, sample=sample, seed=seed, workers=workers
    )
    if classes and (data.labels is None or data.labels.ndim > 1):
        found = "no labels" if data.labels is None else "several labels for an input"
        raise InputError(f"--classes is given, and {source} has {found}; expected one label for each input")
    n_rows = len(data.inputs)
    if steps is None:
        steps = ceil((epochs or _EPOCHS) * n_rows / batch_size)
        if epochs is None:
            steps = max(_MIN_STEPS, min(_MAX_STEPS, steps))

    from hamtarget.learn import CropFlipColor, HashEncoder, Progress

    labelled = data.labels is not None
    objective: Objective = "probing" if radius is None and not labelled else "radius"
    encoder = HashEncoder(
        bits or (32 if labelled else 64),
        2 if radius is None and labelled else radius,
        dissimilar_weight=dissimilar_weight,
        steps=steps,
        batch_size=batch_size,
        group_size=_group_size(data.labels),
        width=width,
        center=center,
        objective="classes" if classes else objective,
        held_out=held_out,
        seed=seed,
        device=device,
    )
    similar = data.labels
    if similar is None and not held_out:
        # What `fit` would do by itself, silently.
        similar = _neighbors(data.inputs, encoder)
    kept = checkpoint or model / CHECKPOINT
    with progress_on_stderr("Learning") as tell:
        reached = Progress(steps=steps)

        def show(progress: Progress) -> None:
            nonlocal reached
            reached = progress
            tell(progress.step, progress.steps, note=f"loss {progress.loss:.3f}")

        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            encoder.fit(
                data.inputs,
                similar,
                markers=_markers(data.labels, encoder.group_size),
                augment=CropFlipColor(size) if augment and data.inputs.ndim == 4 else None,
                progress=show,
                checkpoint=kept,
                checkpoint_every=max(1, steps // _CHECKPOINTS),
            )
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(_after_interrupt(kept)) from interrupt
    encoder.save(model)
    exported = onnx and _export(encoder, model)
    _warn_of_collapse(encoder, data, seed)
    if checkpoint is None:
        kept.unlink(missing_ok=True)
    if as_json:
        write_json(
            {
                "model": str(model),
                "n_bits": encoder.n_bits,
                "radius": encoder.radius,
                "input_shape": encoder.input_shape,
                "rows": n_rows,
                "steps": steps,
                "loss": reached.loss,
                "onnx": exported,
            }
        )
        return
    goal = "for probing" if encoder.radius is None else f"radius {encoder.radius}"
    typer.echo(f"Learned from {data.description} in {steps:,} steps; loss {reached.loss:.3f}")
    typer.echo(f"Model: {model} ({encoder.n_bits} bits, {goal}{', with ONNX' if exported else ''})")


def read_training_data(
    source: Path, *, shape: tuple[int, ...], key: str | None, sample: int | None, seed: int, workers: int
) -> TrainingData:
    """What to learn from, or to evaluate with.

    Args:
        source: class folder, CSV, or file of vectors.
        shape: of an image.
        key: which array of a file of vectors.
        sample: at most so many vectors, drawn at random; None: all.
        seed: of that draw.
        workers: processes that read images.

    Raises:
        FileError: the source cannot be used, or hardly any image of it.
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


def _group_size(labels: NDArray[Any] | None) -> int:
    """Inputs of a group: four, or as many as the largest class has."""
    if labels is None or labels.ndim > 1:
        return 4
    import numpy as np

    largest = int(np.unique(labels, return_counts=True)[1].max())
    if largest < 2:
        raise InputError("no two inputs have the same label; expected classes of at least 2")
    return min(4, largest)


def _markers(labels: NDArray[Any] | None, group_size: int) -> NDArray[Any] | None:
    """Inputs whose class is large enough for a group; a few rare ones are no reason to give up."""
    if labels is None or labels.ndim > 1:
        return None
    import numpy as np

    _, numbers, counts = np.unique(labels, return_inverse=True, return_counts=True)
    found: NDArray[Any] = np.flatnonzero(counts[numbers] >= group_size)
    return found


def _neighbors(vectors: NDArray[Any], encoder: HashEncoder) -> Any:
    from hamtarget.learn import Neighbors, available_device, nearest_neighbors

    device = available_device() if encoder.device == "auto" else encoder.device
    with progress_on_stderr("Nearest neighbours") as tell:
        k = min(_NEIGHBORS, len(vectors) - 1)
        return Neighbors(nearest_neighbors(vectors, k, device=device, progress=tell))


def _export(encoder: Any, model: Path) -> bool:
    from hamtarget.errors import MissingExtraError

    try:
        encoder.export_onnx(model)
    except MissingExtraError as error:
        note(f"hamtarget: not exported: {error}")
        return False
    return True


def _warn_of_collapse(encoder: HashEncoder, data: TrainingData, seed: int) -> None:
    """Tell where much of what is dissimilar got codes within the radius: such codes find everything."""
    import numpy as np

    from hamtarget.codes import distances

    if data.labels is None or not isinstance(encoder.radius, int):
        return
    some = np.random.default_rng(seed).permutation(len(data.inputs))[:_LOOKED_AT]
    codes, labels = encoder.encode(data.inputs[some]), data.labels[some]
    near = distances(codes, codes, encoder.n_bits) <= encoder.radius
    dissimilar = labels[:, None] != labels if labels.ndim == 1 else labels.astype(np.int64) @ labels.T == 0
    share = float(near[dissimilar].mean()) if dissimilar.any() else 0.0
    if share > _CROWDED:
        note(
            f"hamtarget: {share:.0%} of all dissimilar pairs lie within the radius, which finds them all: train longer "
            "(--epochs), balance the bits (--center median), or pass more --dissimilar-weight"
        )


def _after_interrupt(checkpoint: Path) -> str:
    if checkpoint.exists():
        return f"interrupted; the same command goes on from {checkpoint}"
    return "interrupted before the first checkpoint"
