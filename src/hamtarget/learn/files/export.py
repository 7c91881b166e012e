"""Write a trained model as an ONNX file, a quarter as large where its weights are int8 numbers times a scale."""

from __future__ import annotations

import copy
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from hamtarget._files import write_atomically
from hamtarget._metric import MetricName
from hamtarget.encoders.onnx_file import sealed
from hamtarget.errors import InputError, MissingExtraError

# Runtimes of 2021 and later read it, and it has every operation that the built-in networks need.
_OPSET = 17
_MOST_INT8 = 127
# Smaller arrays are not worth two nodes.
_SMALLEST = 4096
# Of the largest number of a row: products of int8 numbers and scales, folded with a batch norm, are rounded twice.
_ROUNDING = 1e-6


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


def with_int8_weights(content: bytes) -> bytes:
    """Return an ONNX model whose weights that are int8 numbers times a scale for each row are written so.

    A runtime multiplies them when it loads the file, so that nothing is slower afterwards; they differ from the weights
    by rounding alone. (DequantizeLinear would say the same, but runtimes keep it for kernels of int8.) Other weights
    stay as they are.
    """
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model: Any = onnx.load_model_from_string(content)
    graph = model.graph
    nodes: list[Any] = []
    for weight in list(graph.initializer):
        if weight.data_type != TensorProto.FLOAT or len(weight.dims) < 2 or np.prod(weight.dims) < _SMALLEST:
            continue
        found = int8_rows(numpy_helper.to_array(weight))
        if found is None:
            continue
        name = weight.name
        numbers, scales = found
        graph.initializer.remove(weight)
        graph.initializer.append(numpy_helper.from_array(numbers, f"{name}.int8"))
        graph.initializer.append(numpy_helper.from_array(scales, f"{name}.scale"))
        nodes.append(helper.make_node("Cast", [f"{name}.int8"], [f"{name}.numbers"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Mul", [f"{name}.numbers", f"{name}.scale"], [name]))
    # A node may use only what stands before it.
    nodes += list(graph.node)
    del graph.node[:]
    graph.node.extend(nodes)
    smaller: bytes = model.SerializeToString()
    return smaller


def int8_rows(weight: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]] | None:
    """Return int8 numbers, and a scale for each row by which they give the weight; None if there are none.

    The largest number of a row must be 127 or -127, as it is where rows are quantised one by one.
    """
    rows = weight.reshape(len(weight), -1).astype(np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        return None
    scales = np.where(largest > 0, largest / _MOST_INT8, 1.0)
    numbers = np.rint(rows / scales)
    # The scale that fits all numbers of a row best: the one above is rounded as its largest number is.
    squares = (numbers * numbers).sum(axis=1, keepdims=True)
    scales = np.where(squares > 0, (numbers * rows).sum(axis=1, keepdims=True) / np.maximum(squares, 1), 1.0)
    single = scales.astype(np.float32)
    if (np.abs(numbers * single - rows) > _ROUNDING * largest).any():
        return None
    sides = (-1, *[1] * (weight.ndim - 1))
    return numbers.astype(np.int8).reshape(weight.shape), single.reshape(sides)
