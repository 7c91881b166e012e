"""Encoders as files: `model.safetensors`, which is enough alone, and `config.json` for people and other tools.

The configuration describes an encoder by its loss, its network and its training.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hamtarget._files import write_atomically
from hamtarget._metric import check_metric
from hamtarget.encoders.onnx_file import ONNX_NAME
from hamtarget.errors import CorruptFileError, HamtargetError, InputError, UnsupportedFileError
from hamtarget.learn.files.weights import TensorFile, read_tensors, write_tensors
from hamtarget.learn.fitting.fitted import FittedEncoder
from hamtarget.learn.fitting.objectives import ClassCodes, PartlyLabelled, Recipe
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.losses.hamming_target import HammingTargetLoss
from hamtarget.learn.losses.keep_neighbors import KeepNeighbors
from hamtarget.learn.losses.probing import ProbingLoss
from hamtarget.learn.networks.backbones import SHIPPED, backbone
from hamtarget.learn.networks.builder import NetworkOptions, build_model
from hamtarget.learn.networks.class_pull import ClassPull
from hamtarget.learn.networks.frozen import (
    FeatureLayers,
    FrozenBackbone,
    feature_count,
    picture_shape,
    set_picture_shape,
    weights_digest,
)
from hamtarget.learn.networks.head import HashModel
from hamtarget.learn.training.options import TrainingOptions

WEIGHTS_NAME = "model.safetensors"
CONFIG_NAME = "config.json"

# Losses whose settings a file holds; of any other only the name.
_LOSSES: dict[str, type[HammingTargetLoss | ProbingLoss | ClassCodes | PartlyLabelled]] = {
    kind.__name__: kind for kind in (HammingTargetLoss, ProbingLoss, ClassCodes, PartlyLabelled)
}
# What a description raises that lacks something, or has something else in its place.
_MISTAKES = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    MemoryError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)


def save_encoder(fitted: FittedEncoder, folder: str | Path) -> None:
    """Write an encoder to a folder. An older model stays whole until the new one is complete.

    The weights file holds the configuration, too: replacing it is the one moment at which the new model takes the place
    of the old one.
    """
    folder = Path(folder)
    config = _described(fitted)
    # An export of an older model must not be taken for this one's.
    (folder / ONNX_NAME).unlink(missing_ok=True)
    tensors = fitted.model.state_dict()
    if config["network"].get("shipped") is not None:
        # Everybody has them who can read the file.
        for name in _names_of_backbone(fitted.model):
            del tensors[name]
    write_tensors(folder / WEIGHTS_NAME, tensors, config, kind="model")
    write_atomically(folder / CONFIG_NAME, (json.dumps(config, indent=2, sort_keys=True) + "\n").encode())


def load_encoder(folder: str | Path, network: nn.Module | None) -> FittedEncoder:
    """Return the encoder in a folder, on the CPU.

    Raises:
        FileError: there is no model.
        CorruptFileError: the model is damaged.
        UnsupportedFileError: another version wrote it.
        InputError: the model needs the caller's network, or another one than was passed.
    """
    path = Path(folder) / WEIGHTS_NAME
    file = read_tensors(path, kind="model")
    try:
        return _encoder_of(file, path, network)
    except HamtargetError:
        raise
    except _MISTAKES as error:
        raise CorruptFileError(
            f"{path}: its description is not that of an encoder ({type(error).__name__}: {error}); restore it or save "
            "it again"
        ) from error


def _encoder_of(file: TensorFile, path: Path, network: nn.Module | None) -> FittedEncoder:
    config = file.description
    loss = _loss_of(config["loss"])
    architecture = _network_of(config, network, file.tensors, path)
    model = _model_of(config, file.tensors, architecture, loss)
    tensors = dict(file.tensors)
    if config["network"].get("shipped") is not None:
        own = model.state_dict()
        tensors |= {name: own[name] for name in _names_of_backbone(model)}
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise InputError(f"{path}: its weights do not fit the network: {error}") from error
    radius, input_range = config["radius"], config["input_range"]
    return FittedEncoder(
        model=model.eval(),
        loss=loss,
        network=architecture.network if isinstance(architecture, FrozenBackbone) else architecture,
        training=TrainingOptions(**config["training"]),
        held_out=config["held_out"],
        seed=config["seed"],
        n_bits=config["n_bits"],
        radius=tuple(radius) if isinstance(radius, list) else radius,
        input_shape=tuple(config["input_shape"]),
        input_range=None if input_range is None else (input_range[0], input_range[1]),
        metric=None if config["metric"] is None else check_metric(config["metric"]),
    )


def _described(fitted: FittedEncoder) -> dict[str, Any]:
    loss, network = fitted.loss, fitted.network
    inner = fitted.model.model if isinstance(fitted.model, ClassPull) else fitted.model
    described: dict[str, Any] = {
        "loss": _described_loss(loss),
        "network": {"kind": type(network).__name__},
        "center": inner.head.center if isinstance(inner, HashModel) else "mean",
        "training": asdict(fitted.training),
        "held_out": fitted.held_out,
        "seed": fitted.seed,
        "n_bits": fitted.n_bits,
        "radius": fitted.radius,
        "input_shape": list(fitted.input_shape),
        "input_range": fitted.input_range,
        "metric": fitted.metric,
    }
    if isinstance(network, NetworkOptions):
        described["network"]["settings"] = asdict(network)
    elif isinstance(inner, HashModel) and isinstance(inner.backbone, FrozenBackbone):
        digest = weights_digest(network)
        described["network"]["sha256"] = digest
        described["network"]["shipped"] = SHIPPED if digest == weights_digest(backbone()) else None
        described["network"]["layers"] = inner.backbone.layers.settings()
    return described


def _described_loss(loss: BatchLoss | Recipe | str) -> dict[str, Any]:
    described: dict[str, Any] = {"kind": loss if isinstance(loss, str) else type(loss).__name__}
    if isinstance(loss, HammingTargetLoss | ProbingLoss | KeepNeighbors):
        described["settings"] = loss.settings()
    elif isinstance(loss, ClassCodes | PartlyLabelled):
        described["settings"] = asdict(loss)
    if isinstance(loss, KeepNeighbors):
        described["within"] = _described_loss(loss.loss)
    return described


def _names_of_backbone(model: HashModel | ClassPull) -> list[str]:
    """Return the names of the weights of a frozen network in the model."""
    places = [name for name, module in model.named_modules() if isinstance(module, FrozenBackbone)]
    return [name for name in model.state_dict() if any(name.startswith(f"{place}.network.") for place in places)]


def _loss_of(described: dict[str, Any]) -> BatchLoss | Recipe | str:
    if described["kind"] == KeepNeighbors.__name__:
        within = _loss_of(described["within"])
        return KeepNeighbors(within, **described["settings"]) if isinstance(within, BatchLoss) else described["kind"]
    kind = _LOSSES.get(described["kind"])
    if kind is None:
        return str(described["kind"])
    settings = dict(described["settings"])
    if isinstance(settings.get("radius"), list):
        settings["radius"] = tuple(settings["radius"])
    return kind(**settings)


def _network_of(
    config: dict[str, Any], network: nn.Module | None, tensors: dict[str, Tensor], path: Path
) -> nn.Module | NetworkOptions:
    described, shape = config["network"], tuple(config["input_shape"])
    if "layers" in described:
        chosen = _shipped_network(described, shape, path) if network is None else copy.deepcopy(network)
        layers = partial(FeatureLayers, feature_count(chosen, picture_shape(chosen)), **described["layers"])
        _check_size(layers, tensors)
        return FrozenBackbone(chosen, layers())
    if network is not None:
        return network
    if described["kind"] != NetworkOptions.__name__:
        raise InputError(f"{path} was built on a {described['kind']}; pass network= with such a module")
    return NetworkOptions(**described["settings"]).for_inputs(shape)


def _shipped_network(described: dict[str, Any], shape: tuple[int, ...], path: Path) -> nn.Module:
    """Return the network of the package that a frozen one of this description was.

    Raises:
        InputError: it was another network.
        UnsupportedFileError: it was that of another version.
    """
    shipped = described["shipped"]
    if shipped is None:
        raise InputError(
            f"{path} was built on a {described['kind']}; pass network= with such a module, or export it where it was "
            f"learned: {ONNX_NAME} has all weights"
        )
    if shipped != SHIPPED:
        raise UnsupportedFileError(f"{path} was built on {shipped}; this version has {SHIPPED}: upgrade hamtarget")
    network = backbone()
    if weights_digest(network) != described["sha256"]:
        raise UnsupportedFileError(
            f"{path} was built on other weights of {shipped} than this version has; learn again, or use its "
            f"{ONNX_NAME}, which has all weights"
        )
    if shape != picture_shape(network):
        set_picture_shape(network, shape)
    return network


def _check_size(build: Callable[[], nn.Module], tensors: dict[str, Tensor]) -> None:
    """Check that a network is not larger than the weights in its file, before memory is taken for it.

    Raises:
        ValueError: it is.
    """
    n_weights = sum(tensor.numel() for tensor in tensors.values())
    # Tensors of this device have shapes and nothing else.
    with torch.device("meta"):
        n_described = sum(tensor.numel() for tensor in build().state_dict().values())
    if n_described > n_weights:
        raise ValueError(f"a network of {n_described:,} weights; the file has {n_weights:,}")


def _model_of(
    config: dict[str, Any],
    tensors: dict[str, Tensor],
    architecture: nn.Module | NetworkOptions,
    loss: BatchLoss | Recipe | str,
) -> HashModel | ClassPull:
    """Return a model of the right shape, whose weights are still to be loaded."""
    proxies = tensors.get("proxies")
    build = partial(
        build_model,
        architecture,
        tuple(config["input_shape"]),
        n_logits=config["n_bits"] if proxies is None else proxies.shape[1],
        seed=config["seed"],
        center=config["center"],
    )
    if isinstance(architecture, NetworkOptions):
        if (architecture.layers or 0) > len(tensors):
            raise ValueError(f"{architecture.layers} layers; the file has {len(tensors)} tensors")
        _check_size(build, tensors)
    model = build()
    if proxies is None or not isinstance(loss, ClassCodes):
        return model
    return ClassPull(model, proxies, n_bits=loss.n_bits, weight=loss.class_weight, scale=loss.class_scale)
