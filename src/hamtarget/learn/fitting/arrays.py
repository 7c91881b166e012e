"""Learning an encoder from arrays: its defaults, its choices, and the order of its steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from hamtarget._metric import MetricName, check_metric
from hamtarget.codes import from_logits
from hamtarget.errors import InputError, ShapeError, SimilarityError
from hamtarget.learn.fitting.fitted import FittedEncoder
from hamtarget.learn.fitting.held_out import HeldOutLoss, places, split
from hamtarget.learn.fitting.inputs import as_tensor, channels_first, range_of, with_channel
from hamtarget.learn.fitting.objectives import ClassCodes, Loss, PartlyLabelled, Recipe, chosen_loss, trainable_loss
from hamtarget.learn.fitting.part_labels import find_pairs
from hamtarget.learn.losses.base import BatchLoss, LabelLoss
from hamtarget.learn.losses.keep_neighbors import KeepNeighbors
from hamtarget.learn.networks.builder import Network, NetworkOptions, build_model, network_choice
from hamtarget.learn.networks.class_pull import ClassPull
from hamtarget.learn.networks.head import HashModel
from hamtarget.learn.networks.standardize import Standardize
from hamtarget.learn.similarity.as_similarity import as_similarity
from hamtarget.learn.similarity.labels import Labels
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors
from hamtarget.learn.similarity.pairs import Neighbors
from hamtarget.learn.similarity.relation import Similarity
from hamtarget.learn.similarity.with_features import WithFeatures
from hamtarget.learn.training.checkpoint import TrainingProgress, check_checkpoint
from hamtarget.learn.training.collapse import warn_if_crowded
from hamtarget.learn.training.options import TrainingOptions
from hamtarget.learn.training.trainer import checkpoint_settings, train
from hamtarget.progress import Progress

# Without labels, so many nearest neighbours are similar (paper 3.2).
NEIGHBORS = 10
# Inputs by whose codes crowding is judged after training.
_JUDGED = 1000
# From fewer vectors, large batches would hold the same ones again and again.
_ROWS_FOR_LARGE_BATCHES = 10_000
_LARGE_BATCH = 1024
# docs/experiments.md, "Short training", says what more of each would give.
_STEPS = 800
_MARKERS = 25_000
_LAYERS = 2


def fit_encoder(
    inputs: ArrayLike | Tensor,
    similar: Any,
    *,
    n_bits: int | None,
    loss: Loss,
    network: Network,
    training: TrainingOptions | None,
    held_out: float,
    seed: int,
    device: str,
    metric: MetricName = "l2",
    markers: ArrayLike | None,
    augment: Callable[[Tensor], Tensor] | None,
    progress: Callable[[TrainingProgress], None] | None,
    neighbors_progress: Progress | None,
    checkpoint: str | Path | None,
    log: str | Path | None,
) -> FittedEncoder:
    """Learn from inputs and return what was learned; nothing that is passed in is changed.

    The arguments are those of `HashEncoder` and of its `fit`.
    """
    architecture = network_choice(network)
    rows = as_tensor(inputs)
    # The shape of what a network of the caller's own takes is the caller's business.
    rows = channels_first(rows) if isinstance(architecture, NetworkOptions) else with_channel(rows)
    if len(rows) < 2:
        raise ShapeError(f"inputs have {len(rows)} rows; learning needs at least 2")
    relation = None if similar is None else as_similarity(similar, len(rows))
    check_metric(metric)
    near_vectors = relation is None and rows.ndim == 2
    if metric != "l2" and not near_vectors:
        raise InputError(
            f"metric is {metric!r}; it is for learning from vectors alone, where near ones are similar: leave it out"
        )
    chosen = chosen_loss(loss, n_bits, relation, of_vectors=rows.ndim == 2)
    trained_loss = trainable_loss(chosen, relation, seed=seed)
    shape = tuple(rows.shape[1:])
    place = torch_device(device)
    rows = rows.to(place)

    kept, aside = split(len(rows), held_out, seed)
    if isinstance(chosen, PartlyLabelled) and isinstance(relation, Labels) and bool(relation.unlabelled.any()):

        def first_training(labels: Labels, items: Tensor) -> Tensor:
            """Return the logits of all rows, as learned from some of them."""
            first = fit_encoder(
                rows[items.to(place)],
                labels,
                n_bits=None,
                loss=trained_loss,
                network=network,
                training=training,
                held_out=0.0,
                seed=seed,
                device=device,
                markers=None,
                augment=augment,
                progress=progress,
                neighbors_progress=None,
                checkpoint=None,
                log=None,
            )
            # The others may have another range; the encoder that is returned learns from all.
            return torch.from_numpy(replace(first, input_range=None).logits(rows))

        found = find_pairs(relation, first_training, neighbors=chosen.neighbors, seed=seed, progress=neighbors_progress)
        relation = found.relation
        kept, aside = kept[found.learnable[kept]], aside[found.learnable[aside]]
    is_part = len(kept) < len(rows)
    learned = rows[kept.to(place)] if is_part else rows
    wanted = None if markers is None else places(torch.as_tensor(np.asarray(markers)), kept, len(rows))
    if training is None:
        training = vector_training(len(learned)) if near_vectors else TrainingOptions()
    training = replace(training, seed=seed)
    if relation is None:
        if checkpoint is not None:
            # Neighbours take long to find, and all inputs have as many.
            groups = training.for_groups(1 + min(NEIGHBORS, len(learned) - 1))
            check_checkpoint(checkpoint, checkpoint_settings(groups, trained_loss, len(learned)))
        centres = vector_markers(len(learned), seed) if wanted is None and near_vectors else wanted
        similarity: Similarity = _near(learned, centres, metric, neighbors_progress)
    else:
        similarity = _among(relation, kept)
    similarity = _with_features(similarity, learned, trained_loss)
    if near_vectors and isinstance(architecture, NetworkOptions):
        architecture = vector_network(architecture, metric)
    options = _fitting_groups(training, similarity)
    evaluate = None
    if len(aside):
        held = rows[aside.to(place)]
        relation_of_held = _near(held, None, metric, None) if relation is None else _among(relation, aside)
        relation_of_held = _with_features(relation_of_held, held, trained_loss)
        evaluate = HeldOutLoss(held, relation_of_held, trained_loss, options)

    model = build_model(architecture, shape, n_logits=trained_loss.n_bits, seed=seed)
    for module in model.modules():
        if isinstance(module, Standardize):
            module.fit(learned.cpu())
    train(
        model.to(place),
        trained_loss,
        learned,
        similarity,
        options,
        evaluate=evaluate,
        markers=_markers(wanted, similarity, options.group_size, checked=is_part),
        augment=augment,
        progress=progress,
        checkpoint=checkpoint,
        log=log,
    )
    fitted = FittedEncoder(
        model=_with_class_pull(model, chosen, trained_loss),
        loss=chosen,
        network=architecture.for_inputs(shape) if isinstance(architecture, NetworkOptions) else architecture,
        training=replace(options, steps=options.steps_for(len(learned))),
        held_out=held_out,
        seed=seed,
        n_bits=chosen.n_bits,
        radius=chosen.radius,
        input_shape=shape,
        input_range=range_of(rows),
        metric=metric if near_vectors else None,
    )
    if fitted.radius is not None:
        some = torch.randperm(len(learned), generator=torch.Generator().manual_seed(seed))[:_JUDGED]
        some = some.to(place)
        # A sample need not have the whole range.
        logits = replace(fitted, input_range=None).logits(learned[some])
        radius = fitted.radius if isinstance(fitted.radius, int) else min(fitted.radius)
        warn_if_crowded(from_logits(logits), some, similarity.to(place), radius)
    return fitted


def torch_device(name: str) -> torch.device:
    """Return the device of this name; for "auto" a GPU if torch can use one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu") if name == "auto" else torch.device(name)


def _near(inputs: Tensor, markers: Tensor | None, metric: MetricName, progress: Progress | None) -> Neighbors:
    """Return the nearest neighbours of inputs, or of the markers among them."""
    # Neighbours are sought among the inputs that are trained on together, not cut from longer lists.
    k = min(NEIGHBORS, len(inputs) - 1)
    lists = nearest_neighbors(inputs, k, metric=metric, rows=markers, progress=progress)
    return Neighbors(lists) if markers is None else Neighbors(lists, items=markers, n_items=len(inputs))


def _among(relation: Similarity, items: Tensor) -> Similarity:
    """Return the relation among some of the items."""
    return relation if len(items) == relation.n_items else relation.subset(items)


def _with_features(relation: Similarity, inputs: Tensor, loss: BatchLoss) -> Similarity:
    """Return the relation with the features of its items, if the loss needs them."""
    if not isinstance(loss, KeepNeighbors):
        return relation
    if inputs.ndim != 2:
        raise InputError(
            f"KeepNeighbors keeps neighbourhoods of vectors, (rows, columns), but inputs have shape "
            f"{tuple(inputs.shape)}; pass the loss within it, {type(loss.loss).__name__}, alone"
        )
    return WithFeatures(relation, inputs)


def _fitting_groups(options: TrainingOptions, similarity: Similarity) -> TrainingOptions:
    """Return the options with a group that is no larger than the most inputs that are similar to one.

    Raises:
        SimilarityError: no two inputs are similar, or all have one label.
    """
    relation = similarity.relation if isinstance(similarity, WithFeatures) else similarity
    if isinstance(relation, Labels) and relation.n_labels == 1 and not bool(relation.unlabelled.any()):
        raise SimilarityError(
            "all inputs have the same label, so that nothing is to be told apart; expected two labels or more, or "
            "similar=None to learn from near neighbours"
        )
    counts = similarity.counts()
    if counts is None or options.group_size == 1:
        return options
    most = int(counts.max())
    if most < 1:
        found = "have the same label" if isinstance(relation, Labels) else "are similar"
        raise SimilarityError(
            f"no two inputs {found}; expected some that do, or similar=None to learn from near neighbours"
        )
    return options.for_groups(1 + most)


def _markers(wanted: Tensor | None, similarity: Similarity, group_size: int, *, checked: bool) -> Tensor | None:
    """Return the items around which groups are formed; None: all.

    An input with too few similar ones is no marker, but still part of other batches. Markers that the caller named
    must have enough, unless `checked`: then some of their similar inputs may have been held out or left out.
    """
    able = similarity.markers(group_size)
    if able is None or len(able) == similarity.n_items:
        return wanted
    if wanted is None:
        return able
    return wanted[torch.isin(wanted, able.cpu())] if checked else wanted


def _with_class_pull(model: HashModel, chosen: BatchLoss | Recipe, trained_loss: BatchLoss) -> HashModel | ClassPull:
    """Return the model that `encode` uses: for `ClassCodes`, one that moves codes toward those of classes."""
    if not (isinstance(chosen, ClassCodes) and isinstance(trained_loss, LabelLoss)):
        return model
    return ClassPull(
        model,
        trained_loss.class_codes,
        n_bits=chosen.n_bits,
        weight=chosen.class_weight,
        scale=chosen.class_scale,
    )


def vector_training(n_rows: int) -> TrainingOptions:
    """Return for how long to train on so many vectors, of which nothing else is known."""
    if n_rows < _ROWS_FOR_LARGE_BATCHES:
        return TrainingOptions()
    return TrainingOptions(steps=_STEPS, batch_size=_LARGE_BATCH)


def vector_network(options: NetworkOptions, metric: MetricName) -> NetworkOptions:
    """Return the network for vectors of which nothing else is known: what is not chosen is made for quick encoding."""
    return replace(options, layers=options.layers or _LAYERS, unit_length=options.unit_length or metric == "cosine")


def vector_markers(n_rows: int, seed: int) -> Tensor | None:
    """Return the vectors whose neighbours are worth seeking, ascending; None: all of them."""
    if n_rows <= _MARKERS:
        return None
    order = torch.randperm(n_rows, generator=torch.Generator().manual_seed(seed))
    return order[:_MARKERS].sort().values
