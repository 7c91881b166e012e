"""A tiny random sentence model in a folder, as its makers publish one; and its embeddings by definition."""

import json
import math

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

HIDDEN, PLACES = 16, 40
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "a", "mat", "dog", "runs", "card", "lost", "my"]
NETWORK = "onnx/model.onnx"


def weights(seed=0):
    random = np.random.default_rng(seed)
    shapes = {"words": (len(WORDS), HIDDEN), "places": (PLACES, HIDDEN), "dense": (HIDDEN, HIDDEN)}
    return {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def network(seed=0, *, inputs=("input_ids", "attention_mask"), half=False, opset=18):
    """Return a network as ONNX: words and places, a dense layer, and the mean of the tokens that are not masked.

    With `half`, its output is in float16. An input `token_type_ids` is added to the tokens, as segments are.
    """
    from onnx import TensorProto, helper, numpy_helper

    kind = TensorProto.FLOAT16 if half else TensorProto.FLOAT
    found = {
        **weights(seed),
        "zero": np.array([0]),
        "one": np.array([1]),
        "two": np.array([2]),
    }
    node = helper.make_node
    nodes = [
        node("Gather", ["words", "input_ids"], ["each"]),
        node("Shape", ["input_ids"], ["shape"]),
        node("Slice", ["shape", "one", "two"], ["length"]),
        node("Slice", ["places", "zero", "length", "zero"], ["here"]),
        node("Add", ["each", "here"], ["placed"]),
        node("MatMul", ["placed", "dense"], ["mixed"]),
        node("Tanh", ["mixed"], ["bent"]),
        node("Cast", ["attention_mask"], ["numbers"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["numbers", "two"], ["mask"]),
        node("Mul", ["bent", "mask"], ["seen"]),
        node("ReduceSum", ["seen", "one"], ["total"]),
        node("ReduceSum", ["mask", "one"], ["count"]),
        node("Div", ["total", "count"], ["mean"]),
        node("Add", ["bent", "mean"], ["joined"]),
    ]
    if "token_type_ids" in inputs:
        nodes += [
            node("Cast", ["token_type_ids"], ["segments"], to=TensorProto.FLOAT),
            node("Unsqueeze", ["segments", "two"], ["segment"]),
            node("Add", ["joined", "segment"], ["out"]),
        ]
    else:
        nodes += [node("Identity", ["joined"], ["out"])]
    nodes += [node("Cast", ["out"], ["last_hidden_state"], to=kind)]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["rows", "tokens"]) for name in inputs],
        [helper.make_tensor_value_info("last_hidden_state", kind, ["rows", "tokens", HIDDEN])],
        [numpy_helper.from_array(value, name) for name, value in found.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def tokenizer():
    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.Lowercase()
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", WORDS.index("[CLS]")), ("[SEP]", WORDS.index("[SEP]"))]
    )
    # As published ones often are: padded to a length that nobody wants.
    made.enable_padding(length=30)
    made.enable_truncation(20)
    return made


def write_model(folder, *, pooling="mean", normalised=True, max_tokens=12, seed=0, name=NETWORK, **of_network):
    """Write the folder of a sentence model."""
    import onnx

    (folder / "1_Pooling").mkdir(parents=True)
    modules = ["", "1_Pooling", "2_Normalize"][: 3 if normalised else 2]
    kinds = ["Transformer", "Pooling", "Normalize"]
    (folder / "modules.json").write_text(
        json.dumps(
            [
                {"idx": n, "name": str(n), "path": path, "type": f"sentence_transformers.models.{kinds[n]}"}
                for n, path in enumerate(modules)
            ]
        )
    )
    fields = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens", "mean_sqrt_len": "mean_sqrt_len_tokens"}
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({f"pooling_mode_{field}": kind in pooling.split("+") for kind, field in fields.items()})
    )
    (folder / "config.json").write_text(json.dumps({"pad_token_id": 0, "max_position_embeddings": PLACES}))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": max_tokens, "do_lower_case": False})
    )
    tokenizer().save(str(folder / "tokenizer.json"))
    (folder / name).parent.mkdir(exist_ok=True)
    onnx.save(network(seed, **of_network), str(folder / name))
    return folder


def naive_features(text, *, pooling="mean", normalised=True, max_tokens=12, seed=0):
    """Return the embedding of one text in double precision, each step by its definition."""
    w = {name: value.astype(np.float64) for name, value in weights(seed).items()}
    words = text.lower().split()[: max_tokens - 2]
    ids = [2, *(WORDS.index(word) if word in WORDS else 1 for word in words), 3]
    x = np.tanh((w["words"][ids] + w["places"][: len(ids)]) @ w["dense"])
    x = x + x.mean(axis=0)
    parts = {
        "cls": x[0],
        "max": x.max(axis=0),
        "mean": x.mean(axis=0),
        "mean_sqrt_len": x.sum(axis=0) / math.sqrt(len(x)),
    }
    pooled = np.concatenate(
        [parts[kind] for kind in ("cls", "max", "mean", "mean_sqrt_len") if kind in pooling.split("+")]
    )
    return pooled / np.linalg.norm(pooled) if normalised else pooled
