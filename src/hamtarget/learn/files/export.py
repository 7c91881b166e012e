"""Writing a trained model as an ONNX file."""

from __future__ import annotations

import copy
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hamtarget._files import write_atomically
from hamtarget._metric import MetricName
from hamtarget.encoders.onnx_file import sealed
from hamtarget.errors import InputError, MissingExtraError
from hamtarget.learn.files.compact_onnx import with_int8_weights

# Runtimes of 2021 and later read it, and it has every operation that the built-in networks need.
_OPSET = 17


def write_onnx(
    path: str | Path,
    model: nn.Module,
    *,
    n_bits: int,
    radius: object,
    input_shape: tuple[int, ...],
    substrings: int | None = None,
    metric: MetricName | None = None,
) -> None:
    """Write a model that turns any number of float32 inputs into logits. An older file stays until it is complete.

    Args:
        path: file to write.
        model: model that gives logits, (rows, n_bits); it is not changed.
        n_bits: length of a code, stored in the file.
        radius: Hamming distance target, stored in the file.
        input_shape: shape of one input, stored in the file.
        substrings: number of substrings to probe by, stored in the file; None if the codes are not for probing.
        metric: by what vectors are near, stored in the file; None if the codes were not learned from near vectors.

    Raises:
        MissingExtraError: the onnx package is not installed.
        InputError: the model holds something that ONNX cannot express.
    """
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("onnx is not installed; to export: pip install 'hamtarget[onnx]'") from error
    still = copy.deepcopy(model).cpu().float().eval()
    # Grey images have one channel in the network.
    shape = (1, *input_shape) if len(input_shape) == 2 else input_shape
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(), torch.inference_mode():
            plain = Path(folder) / "plain.onnx"
            # The exporter by tracing is called old, but needs the onnx package alone, and checks of shapes are
            # the same for every batch.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                still,
                (torch.zeros(2, *shape),),
                plain,
                dynamo=False,
                opset_version=_OPSET,
                input_names=["inputs"],
                output_names=["logits"],
                dynamic_axes={"inputs": {0: "rows"}, "logits": {0: "rows"}},
            )
            content = plain.read_bytes()
    except torch.onnx.errors.OnnxExporterError as error:
        raise InputError(f"{type(model).__name__} cannot be written as ONNX: {error}") from error
    description: dict[str, Any] = {"input_shape": list(input_shape), "n_bits": n_bits, "radius": radius}
    description |= {
        name: value for name, value in (("substrings", substrings), ("metric", metric)) if value is not None
    }
    write_atomically(path, sealed(with_int8_weights(content), description))
