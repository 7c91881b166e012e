"""ResNet-50 of the Caffe kind, pretrained on ImageNet, its batch norms folded into its convolutions.

Small sets are fine-tuned with the statistics of batch norm frozen. A frozen batch norm is a scale and a shift of each
channel; folded into the convolution before it, it costs nothing, neither time nor memory.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
import safetensors.torch
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors import SafetensorError
from torch import Tensor, nn

from hamtarget.errors import CorruptFileError, FileError, InputError, ShapeError

# Blocks and inner channels of the four stages; a stage gives four times as many channels as its blocks have inside.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
# A side at which photos of things are told apart nearly as well as at 224, in half of the time.
PHOTO_SIDE = 160
# Smaller images would leave the last stage a single pixel.
MIN_SIDE = 64
# Blue, green, red: what was subtracted in training.
_BGR_MEAN = (103.939, 116.779, 123.68)
_NORM_EPSILON = 1e-3
_NORM_PARTS = ("weight", "bias", "running_mean", "running_var")
_N_CLASSES = 1000


class ResNet50(nn.Module):
    """ResNet-50 with stride 2 in the first 1x1 convolution of a stage; it gives features, (rows, 2048).

    It takes RGB images of 0 to 255, uint8 or floats, of 64 pixels or more a side, and normalises them itself.

    Args:
        frozen_stages: number of parts that are not trained, from the first on, of the stem and the stages.
        stages: number of stages that it has. With 3 it is a third as large and gives 1,024 features.

    Attributes:
        out_features: number of features.
        input_shape: shape of an image of the size that suits photos; others are taken, too.
    """

    mean: Tensor

    def __init__(self, *, frozen_stages: int = 0, stages: int = len(STAGES)) -> None:
        super().__init__()
        if not 1 <= stages <= len(STAGES):
            raise InputError(f"stages is {stages}; expected 1 to {len(STAGES)}")
        if not 0 <= frozen_stages <= 1 + stages:
            raise InputError(f"frozen_stages is {frozen_stages}; expected 0 (all are trained) to {1 + stages}")
        self.input_shape = (3, PHOTO_SIDE, PHOTO_SIDE)
        self.n_stages = stages
        self.register_buffer("mean", torch.tensor(_BGR_MEAN[::-1]).view(3, 1, 1))
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3)
        channels = 64
        for number, (blocks, inner) in enumerate(STAGES[:stages], start=1):
            stage = nn.Sequential()
            for block in range(blocks):
                stage.append(_Bottleneck(channels, inner, stride=2 if number > 1 and block == 0 else 1))
                channels = 4 * inner
            self.add_module(f"layer{number}", stage)
        self.out_features = channels
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        for module in [self.conv1, *self._stages()][:frozen_stages]:
            module.requires_grad_(False)

    def _stages(self) -> list[nn.Module]:
        return [self.get_submodule(f"layer{number}") for number in range(1, self.n_stages + 1)]

    def forward(self, images: Tensor) -> Tensor:
        """Return the channels of the last stage averaged over the image, (rows, out_features), in float32 at least."""
        if images.ndim != 4 or images.shape[1] != 3 or min(images.shape[2:]) < MIN_SIDE:
            raise ShapeError(
                f"images have shape {tuple(images.shape)}; this network takes (rows, 3, height, width) of at least "
                f"{MIN_SIDE} pixels a side"
            )
        maps = (images.to(self.mean.dtype) - self.mean).contiguous(memory_format=torch.channels_last)
        # Nothing is below 0 after relu: padding by zeros, as in training, and by minus infinity, as here, are the same.
        maps = F.max_pool2d(torch.relu_(self.conv1(maps)), 3, stride=2, padding=1)
        for stage in self._stages():
            maps = stage(maps)
        return maps.mean(dim=(2, 3), dtype=torch.promote_types(maps.dtype, torch.float32))

    @classmethod
    def load(cls, path: str | Path, *, frozen_stages: int = 0) -> Self:
        """Return the network with the weights of an npz file; see `read_weights`."""
        network = cls(frozen_stages=frozen_stages)
        arrays = read_weights(path)
        tensors = {"mean": network.mean}
        for name, module in network.named_modules():
            if isinstance(module, nn.Conv2d):
                weight, bias = _folded(arrays, name)
                # Trained on blue, green, red; here red comes first.
                tensors[f"{name}.weight"] = torch.from_numpy(weight[:, ::-1].copy() if name == "conv1" else weight)
                tensors[f"{name}.bias"] = torch.from_numpy(bias)
        network.load_state_dict(tensors)
        return network

    @classmethod
    def load_folded(cls, content: bytes, *, where: str, frozen_stages: int = 0) -> Self:
        """Return the network of a safetensors file whose batch norms are folded, of as many stages as the file has.

        A convolution NAME is `NAME.weight`, int8, with a `NAME.scale` for each output channel, and `NAME.bias`.

        Args:
            content: the file's content.
            where: name of the file in errors.
            frozen_stages: see `ResNet50`.

        Raises:
            CorruptFileError: it is damaged, or a tensor is missing, unknown, of another shape or not finite.
        """
        try:
            stored = safetensors.torch.load(content)
        except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError) as error:
            raise CorruptFileError(f"{where}: not a whole safetensors file ({error}); fetch it again") from error
        has_stage = [f"layer{number}.0.conv1.weight" in stored for number in range(1, len(STAGES) + 1)]
        network = cls(frozen_stages=frozen_stages, stages=max(1, sum(has_stage)))
        tensors = {"mean": network.mean}
        expected: set[str] = set()
        for name, module in network.named_modules():
            if isinstance(module, nn.Conv2d):
                of_channels = (module.out_channels,)
                weight = _stored_tensor(stored, f"{name}.weight", torch.int8, tuple(module.weight.shape), where)
                scale = _stored_tensor(stored, f"{name}.scale", torch.float32, of_channels, where)
                tensors[f"{name}.weight"] = weight.float() * scale.view(-1, 1, 1, 1)
                tensors[f"{name}.bias"] = _stored_tensor(stored, f"{name}.bias", torch.float32, of_channels, where)
                expected |= {f"{name}.{part}" for part in ("weight", "scale", "bias")}
        unknown = sorted(stored.keys() - expected)
        if unknown:
            raise CorruptFileError(f"{where} has {unknown[0]} besides; expected {len(expected)} tensors of ResNet-50")
        network.load_state_dict(tensors)
        return network


class _Bottleneck(nn.Module):
    """A residual block: narrow, convolve, widen."""

    def __init__(self, in_channels: int, inner: int, *, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, inner, 1, stride=stride)
        self.conv2 = nn.Conv2d(inner, inner, 3, padding=1)
        self.conv3 = nn.Conv2d(inner, 4 * inner, 1)
        self.downsample = nn.Conv2d(in_channels, 4 * inner, 1, stride=stride) if in_channels != 4 * inner else None

    def forward(self, maps: Tensor) -> Tensor:
        shortcut = maps if self.downsample is None else self.downsample(maps)
        residual: Tensor = self.conv3(torch.relu_(self.conv2(torch.relu_(self.conv1(maps)))))
        return torch.relu_(residual + shortcut)


def _stored_tensor(
    stored: Mapping[str, Tensor], name: str, dtype: torch.dtype, shape: tuple[int, ...], where: str
) -> Tensor:
    tensor = stored.get(name)
    if tensor is None:
        raise CorruptFileError(f"{where} lacks {name}; expected ResNet-50 with folded batch norms, in int8")
    if tensor.dtype != dtype or tensor.shape != shape:
        raise CorruptFileError(
            f"{where}: {name} is {tensor.dtype} of shape {tuple(tensor.shape)}; expected {dtype} of shape {shape}"
        )
    if not torch.isfinite(tensor).all():
        raise CorruptFileError(f"{where}: {name} holds NaN or infinity; expected finite weights")
    return tensor


def load_classifier(path: str | Path) -> nn.Linear:
    """Return the classifier of the 1,000 classes of ImageNet for the features of `ResNet50`; see `read_weights`."""
    arrays = read_weights(path)
    classifier = nn.Linear(arrays["fc.weight"].shape[1], _N_CLASSES)
    classifier.load_state_dict({name: torch.from_numpy(arrays[f"fc.{name}"]) for name in ("weight", "bias")})
    return classifier


def read_weights(path: str | Path) -> dict[str, NDArray[np.float32]]:
    """Return the float32 weights of an npz file by name, batch norms not yet folded.

    Convolutions and the classifier are int8 with a `NAME.scale` for each output channel, all else float32.

    Raises:
        FileError: there is no such file.
        CorruptFileError: the file is damaged, or an array is missing, unknown, of another shape or not finite.
    """
    path = Path(path)
    if not path.is_file():
        raise FileError(f"{path}: no such file; expected the weights of ResNet-50 (resnet50_caffe_int8.npz)")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            stored = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, KeyError, AttributeError, zipfile.BadZipFile, zlib.error) as error:
        raise CorruptFileError(f"{path}: not a whole npz file ({error}); fetch it again") from error
    return {name: _weight(stored, name, shape, path=path) for name, shape in _checked_names(stored, path).items()}


def _checked_names(stored: Mapping[str, NDArray[Any]], path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight by name, after checking that the file has exactly these."""
    shapes = _weight_shapes()
    expected = shapes.keys() | {f"{name}.scale" for name, shape in shapes.items() if len(shape) > 1}
    missing, unknown = sorted(expected - stored.keys()), sorted(stored.keys() - expected)
    for names, what in ((missing, "lacks"), (unknown, "has besides")):
        if names:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            raise CorruptFileError(
                f"{path} {what} {', '.join(names[:5])}{more}; expected the {len(expected)} arrays of this ResNet-50"
            )
    return shapes


def _weight_shapes() -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight in a file by name."""
    shapes: dict[str, tuple[int, ...]] = {"fc.weight": (_N_CLASSES, 4 * STAGES[-1][1]), "fc.bias": (_N_CLASSES,)}
    with torch.device("meta"):
        network = ResNet50()
    for name, module in network.named_modules():
        if isinstance(module, nn.Conv2d):
            convolution, norm = _names_in_file(name)
            shapes[f"{convolution}.weight"] = tuple(module.weight.shape)
            shapes |= {f"{norm}.{part}": (module.out_channels,) for part in _NORM_PARTS}
    return shapes


def _names_in_file(name: str) -> tuple[str, str]:
    """Return the names that a file has for a convolution and for the batch norm after it."""
    if name.endswith("downsample"):
        return f"{name}.0", f"{name}.1"
    return name, name.replace("conv", "bn")


def _weight(
    stored: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...], *, path: Path
) -> NDArray[np.float32]:
    array = stored[name]
    quantized = len(shape) > 1
    wanted = np.dtype(np.int8 if quantized else np.float32)
    if array.shape != shape or array.dtype != wanted:
        raise CorruptFileError(
            f"{path}: {name} is {array.dtype} of shape {array.shape}; expected {wanted} of shape {shape}"
        )
    if quantized:
        scale = _weight(stored, f"{name}.scale", shape[:1], path=path)
        array = array.astype(np.float32) * scale.reshape(-1, *[1] * (len(shape) - 1))
    if not np.isfinite(array).all():
        raise CorruptFileError(f"{path}: {name} holds NaN or infinity; expected finite weights")
    if name.endswith("running_var") and array.min() < 0:
        raise CorruptFileError(f"{path}: {name} holds {array.min()}; a variance is never below 0")
    return array


def _folded(arrays: Mapping[str, NDArray[np.float32]], name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return (weight, bias) of a convolution into which the batch norm after it is folded."""
    convolution, norm = _names_in_file(name)
    scale, shift, mean, variance = (arrays[f"{norm}.{part}"].astype(np.float64) for part in _NORM_PARTS)
    scale = scale / np.sqrt(variance + _NORM_EPSILON)
    weight = arrays[f"{convolution}.weight"] * scale.reshape(-1, 1, 1, 1)
    return weight.astype(np.float32), (shift - mean * scale).astype(np.float32)
