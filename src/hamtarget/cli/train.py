"""`hamtarget train`: learn a model from images, from vectors, or from texts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hamtarget.cli.inputs.training_data import counted, holds_pictures, image_set, read_training_data
from hamtarget.cli.terminal.arguments import AsJson, Key, Seed, TextColumn, Workers
from hamtarget.cli.terminal.bars import named_progress_on_stderr
from hamtarget.cli.terminal.output import note, write_json
from hamtarget.cli.terminal.training_notes import warnings_as_notes
from hamtarget.errors import InputError, TrainingError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from hamtarget.datasets import ImageSet
    from hamtarget.learn import HashEncoder
    from hamtarget.learn.networks.builder import Network
    from hamtarget.learn.training.checkpoint import TrainingProgress

CHECKPOINT = "checkpoint.safetensors"
# Side of the images that a small network learns from.
_SIDE = 64
# How the library's advice is followed on the command line.
_OPTIONS = "(options: --dissimilar-weight, --center median, --epochs, --bits, --radius)"


def train(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help="Folder with one folder of images for each class, or of images alone; CSV (path,label or "
            "path,label;label); or vectors (npy, npz, fvecs, bvecs, hdf5; an npz may hold `labels`); or, with "
            "--sentence-model, texts (CSV, TSV, JSONL, TXT).",
        ),
    ],
    model: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the model. An older model is replaced.")],
    backbone: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE",
            help="Pretrained network that sees the images: resnet50_conv4, which comes with the package; a name of "
            "timm or torchvision; NAME=FILE with weights as safetensors; a FILE of ResNet-50; or none, to learn a "
            "small network from nothing. Default: resnet50_conv4.",
        ),
    ] = None,
    fine_tune: Annotated[
        bool,
        typer.Option(
            "--fine-tune", help="Train the whole pretrained network, not only codes of its features: for a GPU."
        ),
    ] = False,
    sentence_model: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="INPUT holds texts; this sentence-transformers model, a local folder with onnx/model.onnx, sees them.",
        ),
    ] = None,
    text_column: TextColumn = None,
    label_column: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Of texts: column with the class of each, empty where there is none."),
    ] = None,
    copies: Annotated[
        bool, typer.Option("--copies", help="Say how to find altered copies of images: that needs no training.")
    ] = False,
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
        bool | None,
        typer.Option(
            "--classes/--no-classes",
            help="Everything that will be searched belongs to one of the classes in INPUT. A search then finds more "
            "of a class, but items of other classes are moved to a known one: pass --no-classes for collections with "
            "such items. Default: --classes for images with one label each.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Batches to train on. Default: 15 passes, 300 to 4,000; 800 for many vectors."
        ),
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
    batch_size: Annotated[
        int | None, typer.Option(min=4, metavar="N", help="Inputs in a batch. Default: 256; 1,024 for many vectors.")
    ] = None,
    size: Annotated[
        int | None,
        typer.Option(
            min=8,
            metavar="PIXELS",
            help="Side to which images are scaled and cut. Default: that of the pretrained network; 64 without one.",
        ),
    ] = None,
    grey: Annotated[
        bool, typer.Option("--grey", help="Learn from grey images instead of colour images; with --backbone none.")
    ] = False,
    center: Annotated[
        Literal["mean", "median"] | None,
        typer.Option(help="median keeps every bit balanced. Default: median for colour images, else mean."),
    ] = None,
    augment: Annotated[
        bool,
        typer.Option(
            "--augment",
            help="Learn from random crops of colour images, mirrored and recoloured; with --fine-tune or "
            "--backbone none.",
        ),
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
    metric: Annotated[
        Literal["l2", "cosine", "dot"] | None,
        typer.Option(help="By what vectors without labels are near. A store of the model ranks by it. Default: l2."),
    ] = None,
    seed: Seed = 0,
    workers: Workers = 0,
    device: Annotated[str, typer.Option(metavar="NAME", help="cpu, cuda, or auto: a GPU if there is one.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Learn codes: images of one class, or inputs near to each other, get codes that differ in few bits.

    A pretrained network sees each image once. What it sees is kept by the content of the file: another run with the
    same images takes seconds. After Ctrl-C, the same command goes on where it was.
    """
    if copies:
        raise InputError(
            "--copies: altered copies of images are found without training, by `hamtarget dups FOLDER`, or in a store "
            "by `hamtarget add STORE FOLDER --encoder copies64`"
        )
    if steps is not None and epochs is not None:
        raise InputError("--steps and --epochs are given, but mean the same; pass one of them")
    if epochs is not None and epochs <= 0:
        raise InputError(f"--epochs is {epochs}; expected more than 0")
    if sentence_model is not None:
        for name, given in {
            "--backbone": backbone is not None,
            "--fine-tune": fine_tune,
            "--augment": augment,
            "--size": size is not None,
            "--grey": grey,
            "--center": center is not None,
            "--width": width is not None,
            "--key": key is not None,
            "--no-onnx": not onnx,
        }.items():
            if given:
                raise InputError(f"{name} is given with --sentence-model; it is not for texts")
        from hamtarget.cli.text_training import TextTraining, train_texts

        train_texts(
            TextTraining(
                source=source,
                model=model,
                sentence_model=sentence_model,
                text_column=text_column,
                label_column=label_column,
                bits=bits,
                radius=radius,
                classes=classes,
                steps=steps,
                epochs=epochs,
                dissimilar_weight=dissimilar_weight,
                batch_size=batch_size,
                held_out=held_out,
                seed=seed,
                device=device,
                checkpoint=checkpoint or model / CHECKPOINT,
                keeps_checkpoint=checkpoint is not None,
                as_json=as_json,
            )
        )
        return
    if text_column is not None or label_column is not None:
        option = "--text-column" if text_column is not None else "--label-column"
        raise InputError(f"{option} is given without --sentence-model; it is for texts")
    is_pictures = holds_pictures(source)
    _check_options(
        source,
        is_pictures=is_pictures,
        backbone=backbone,
        fine_tune=fine_tune,
        augment=augment,
        of_small_network={"--grey": grey, "--width": width is not None, "--center": center is not None},
    )
    from hamtarget.datasets import ImageSet
    from hamtarget.learn import HashEncoder, NetworkOptions, TrainingOptions
    from hamtarget.learn.fitting.arrays import vector_training
    from hamtarget.learn.fitting.objectives import loss_by_word
    from hamtarget.learn.fitting.pictures import labels_of, loss_word_for, training_for
    from hamtarget.learn.networks.augmentation import CropFlipColor
    from hamtarget.learn.networks.backbones import chosen_backbone
    from hamtarget.learn.networks.frozen import picture_shape
    from hamtarget.learn.similarity.labels import Labels
    from hamtarget.learn.training.checkpoint import TrainingProgress

    inputs: NDArray[Any] | ImageSet
    network: Network
    if is_pictures and backbone != "none":
        network = pretrained = chosen_backbone(backbone, size=size, trained=fine_tune)
        inputs = image_set(source)
        labels, side = inputs.labels, picture_shape(pretrained)[-1]
        description = counted(len(inputs), inputs)
    else:
        side = size or _SIDE
        data = read_training_data(
            source, shape=(side, side) if grey else (3, side, side), key=key, sample=sample, seed=seed, workers=workers
        )
        network = NetworkOptions(width=width, center=center)
        inputs, labels, description = data.inputs, data.labels, data.description
    if classes and (labels is None or labels.ndim > 1):
        found = "no labels" if labels is None else "several labels for an input, or none for some"
        raise InputError(f"--classes is given, but {source} has {found}; expected one label for each input")
    similar = labels_of(labels, len(inputs))
    n_without = int(similar.unlabelled.sum()) if isinstance(similar, Labels) else 0
    is_colour = isinstance(inputs, ImageSet) or inputs.ndim == 4
    near_vectors = similar is None and not isinstance(inputs, ImageSet) and inputs.ndim == 2
    if metric is not None and not near_vectors:
        found = "images" if is_pictures else "labels"
        raise InputError(f"--metric is given, but {source} has {found}; it is for vectors without labels")
    training = TrainingOptions()
    if near_vectors:
        training = vector_training(len(inputs))
    elif isinstance(inputs, ImageSet):
        training = replace(training_for(network, len(inputs)), workers=workers)
    if batch_size is not None:
        training = replace(training, batch_size=batch_size)
    if epochs is not None:
        steps = ceil(epochs * len(inputs) / training.batch_size)
    if steps is not None:
        training = replace(training, steps=steps)
    word = "classes" if classes else "auto"
    if classes is None and isinstance(inputs, ImageSet):
        word = loss_word_for(similar)
    encoder = HashEncoder(
        loss=loss_by_word(
            word,
            similar,
            of_vectors=not isinstance(inputs, ImageSet) and inputs.ndim == 2,
            n_bits=bits,
            radius=radius,
            dissimilar_weight=dissimilar_weight,
        ),
        network=network,
        training=training,
        held_out=held_out,
        seed=seed,
        device=device,
        metric=metric or "l2",
    )
    kept = checkpoint or model / CHECKPOINT
    reached = TrainingProgress(steps=training.steps_for(len(inputs)))
    with warnings_as_notes(_OPTIONS) as skipped, named_progress_on_stderr() as tell:

        def show(progress: TrainingProgress) -> None:
            nonlocal reached
            reached = progress
            tell("Learning", progress.step, progress.steps, note=f"loss {progress.loss:.3f}")

        kept.parent.mkdir(parents=True, exist_ok=True)
        try:
            encoder.fit(
                inputs,
                similar,
                augment=CropFlipColor(side) if augment and is_colour else None,
                progress=show,
                features_progress=partial(tell, "Seeing images"),
                neighbors_progress=partial(tell, "Nearest neighbours"),
                checkpoint=kept,
            )
        except KeyboardInterrupt as interrupt:
            raise KeyboardInterrupt(_after_interrupt(kept)) from interrupt
        except TrainingError as error:
            # Such a run is not worth resuming, and would be in the way of one with other options.
            if checkpoint is None:
                kept.unlink(missing_ok=True)
            raise TrainingError(f"{error} {_OPTIONS}") from error
    n_rows = len(inputs) - len(skipped)
    if isinstance(inputs, ImageSet):
        description = counted(n_rows, inputs)
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
                "rows": n_rows,
                "steps": reached.steps,
                "loss": reached.loss,
                "metric": encoder.neighbor_metric,
                "onnx": exported,
            }
        )
        return
    aim = "for probing" if encoder.radius is None else f"radius {encoder.radius}"
    if encoder.neighbor_metric is not None:
        aim = f"for near vectors by {encoder.neighbor_metric}"
    if n_without:
        description += f", {n_without:,} without a label"
    typer.echo(f"Learned from {description} in {reached.steps:,} steps; loss {reached.loss:.3f}")
    typer.echo(f"Model: {model} ({encoder.n_bits} bits, {aim}{', with ONNX' if exported else ''})")


def _check_options(
    source: Path,
    *,
    is_pictures: bool,
    backbone: str | None,
    fine_tune: bool,
    augment: bool,
    of_small_network: dict[str, bool],
) -> None:
    """Refuse options that would have no effect."""
    given = [name for name, is_given in of_small_network.items() if is_given]
    if not is_pictures:
        for name in ("--backbone",) * (backbone is not None) + ("--fine-tune",) * fine_tune:
            raise InputError(f"{name} is given, but {source} holds vectors; it is for images")
    elif backbone == "none" and fine_tune:
        raise InputError("--fine-tune is given, but --backbone none has no pretrained network; pass one of them")
    elif backbone != "none" and given:
        raise InputError(f"{given[0]} is an option of the small network: pass --backbone none with it, or leave it out")
    elif backbone != "none" and augment and not fine_tune:
        raise InputError(
            "--augment needs a network that sees each image many times: pass --fine-tune or --backbone none with it"
        )


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
    return (
        "interrupted before the first checkpoint; what was seen of images is kept, and the same command goes on from it"
    )
