"""Put a trained perceptual hash into the package: one ONNX file, and beside it a record of its figures.

    python -m research.shipping.copies.ship research/results/copies/copies64.safetensors --name copies64 --radius 8
    python -m research.shipping.copies.ship --name phash --figures research/results/copies_recall.json

A classic hash has no weights, and gets only the record of its figures on photos.

The weights of the convolutions have their norms folded in and are kept in half precision. The file casts them to single
precision, which the runtime does once, when it opens the file; all arithmetic is in single precision.

The record holds the file's checksum, its size, its time for a picture, its figures on generated pictures (which tests
measure again), and those on photos, of the file that research/benchmarks/copies_recall.py has written: `share_within`,
for each radius from 0 on the share of pairs of different photos within it; and `recall_within`, the same of altered
copies.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from safetensors.torch import load_file
from torch import Tensor, nn

import hamtarget
from hamtarget._files import write_atomically
from hamtarget._picture_form import PictureForm
from hamtarget.encoders.onnx_file import described_form, sealed
from hamtarget.evaluation.provenance import provenance, write_json
from research.shipping.copies.generated import figures_on_generated, milliseconds
from research.shipping.copies.network import CopyNetwork

MODELS = Path(hamtarget.__file__).parent / "encoders" / "models"
MOST_BYTES = 4_000_000
# As that of every exported encoder.
_OPSET = 17
# Smaller tensors, such as biases, stay in single precision.
_LEAST_HALVED = 1024
_ROUNDING = 1e-3


class _OfBytes(nn.Module):
    """A network that takes pixels from 0 to 255, its last norm folded into its last layer."""

    def __init__(self, network: CopyNetwork) -> None:
        super().__init__()
        self.network = network
        mean, variance = network.balance.running_mean, network.balance.running_var
        if not isinstance(mean, Tensor) or not isinstance(variance, Tensor):
            raise TypeError("the last norm has no running mean and variance; expected a trained network")
        scale = torch.rsqrt(variance + network.balance.eps)
        head = nn.Linear(network.head.in_features, network.head.out_features)
        head.weight.data = network.head.weight.data * scale[:, None]
        head.bias.data = -mean * scale
        network.head, network.balance = head, nn.Identity()  # type: ignore[assignment]

    def forward(self, pictures: Tensor) -> Tensor:
        # The network takes the mean out. The sum of whole numbers has no rounding, in whatever order it is taken: with
        # it, a plain picture is 0 everywhere, and not what rounding left.
        centred = pictures - pictures.mean((1, 2, 3), keepdim=True)
        logits: Tensor = self.network(centred / 255)
        return logits


def read_network(weights: Path) -> tuple[CopyNetwork, int]:
    """Return a trained network, and the side of the pictures that it takes."""
    tensors = {name: value.float() for name, value in load_file(weights).items()}
    n_bits, n_features = tensors["head.weight"].shape
    width = len(tensors["stem.0.weight"])
    n_blocks = len({name.split(".")[1] for name in tensors if name.startswith("blocks.")})
    last_side = round((n_features / (4 * width)) ** 0.5)
    side = last_side * 2 ** (n_blocks + 1)
    network = CopyNetwork(n_bits, width=width, side=side)
    network.load_state_dict(tensors)
    return network.eval(), side


def as_onnx(network: CopyNetwork, side: int) -> bytes:
    """Return a network as an ONNX model with weights in half precision."""
    pictures = torch.randint(0, 256, (8, 3, side, side), generator=torch.Generator().manual_seed(0)).float()
    with torch.inference_mode():
        wanted = network(pictures / 255)
        found = _OfBytes(copy.deepcopy(network)).eval()(pictures)
    if not torch.allclose(wanted, found, atol=_ROUNDING):
        raise ValueError("the network is not indifferent to a picture's mean: change how its inputs are centred here")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        path = Path(folder) / "plain.onnx"
        # In evaluation, the exporter folds the norms of convolutions into them.
        torch.onnx.export(
            _OfBytes(copy.deepcopy(network)).eval(),
            (torch.zeros(2, 3, side, side),),
            path,
            dynamo=False,
            opset_version=_OPSET,
            input_names=["inputs"],
            output_names=["logits"],
            dynamic_axes={"inputs": {0: "rows"}, "logits": {0: "rows"}},
        )
        model = onnx.load(path)
    left = {node.op_type for node in model.graph.node} & {"BatchNormalization", "Identity"}
    if left:
        raise ValueError(f"the exporter has left {left} in the graph; expected all norms to be folded")
    _halve(model.graph)
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _halve(graph: Any) -> None:
    """Keep large tensors in half precision, and cast them before they are used."""
    casts = []
    for tensor in graph.initializer:
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < _LEAST_HALVED:
            continue
        name = tensor.name
        tensor.CopyFrom(numpy_helper.from_array(values.astype(np.float16), f"{name}.half"))
        casts.append(helper.make_node("Cast", [f"{name}.half"], [name], to=TensorProto.FLOAT))
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def ship(weights: Path, name: str, radius: list[int], figures: dict[str, Any], folder: Path = MODELS) -> dict[str, Any]:
    """Write the ONNX file and the record of a trained network; return the record."""
    network, side = read_network(weights)
    n_bits = network.head.out_features
    n_parameters = sum(parameter.numel() for parameter in network.parameters())
    form = PictureForm((3, side, side), "squeeze", "lanczos")
    description = {
        "input_shape": list(form.shape),
        "n_bits": n_bits,
        "name": name,
        "picture": described_form(form),
        "radius": radius[0] if len(radius) == 1 else radius,
    }
    content = sealed(as_onnx(network, side), description)
    if len(content) > MOST_BYTES:
        raise ValueError(f"the file has {len(content):,} bytes; expected at most {MOST_BYTES:,}: make the net smaller")
    path = folder / f"{name}.onnx"
    write_atomically(path, content)
    settings = weights.with_suffix(".json")
    record: dict[str, Any] = {
        "name": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "n_bits": n_bits,
        "n_bytes": len(content),
        "n_parameters": n_parameters,
        "milliseconds_on_one_core": milliseconds(path),
        "on_generated_pictures": figures_on_generated(path),
        "trained": json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else None,
        "shipped": provenance(seed=0),
        **figures,
    }
    write_json(folder / f"{name}.json", record)
    return record


def main() -> None:
    """Write the files by the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, nargs="?", help="weights that training.py has written (.safetensors)")
    parser.add_argument("--name", required=True, help="name by which open_encoder opens it")
    parser.add_argument("--radius", type=int, nargs="+", help="Hamming distance target or targets")
    parser.add_argument("--figures", type=Path, help="file that copies_recall.py has written of this hash")
    parser.add_argument("--folder", type=Path, default=MODELS, help="folder to write to")
    asked = parser.parse_args()
    figures = {}
    if asked.figures is not None:
        measured = json.loads(asked.figures.read_text(encoding="utf-8"))
        figures = {key: measured["hashes"][asked.name][key] for key in ("share_within", "recall_within")}
        figures["measured"] = measured["provenance"]
    if asked.weights is None:
        write_json(asked.folder / f"{asked.name}.json", {"name": asked.name, **figures})
        return
    if asked.radius is None:
        parser.error("weights are given without --radius; expected the targets that they were trained for")
    record = ship(asked.weights, asked.name, asked.radius, figures, asked.folder)
    print(json.dumps({key: record[key] for key in ("n_bytes", "milliseconds_on_one_core", "on_generated_pictures")}))


if __name__ == "__main__":
    main()
