"""ONNX files a quarter of their size: weights that are int8 numbers times a scale are written as such.

A runtime multiplies them when it loads the file, so that nothing is slower afterwards. (DequantizeLinear would say the
same, but runtimes keep it for kernels of int8.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST = 127
# Smaller arrays are not worth two nodes.
_SMALLEST = 4096
# Of the largest number of a row: products of int8 numbers and scales, folded with a batch norm, are rounded twice.
_ROUNDING = 1e-6


def with_int8_weights(content: bytes) -> bytes:
    """Return an ONNX model whose weights that are int8 numbers times a scale for each row are written so.

    Other weights stay as they are. The weights that a runtime computes from them differ by rounding alone.
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
    scales = np.where(largest > 0, largest / _MOST, 1.0)
    numbers = np.rint(rows / scales)
    # The scale that fits all numbers of a row best: the one above is rounded as its largest number is.
    squares = (numbers * numbers).sum(axis=1, keepdims=True)
    scales = np.where(squares > 0, (numbers * rows).sum(axis=1, keepdims=True) / np.maximum(squares, 1), 1.0)
    single = scales.astype(np.float32)
    if (np.abs(numbers * single - rows) > _ROUNDING * largest).any():
        return None
    sides = (-1, *[1] * (weight.ndim - 1))
    return numbers.astype(np.int8).reshape(weight.shape), single.reshape(sides)
