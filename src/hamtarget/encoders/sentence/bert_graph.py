"""A plain ONNX graph of BERT, from its weights as safetensors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.errors import CorruptFileError, UnsupportedFileError

if TYPE_CHECKING:
    from onnx import ModelProto

OPSET = 17
"""Runtimes of 2022 and later read it. It is the first that has LayerNormalization."""
_IR_VERSION = 8
_PREFIXES = ("", "bert.", "model.")
# Added to the scores of tokens that only fill a text up: their share becomes 0.
_HIDDEN = -1e9

Weights = dict[str, NDArray[np.float32]]


def bert_graph(weights_file: Path, config: dict[str, Any]) -> ModelProto:
    """Return an ONNX model from (input_ids, attention_mask) to token_embeddings, (rows, tokens, columns).

    Args:
        weights_file: safetensors with the names that transformers gives the weights of a BertModel.
        config: config.json beside it.

    Raises:
        UnsupportedFileError: the network is not a BERT that is known here.
        CorruptFileError: a weight is missing, or has another shape.
    """
    from onnx import TensorProto, helper

    _check_config(config, weights_file)
    builder = _Builder(_read_weights(weights_file), str(weights_file))
    hidden = builder.embedded(config)
    mask = builder.node("Cast", ["attention_mask"], to=TensorProto.FLOAT)
    mask = builder.node("Unsqueeze", [mask, builder.integers([1, 2])])
    mask = builder.node("Mul", [builder.node("Sub", [builder.number(1.0), mask]), builder.number(_HIDDEN)])
    for layer in range(int(config["num_hidden_layers"])):
        hidden = builder.layer(hidden, mask, config, f"encoder.layer.{layer}.")
    builder.node("Identity", [hidden], output="token_embeddings")
    graph = helper.make_graph(
        builder.nodes,
        "bert",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "tokens"])
            for name in ("input_ids", "attention_mask")
        ],
        [helper.make_tensor_value_info("token_embeddings", TensorProto.FLOAT, ["rows", "tokens", None])],
        builder.initializers,
    )
    model: ModelProto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=_IR_VERSION, producer_name="hamtarget"
    )
    return model


def _check_config(config: dict[str, Any], weights_file: Path) -> None:
    kind = config.get("model_type")
    position = config.get("position_embedding_type", "absolute")
    if kind != "bert" or position != "absolute" or config.get("hidden_act") not in ("gelu", "gelu_new", "relu"):
        raise UnsupportedFileError(
            f"{weights_file}: the network is {str(kind)[:40]!r} with {str(position)[:40]} positions and "
            f"{str(config.get('hidden_act'))[:40]}; from weights alone only BERT is run: export the model as ONNX "
            "(optimum-cli export onnx) into onnx/model.onnx"
        )
    numbers: list[Any] = [config.get(name) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size")]
    if not all(type(number) is int and 1 <= number <= 1 << 16 for number in numbers) or numbers[2] % numbers[1]:
        raise CorruptFileError(f"{weights_file}: config.json has layers, heads and size {numbers}; fetch it again")


def _read_weights(path: Path) -> Weights:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np") as file:
            found = {name: np.asarray(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{path} cannot be read as float32 or float16 weights: {error}") from error
    prefix = next((each for each in _PREFIXES if f"{each}embeddings.word_embeddings.weight" in found), "")
    return {
        name.removeprefix(prefix): value.astype(np.float32) for name, value in found.items() if value.dtype.kind == "f"
    }


class _Builder:
    """Nodes and weights of the graph that is being written."""

    def __init__(self, weights: Weights, where: str) -> None:
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self._weights = weights
        self._where = where
        self._written: dict[object, str] = {}

    def node(self, operation: str, inputs: list[str], *, output: str | None = None, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        from onnx import helper

        name = f"{operation}_{len(self.nodes)}" if output is None else output
        self.nodes.append(helper.make_node(operation, inputs, [name], **attributes))
        return name

    def weight(self, name: str, *, transposed: bool = False) -> str:
        """Add a weight and return its name."""
        if name not in self._weights:
            raise CorruptFileError(f"{self._where} has no weight {name!r}; expected a BertModel: fetch it again")
        value = self._weights[name]
        return self._constant(("weight", name, transposed), value.T if transposed else value)

    def number(self, value: float) -> str:
        """Add a number and return its name."""
        return self._constant(("number", value), np.float32(value))

    def integers(self, values: list[int]) -> str:
        """Add a list of integers and return its name."""
        return self._constant(("integers", *values), np.array(values, dtype=np.int64))

    def _constant(self, key: object, value: Any) -> str:
        from onnx import numpy_helper

        if key not in self._written:
            self._written[key] = f"constant_{len(self._written)}"
            self.initializers.append(numpy_helper.from_array(np.array(value, order="C"), self._written[key]))
        return self._written[key]

    def dense(self, x: str, name: str) -> str:
        """Add a fully connected layer."""
        product = self.node("MatMul", [x, self.weight(f"{name}.weight", transposed=True)])
        return self.node("Add", [product, self.weight(f"{name}.bias")])

    def norm(self, x: str, name: str, config: dict[str, Any]) -> str:
        """Add a layer norm."""
        epsilon = float(config.get("layer_norm_eps", 1e-12))
        given = [x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias")]
        return self.node("LayerNormalization", given, axis=-1, epsilon=epsilon)

    def embedded(self, config: dict[str, Any]) -> str:
        """Add the sum of the embeddings of words, places and the first segment."""
        words = self.node("Gather", [self.weight("embeddings.word_embeddings.weight"), "input_ids"])
        length = self.node("Slice", [self.node("Shape", ["input_ids"]), self.integers([1]), self.integers([2])])
        table = self.weight("embeddings.position_embeddings.weight")
        places = self.node("Slice", [table, self.integers([0]), length, self.integers([0])])
        segments = self.weight("embeddings.token_type_embeddings.weight")
        segment = self.node("Gather", [segments, self.integers([0])])
        total = self.node("Add", [self.node("Add", [words, places]), segment])
        return self.norm(total, "embeddings.LayerNorm", config)

    def layer(self, hidden: str, mask: str, config: dict[str, Any], name: str) -> str:
        """Add a layer: attention, then two dense layers, each around the input."""
        heads, size = int(config["num_attention_heads"]), int(config["hidden_size"])
        apart = self.integers([0, 0, heads, size // heads])

        def part(of: str, order: list[int]) -> str:
            split = self.node("Reshape", [self.dense(hidden, f"{name}attention.self.{of}"), apart])
            return self.node("Transpose", [split], perm=order)

        scores = self.node("MatMul", [part("query", [0, 2, 1, 3]), part("key", [0, 2, 3, 1])])
        scores = self.node("Mul", [scores, self.number(1 / math.sqrt(size // heads))])
        shares = self.node("Softmax", [self.node("Add", [scores, mask])], axis=-1)
        seen = self.node("MatMul", [shares, part("value", [0, 2, 1, 3])])
        seen = self.node("Transpose", [seen], perm=[0, 2, 1, 3])
        seen = self.node("Reshape", [seen, self.integers([0, 0, size])])
        seen = self.dense(seen, f"{name}attention.output.dense")
        hidden = self.norm(self.node("Add", [seen, hidden]), f"{name}attention.output.LayerNorm", config)
        wide = self.activation(self.dense(hidden, f"{name}intermediate.dense"), str(config["hidden_act"]))
        narrow = self.dense(wide, f"{name}output.dense")
        return self.norm(self.node("Add", [narrow, hidden]), f"{name}output.LayerNorm", config)

    def activation(self, x: str, kind: str) -> str:
        """Add the non-linear function between the two dense layers."""
        if kind == "relu":
            return self.node("Relu", [x])
        if kind == "gelu":
            bent = self.node("Erf", [self.node("Mul", [x, self.number(math.sqrt(0.5))])])
        else:
            cubed = self.node("Mul", [self.node("Mul", [self.node("Mul", [x, x]), x]), self.number(0.044715)])
            inner = self.node("Mul", [self.node("Add", [x, cubed]), self.number(math.sqrt(2 / math.pi))])
            bent = self.node("Tanh", [inner])
        share = self.node("Mul", [self.node("Add", [bent, self.number(1.0)]), self.number(0.5)])
        return self.node("Mul", [x, share])
