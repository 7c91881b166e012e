"""Assemble the ONNX graph of a text encoder: a transformer, its pooling, and the layers that make logits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hamtarget.encoders.sentence.model_folder import SentenceModel
from hamtarget.errors import CorruptFileError, InputError, UnsupportedFileError

if TYPE_CHECKING:
    from onnx import ModelProto

FEATURES, LOGITS = "features", "logits"
"""Names of the outputs of the graph."""
_INPUTS = ("input_ids", "attention_mask")
# That of a learned head; runtimes of 2022 and later read it. From the second on, axes of all reductions are inputs.
_OPSET, _AXES_AS_INPUTS = 17, 18
_LEAST = 1e-9
_SHORTEST = 1e-12
_HIDDEN = -1e9


def features_graph(model: SentenceModel) -> ModelProto:
    """Return an ONNX model from (input_ids, attention_mask) to `features`, the embedding of each text.

    Raises:
        UnsupportedFileError: the network takes or gives something that is not known here.
        CorruptFileError: a file is damaged.
    """
    graph = _read_onnx(model.network)
    _take_two_inputs(graph, model.network)
    nodes = _Nodes(graph)
    outputs = {each.name: each.type.tensor_type for each in graph.graph.output}
    if "sentence_embedding" in outputs:
        features = nodes.single("sentence_embedding", outputs["sentence_embedding"].elem_type)
    else:
        tokens = next((name for name, kind in outputs.items() if len(kind.shape.dim) == 3), None)
        if tokens is None:
            raise UnsupportedFileError(
                f"{model.network}: the outputs are {', '.join(outputs)}; expected sentence_embedding, or vectors of "
                "tokens (rows, tokens, columns)"
            )
        features = nodes.pooled(nodes.single(tokens, outputs[tokens].elem_type), model.pooling)
        if model.is_normalised:
            features = nodes.normalised(features)
    nodes.add("Identity", [features], output=FEATURES)
    _set_outputs(graph, [FEATURES])
    return graph


def with_signs(graph: ModelProto, n_bits: int) -> ModelProto:
    """Return the graph with the first of the features as logits, too: a bit is the sign of a number."""
    nodes = _Nodes(graph)
    bounds = [nodes.constant(np.array([place], dtype=np.int64)) for place in (0, n_bits, 1)]
    nodes.add("Slice", [FEATURES, *bounds], output=LOGITS)
    _set_outputs(graph, [FEATURES, LOGITS])
    return graph


def with_head(graph: ModelProto, head: bytes) -> ModelProto:
    """Return the graph with a head: an ONNX model from `inputs`, which are the features, to `logits`.

    Raises:
        InputError: the head is none, or takes another number of features.
    """
    import onnx
    from onnx import compose, version_converter

    loaded = onnx.load_model_from_string(head)
    own, wanted = _opset(loaded), _opset(graph)
    if own < wanted:
        loaded = version_converter.convert_version(loaded, wanted)
    elif own > wanted:
        raise InputError(f"the head is of ONNX opset {own}; expected {wanted} or less")
    loaded.ir_version = graph.ir_version
    del loaded.metadata_props[:]
    named = compose.add_prefix(loaded, "head/")
    joined: ModelProto = compose.merge_models(
        graph, named, io_map=[(FEATURES, "head/inputs")], outputs=[FEATURES, "head/logits"]
    )
    _Nodes(joined).add("Identity", ["head/logits"], output=LOGITS)
    _set_outputs(joined, [FEATURES, LOGITS])
    return joined


def _read_onnx(path: Path) -> ModelProto:
    import onnx
    from onnx import version_converter

    try:
        # With weights in other files of its folder.
        model: ModelProto = onnx.load(str(path))
    # A damaged file gives errors of protobuf, of onnx and of the system.
    except Exception as error:
        raise CorruptFileError(f"{path} cannot be read as ONNX: {str(error)[:200]}") from error
    if _opset(model) >= _OPSET:
        return model
    try:
        return version_converter.convert_version(model, _OPSET)
    # Its errors have no other base class.
    except Exception as error:
        raise UnsupportedFileError(
            f"{path} is of ONNX opset {_opset(model)} and cannot be converted to {_OPSET} ({str(error)[:200]}): export "
            f"it again with --opset {_OPSET} or more"
        ) from error


def _opset(model: ModelProto) -> int:
    return max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=1)


def _take_two_inputs(model: ModelProto, path: Path) -> None:
    """Remove the input of segments, which some networks want: they are all 0."""
    names = [each.name for each in model.graph.input]
    unknown = [name for name in names if name not in (*_INPUTS, "token_type_ids")]
    if unknown or any(name not in names for name in _INPUTS):
        raise UnsupportedFileError(
            f"{path}: the inputs are {', '.join(names)}; expected input_ids, attention_mask and perhaps token_type_ids"
        )
    if "token_type_ids" in names:
        from onnx import helper

        model.graph.input.remove(model.graph.input[names.index("token_type_ids")])
        zeros = helper.make_node("Sub", ["input_ids", "input_ids"], ["token_type_ids"])
        model.graph.node.insert(0, zeros)


def _set_outputs(model: ModelProto, names: list[str]) -> None:
    from onnx import TensorProto, helper

    del model.graph.output[:]
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", None]) for name in names)


class _Nodes:
    """Nodes that are added at the end of a graph."""

    def __init__(self, model: ModelProto) -> None:
        self._graph = model.graph
        self._opset = _opset(model)

    def add(self, operation: str, inputs: list[str], *, output: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        name = output or f"hamtarget/{operation}_{len(self._graph.node)}"
        self._graph.node.append(helper.make_node(operation, inputs, [name], **attributes))
        return name

    def constant(self, value: Any) -> str:
        """Add a constant and return its name."""
        from onnx import numpy_helper

        name = f"hamtarget/constant_{len(self._graph.initializer)}"
        self._graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def single(self, x: str, kind: int) -> str:
        """Return numbers as float32, into which those of another kind are cast."""
        from onnx import TensorProto

        return x if kind == TensorProto.FLOAT else self.add("Cast", [x], to=TensorProto.FLOAT)

    def reduced(self, operation: str, x: str, *, axis: int, keepdims: bool) -> str:
        """Add a reduction along an axis."""
        if operation == "ReduceSum" or self._opset >= _AXES_AS_INPUTS:
            return self.add(operation, [x, self.constant(np.array([axis], dtype=np.int64))], keepdims=int(keepdims))
        return self.add(operation, [x], axes=[axis], keepdims=int(keepdims))

    def pooled(self, tokens: str, kinds: tuple[str, ...]) -> str:
        """Add pooling of the vectors of tokens; several kinds are joined."""
        from onnx import TensorProto

        mask = self.add("Cast", ["attention_mask"], to=TensorProto.FLOAT)
        mask = self.add("Unsqueeze", [mask, self.constant(np.array([2], dtype=np.int64))])
        parts = [self._pooled(tokens, mask, kind) for kind in kinds]
        return parts[0] if len(parts) == 1 else self.add("Concat", parts, axis=1)

    def _pooled(self, tokens: str, mask: str, kind: str) -> str:
        if kind == "cls":
            return self.add("Gather", [tokens, self.constant(np.int64(0))], axis=1)
        if kind == "max":
            hidden = self.add("Sub", [self.constant(np.float32(1)), mask])
            shift = self.add("Mul", [hidden, self.constant(np.float32(_HIDDEN))])
            kept = self.add("Add", [self.add("Mul", [tokens, mask]), shift])
            return self.reduced("ReduceMax", kept, axis=1, keepdims=False)
        total = self.reduced("ReduceSum", self.add("Mul", [tokens, mask]), axis=1, keepdims=False)
        count = self.reduced("ReduceSum", mask, axis=1, keepdims=False)
        count = self.add("Max", [count, self.constant(np.float32(_LEAST))])
        return self.add("Div", [total, self.add("Sqrt", [count]) if kind == "mean_sqrt_len" else count])

    def normalised(self, x: str) -> str:
        """Add scaling to unit length."""
        squares = self.reduced("ReduceSum", self.add("Mul", [x, x]), axis=1, keepdims=True)
        length = self.add("Max", [self.add("Sqrt", [squares]), self.constant(np.float32(_SHORTEST))])
        return self.add("Div", [x, length])
