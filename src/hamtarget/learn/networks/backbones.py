"""Pretrained networks as backbones, from images of 0 to 255 to features; by name, by file, or by one text for both."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from hamtarget._reading import reason_of
from hamtarget.errors import CorruptFileError, FileError, InputError, MissingExtraError
from hamtarget.learn.networks.augmentation import Resize
from hamtarget.learn.networks.fetching import fetched
from hamtarget.learn.networks.frozen import set_picture_shape
from hamtarget.learn.networks.resnet50 import ResNet50

SHIPPED = "resnet50_conv4"
SHIPPED_FILE = "resnet50_conv4.safetensors"
RESNET50_CAFFE = "resnet50_caffe"
PRETRAINED = "pretrained"

_SHIPPED_SHA256 = "b6629bd61fc29b8dd570f1c1665a4f989f0923417da8aec1ff47f3cbbf6bae7e"
_FILES = (".npz", ".safetensors")
_LIBRARIES = ("timm", "torchvision")
# What torchvision's networks were trained with, of images of 0 to 1.
_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_DEVIATION = (0.229, 0.224, 0.225)
# Side of the pictures that most networks of timm and torchvision were trained on.
_SIDE = 224
# Holds the networks that come with hamtarget.
_PACKAGE = "hamtarget_models"


def backbone(
    network: str | Path | nn.Module = SHIPPED,
    weights: str | Path | None = None,
    *,
    size: int | tuple[int, int] | None = None,
    frozen_stages: int = 0,
) -> nn.Module:
    """Return a network that turns images of 0 to 255 into features, with their number as `out_features`.

    Args:
        network: "resnet50_conv4", which comes with the package: ResNet-50 without its last stage; "resnet50_caffe", the
            whole; the path of its npz or safetensors file; the name of a network of timm ("resnetv2_50") or
            torchvision, whichever is installed; the name with its library ("torchvision:resnet50"); or any nn.Module,
            which is used as it is.
        weights: file of weights: npz or safetensors for resnet50_caffe, safetensors for others; none for
            resnet50_conv4. "pretrained": timm or torchvision fetches them. None: random weights, for these two.
        size: side in pixels, or (height, width), to which images are scaled first. None: they are not scaled.
        frozen_stages: number of stages that are not trained, see `ResNet50`; for resnet50_conv4 and resnet50_caffe.

    Raises:
        InputError: there is no network of this name, or it does not take these arguments.
        FileError: there is no such file of weights, or timm or torchvision could not fetch theirs.
        CorruptFileError: the file is damaged, or belongs to another network.
        MissingExtraError: neither timm nor torchvision is installed, or the package `hamtarget-models` is not.

    Example:
        >>> backbone("resnet50_conv4").out_features
        1024
    """
    if weights is None and not isinstance(network, nn.Module) and Path(network).suffix in _FILES:
        network, weights = RESNET50_CAFFE, network
    if frozen_stages and network not in (SHIPPED, RESNET50_CAFFE):
        raise InputError(
            f"frozen_stages is {frozen_stages}; only {SHIPPED} and {RESNET50_CAFFE} take it, not {network!r}"
        )
    if isinstance(network, nn.Module):
        if weights is not None:
            raise InputError(f"weights {str(weights)!r} with an nn.Module; expected it to have its weights: leave out")
        found = network
    elif network == SHIPPED:
        if weights is not None:
            raise InputError(f"weights {str(weights)!r} with {SHIPPED}; its weights come with the package: leave out")
        found = _shipped(frozen_stages)
    elif network == RESNET50_CAFFE:
        if weights is None or weights == PRETRAINED:
            raise InputError(f"weights is {weights!r}; expected the path of resnet50_caffe_int8.npz or of safetensors")
        found = _resnet50(Path(weights), frozen_stages)
    else:
        found = _of_library(str(network), weights)
    return found if size is None else Resized(found, size)


class Resized(nn.Module):
    """A backbone that sees every image at one size; images that have it already stay as they are.

    Args:
        network: the backbone.
        size: side in pixels, or (height, width).
    """

    def __init__(self, network: nn.Module, size: int | tuple[int, int]) -> None:
        super().__init__()
        self.resize = Resize(size)
        height, width = (size, size) if isinstance(size, int) else size
        self.input_shape = (3, height, width)
        self.network = network
        self.out_features = _out_features(network)

    def forward(self, images: Tensor) -> Tensor:
        """Return features, (rows, out_features)."""
        features: Tensor = self.network(self.resize(images))
        return features


class Normalized(nn.Module):
    """A backbone that was trained on normalised images of 0 to 1, for images of 0 to 255.

    Args:
        network: the backbone.
        out_features: columns of its features.
        mean: mean of each channel of the images of 0 to 1.
        deviation: standard deviation of each channel, likewise.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self, network: nn.Module, out_features: int, *, mean: Sequence[float], deviation: Sequence[float]
    ) -> None:
        super().__init__()
        self.network = network
        self.out_features = out_features
        self.register_buffer("shift", 255 * torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("scale", 1 / (255 * torch.tensor(deviation).view(-1, 1, 1)))

    def forward(self, images: Tensor) -> Tensor:
        """Return features, (rows, out_features)."""
        features: Tensor = self.network((images.to(self.shift.dtype) - self.shift) * self.scale)
        return features


def _shipped(frozen_stages: int) -> ResNet50:
    """Return the network that comes with the package."""
    path = shipped_folder() / SHIPPED_FILE
    content = _read(path)
    if hashlib.sha256(content).hexdigest() != _SHIPPED_SHA256:
        raise CorruptFileError(f"{path}: not the file that came with the package; install hamtarget-models again")
    return ResNet50.load_folded(content, where=str(path), frozen_stages=frozen_stages)


def _resnet50(path: Path, frozen_stages: int) -> ResNet50:
    """Return ResNet-50 with the weights of a file, npz or safetensors."""
    if path.suffix == ".safetensors":
        return ResNet50.load_folded(_read(path), where=str(path), frozen_stages=frozen_stages)
    return ResNet50.load(path, frozen_stages=frozen_stages)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file; expected weights as safetensors") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {reason_of(error)}") from error


def _out_features(network: nn.Module) -> int:
    found = getattr(network, "out_features", None) or getattr(network, "num_features", None)
    if not isinstance(found, int):
        raise InputError(
            f"{type(network).__name__} does not tell how many features it gives; expected out_features or num_features"
        )
    return found


def _of_library(name: str, weights: str | Path | None) -> nn.Module:
    """Return a network of timm or torchvision without its classifier."""
    chosen, _, short = name.rpartition(":")
    if chosen and chosen not in _LIBRARIES:
        raise InputError(f"network is {name!r}; expected {', '.join(f'{library}:NAME' for library in _LIBRARIES)}")
    wanted = (chosen,) if chosen else _LIBRARIES
    installed = [library for library in wanted if importlib.util.find_spec(library) is not None]
    if not installed:
        raise MissingExtraError(
            f"network {name!r} needs {' or '.join(wanted)}, not installed: pip install 'hamtarget[backbones]'; "
            f"without it there are {SHIPPED!r} and {RESNET50_CAFFE!r}"
        )
    pretrained = weights == PRETRAINED
    for library in installed:
        module = importlib.import_module(library)
        build = _timm_network if library == "timm" else _torchvision_network
        if pretrained:
            network = fetched(partial(build, module, short, True), library=library, name=short, instead=SHIPPED)
        else:
            network = build(module, short, False)
        if network is not None:
            if weights is not None and not pretrained:
                _load(network.network, Path(weights))
            return network
    raise InputError(f"network is {short!r}, which {' and '.join(installed)} do not know; expected one of their names")


def _timm_network(timm: ModuleType, name: str, pretrained: bool) -> Normalized | None:
    if not timm.is_model(name):
        return None
    network: Any = timm.create_model(name, pretrained=pretrained, num_classes=0)
    config = network.pretrained_cfg
    return Normalized(network, network.num_features, mean=config["mean"], deviation=config["std"])


def _torchvision_network(torchvision: ModuleType, name: str, pretrained: bool) -> Normalized | None:
    models = importlib.import_module(f"{torchvision.__name__}.models")
    if name not in models.list_models(module=models):
        return None
    network: nn.Module = models.get_model(name, weights="DEFAULT" if pretrained else None)
    # The classifier is the last linear layer; what it was given are the features.
    place, classifier = [(place, part) for place, part in network.named_modules() if isinstance(part, nn.Linear)][-1]
    network.set_submodule(place, nn.Identity())
    return Normalized(network, classifier.in_features, mean=_IMAGENET_MEAN, deviation=_IMAGENET_DEVIATION)


def _load(network: nn.Module, path: Path) -> None:
    """Load the weights of a safetensors file, except those of a classifier."""
    if not path.is_file():
        raise FileError(f"{path}: no such file; expected the weights as safetensors, or {PRETRAINED!r}")
    try:
        tensors = safetensors.torch.load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CorruptFileError(f"{path}: not a whole safetensors file ({error}); fetch it again") from error
    wanted = network.state_dict()
    try:
        network.load_state_dict({name: tensor for name, tensor in tensors.items() if name in wanted})
    except RuntimeError as error:
        raise CorruptFileError(f"{path}: weights of another network: {error}") from error


def chosen_backbone(choice: str | None, *, size: int | None = None, trained: bool = False) -> nn.Module:
    """Return a pretrained network of pictures; all of its weights are frozen unless it is to be trained.

    Args:
        choice: a name that `backbone` knows, whose weights are fetched if they do not come with the package; NAME=FILE
            with a file of weights; or a FILE of ResNet-50, npz or safetensors. None: the network of the package.
        size: side of the pictures in pixels. None: that of the network; 224 for networks of timm and torchvision.
        trained: True to train the network, too.

    Raises:
        InputError: there is no network of this name.
        FileError: there is no such file, or the weights cannot be fetched.
        CorruptFileError: the file holds no weights of the network.
        MissingExtraError: the network's library is not installed.
    """
    name, _, file = (choice or SHIPPED).partition("=")
    if not file and (name.endswith(_FILES) or Path(name).is_file()):
        name, file = RESNET50_CAFFE, name
    if name in (SHIPPED, RESNET50_CAFFE):
        network = backbone(name, file or None)
    else:
        network = backbone(name, file or PRETRAINED, size=size or _SIDE)
    if size is not None and isinstance(network, ResNet50):
        # It takes any size: nothing has to be resized twice.
        set_picture_shape(network, (3, size, size))
    return network.requires_grad_(trained)


def shipped_folder() -> Path:
    """Return the folder of the networks that `hamtarget[learn]` brings.

    Raises:
        MissingExtraError: the package `hamtarget-models` is not installed.
    """
    found = importlib.util.find_spec(_PACKAGE)
    folders = None if found is None else found.submodule_search_locations
    if not folders:
        raise MissingExtraError(
            "hamtarget-models is not installed; for the networks that come with hamtarget: "
            "pip install hamtarget-models (in a checkout: pip install ./packages/models)"
        )
    return Path(folders[0])
