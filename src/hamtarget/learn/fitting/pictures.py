"""Learning an encoder from pictures: which network sees them, and what of it is learned."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from hamtarget.codes import Codes, from_logits
from hamtarget.datasets.pictures.image_sets import ImageSet
from hamtarget.errors import FileError
from hamtarget.learn.fitting.arrays import NEIGHBORS, fit_encoder, torch_device
from hamtarget.learn.fitting.features import PictureFeatures, picture_features
from hamtarget.learn.fitting.fitted import FittedEncoder
from hamtarget.learn.fitting.held_out import places
from hamtarget.learn.fitting.objectives import Loss, chosen_loss
from hamtarget.learn.networks.backbones import backbone
from hamtarget.learn.networks.builder import Network, NetworkOptions
from hamtarget.learn.networks.class_pull import ClassPull
from hamtarget.learn.networks.frozen import FeatureLayers, FrozenBackbone, is_frozen, picture_shape
from hamtarget.learn.networks.head import HashModel
from hamtarget.learn.similarity.as_similarity import as_similarity
from hamtarget.learn.similarity.labels import Labels
from hamtarget.learn.similarity.nearest_neighbors import nearest_neighbors
from hamtarget.learn.similarity.pairs import Neighbors
from hamtarget.learn.similarity.relation import Similarity
from hamtarget.learn.training.checkpoint import TrainingProgress
from hamtarget.learn.training.options import TrainingOptions
from hamtarget.progress import Progress

# Side of the pictures that a built-in network learns from.
_SIDE = 64
# Steps on features at the least: they are quick, and dropout makes learning slower.
_STEPS_ON_FEATURES = 600
# A pretrained network is changed more carefully than the new head.
_FINE_TUNING = TrainingOptions(backbone_rate=0.1)
_PIXELS = (0.0, 255.0)


class SkippedImageWarning(UserWarning):
    """A picture cannot be read, and was left out."""


def training_for(network: Network, n_images: int) -> TrainingOptions:
    """Return the options by which `HashEncoder(network=network).fit(images)` trains if it is given none.

    Args:
        network: what a `HashEncoder` takes as its network.
        n_images: number of images.
    """
    options = TrainingOptions()
    if isinstance(network, NetworkOptions):
        return options
    if isinstance(network, nn.Module) and not is_frozen(network):
        return _FINE_TUNING
    return replace(options, steps=max(_STEPS_ON_FEATURES, options.steps_for(n_images)))


def loss_word_for(similarity: Similarity | None) -> str:
    """Return the loss, by its word, of pictures of which this is known; see `HashEncoder`."""
    return "classes" if isinstance(similarity, Labels) and not bool(similarity.unlabelled.any()) else "auto"


def labels_of(table: NDArray[Any] | None, n_items: int) -> Similarity | None:
    """Return which pictures have the same label, from the labels of an `ImageSet`; None if there are none."""
    if table is None:
        return None
    if table.ndim == 2:
        n_labels = (table != 0).sum(axis=1)
        if n_labels.max(initial=0) == 1 and n_labels.min() == 0:
            # One label each, and some without.
            return Labels(np.where(n_labels == 1, table.argmax(axis=1), -1), unlabelled=-1)
    return as_similarity(table, n_items)


def fit_pictures(
    images: ImageSet,
    similar: Any,
    *,
    n_bits: int | None,
    loss: Loss,
    network: Network,
    training: TrainingOptions | None,
    held_out: float,
    seed: int,
    device: str,
    markers: ArrayLike | None,
    augment: Callable[[Tensor], Tensor] | None,
    progress: Callable[[TrainingProgress], None] | None,
    features_progress: Progress | None,
    neighbors_progress: Progress | None,
    checkpoint: str | Path | None,
    log: str | Path | None,
) -> FittedEncoder:
    """Learn from pictures and return what was learned.

    A network that is frozen sees each picture once; what is learned are codes of its features. Another network is
    trained on the pictures.

    The arguments are those of `HashEncoder` and of its `fit`.

    Raises:
        FileError: fewer than two pictures can be read.

    Warns:
        SkippedImageWarning: a picture cannot be read, and was left out.
    """
    options = training or training_for(network, len(images))
    chosen_network = backbone().requires_grad_(False) if network == "auto" else network
    seen_once = is_frozen(chosen_network) and augment is None
    relation = labels_of(images.labels, len(images)) if similar is None else as_similarity(similar, len(images))
    features: PictureFeatures | None = None
    if isinstance(chosen_network, nn.Module) and (seen_once or relation is None):
        features = picture_features(
            images,
            copy.deepcopy(chosen_network),
            device=torch_device(device),
            workers=options.workers,
            progress=features_progress,
        )
    inputs: NDArray[Any]
    if features is not None and seen_once:
        inputs, rows, broken = features.values, features.rows, features.broken
    else:
        shape = picture_shape(chosen_network) if isinstance(chosen_network, nn.Module) else (3, _SIDE, _SIDE)
        decoded = images.decode(shape, workers=options.workers, progress=None if features else features_progress)
        inputs, rows, broken = decoded.images, decoded.rows, decoded.broken
    _tell_skipped(broken, len(rows))

    chosen = chosen_loss(loss_word_for(relation) if loss == "auto" else loss, n_bits, relation, of_vectors=False)
    kept = torch.from_numpy(rows)
    if relation is None and features is not None:
        relation = _alike(features.values, neighbors_progress)
    elif relation is not None and broken:
        relation = relation.subset(kept)
    wanted = None if markers is None else places(torch.as_tensor(np.asarray(markers)), kept, len(images)).numpy()
    with one_thread(seen_once):
        fitted = fit_encoder(
            inputs,
            relation,
            n_bits=None,
            loss=chosen,
            network=feature_layers(inputs.shape[1], seed) if seen_once else chosen_network,
            training=options,
            held_out=held_out,
            seed=seed,
            device=device,
            markers=wanted,
            augment=augment,
            progress=progress,
            neighbors_progress=neighbors_progress,
            checkpoint=checkpoint,
            log=log,
        )
    if seen_once and isinstance(chosen_network, nn.Module):
        return _with_backbone(fitted, copy.deepcopy(chosen_network))
    return replace(fitted, input_range=_PIXELS)


@dataclass(frozen=True, eq=False)
class EncodedPictures:
    """Codes of the pictures that could be read, and the reasons why others could not.

    Attributes:
        codes: (pictures read, n_bits / 8) packed uint8.
        rows: (pictures read,) number of each picture among all, ascending.
        broken: the reason for each picture that could not be read, by its number.
        features: (pictures read, columns) what a frozen network sees in each; None if there is no such network.
    """

    codes: Codes
    rows: NDArray[np.int64]
    broken: dict[int, str]
    features: NDArray[np.float32] | None


def encode_pictures(
    fitted: FittedEncoder, images: ImageSet, *, workers: int = 0, progress: Progress | None = None
) -> EncodedPictures:
    """Return the codes of pictures. Features by a frozen network come from the cache where they are there.

    Args:
        fitted: what was learned.
        images: the pictures.
        workers: processes that read pictures; 0: this one.
        progress: called with the number of pictures done and of all pictures.
    """
    model = copy.deepcopy(fitted.model)
    frozen = next((module for module in model.modules() if isinstance(module, FrozenBackbone)), None)
    if frozen is None:
        decoded = images.decode(fitted.input_shape, workers=workers, progress=progress)
        return EncodedPictures(from_logits(fitted.logits(decoded.images)), decoded.rows, decoded.broken, None)
    device = next(model.parameters()).device
    seen = picture_features(images, frozen.network, device=device, workers=workers, progress=progress)
    frozen.network = nn.Identity()
    with torch.inference_mode():
        logits: Tensor = model.eval()(torch.from_numpy(seen.values).to(device))
    return EncodedPictures(from_logits(logits.float().cpu().numpy()), seen.rows, seen.broken, seen.values)


def _tell_skipped(broken: dict[int, str], n_read: int) -> None:
    for row, reason in broken.items():
        warnings.warn(f"left out image {row:,}: {reason}", SkippedImageWarning, stacklevel=4)
    if n_read < 2:
        raise FileError(f"{n_read} images could be read; learning needs at least 2")


def feature_layers(n_features: int, seed: int) -> FeatureLayers:
    """Return new layers between the features of photos and a hash head."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return FeatureLayers(n_features)


def _alike(features: NDArray[np.float32], progress: Progress | None) -> Similarity:
    """Return the similarity of pictures whose features point in nearly one direction."""
    directions = F.normalize(torch.from_numpy(features), dim=1)
    return Neighbors(nearest_neighbors(directions, min(NEIGHBORS, len(features) - 1), progress=progress))


def _with_backbone(fitted: FittedEncoder, network: nn.Module) -> FittedEncoder:
    """Return an encoder of pictures, from one of the features that the network gives of them."""
    of_features = fitted.model.model if isinstance(fitted.model, ClassPull) else fitted.model
    layers = of_features.backbone if isinstance(of_features, HashModel) else None
    if not isinstance(of_features, HashModel) or not isinstance(layers, FeatureLayers):
        raise TypeError(f"learned a {type(of_features).__name__}; expected a HashModel of features")
    place = next(of_features.parameters()).device
    of_features.backbone = FrozenBackbone(network.to(place), layers).eval()
    return replace(fitted, network=network, input_shape=picture_shape(network), input_range=_PIXELS)


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """Let torch use one thread: several wait for each other longer than they work on matrices as small as a head's."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
