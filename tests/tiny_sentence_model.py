"""A tiny random BERT in a folder, as sentence-transformers keeps one; and its forward pass by definition."""

import json
import math

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

HIDDEN, HEADS, LAYERS, WIDE, PLACES = 16, 4, 2, 24, 40
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat", "sat", "on", "a", "mat", "dog", "runs", "card", "lost", "my"]


def weights(seed=0):
    random = np.random.default_rng(seed)

    def some(*shape):
        return random.normal(0, 0.3, shape).astype(np.float32)

    found = {
        "embeddings.word_embeddings.weight": some(len(WORDS), HIDDEN),
        "embeddings.position_embeddings.weight": some(PLACES, HIDDEN),
        "embeddings.token_type_embeddings.weight": some(2, HIDDEN),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        for part, shape in {
            "attention.self.query": (HIDDEN, HIDDEN),
            "attention.self.key": (HIDDEN, HIDDEN),
            "attention.self.value": (HIDDEN, HIDDEN),
            "attention.output.dense": (HIDDEN, HIDDEN),
            "intermediate.dense": (WIDE, HIDDEN),
            "output.dense": (HIDDEN, WIDE),
        }.items():
            found[f"{name}{part}.weight"], found[f"{name}{part}.bias"] = some(*shape), some(shape[0])
        norms += [f"{name}attention.output.LayerNorm", f"{name}output.LayerNorm"]
    for name in norms:
        found[f"{name}.weight"], found[f"{name}.bias"] = 1 + some(HIDDEN), some(HIDDEN)
    return found


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


def write_model(folder, *, pooling="mean", normalised=True, act="gelu", max_tokens=12, prefix="", seed=0):
    """Write the folder of a sentence model."""
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
    config = {
        "model_type": "bert",
        "hidden_size": HIDDEN,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "hidden_act": act,
        "layer_norm_eps": 1e-12,
        "pad_token_id": 0,
        "max_position_embeddings": PLACES,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({"max_seq_length": max_tokens, "do_lower_case": False})
    )
    tokenizer().save(str(folder / "tokenizer.json"))
    save_file({prefix + name: value for name, value in weights(seed).items()}, folder / "model.safetensors")
    return folder


def naive_features(text, *, pooling="mean", normalised=True, act="gelu", max_tokens=12, seed=0):
    """Return the embedding of one text in double precision, each step by its definition."""
    w = {name: value.astype(np.float64) for name, value in weights(seed).items()}
    words = text.lower().split()[: max_tokens - 2]
    ids = [2, *(WORDS.index(word) if word in WORDS else 1 for word in words), 3]

    def dense(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x, name):
        centred = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-12)
        return centred / scale * w[f"{name}.weight"] + w[f"{name}.bias"]

    def activation(x):
        if act == "relu":
            return np.maximum(x, 0)
        if act == "gelu":
            return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
        return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    for layer in range(LAYERS):
        name = f"encoder.layer.{layer}."
        q, k, v = (dense(x, f"{name}attention.self.{part}") for part in ("query", "key", "value"))
        seen = np.empty_like(x)
        for head in range(HEADS):
            columns = slice(head * HIDDEN // HEADS, (head + 1) * HIDDEN // HEADS)
            scores = q[:, columns] @ k[:, columns].T / math.sqrt(HIDDEN // HEADS)
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            seen[:, columns] = shares / shares.sum(axis=1, keepdims=True) @ v[:, columns]
        x = norm(x + dense(seen, f"{name}attention.output.dense"), f"{name}attention.output.LayerNorm")
        wide = activation(dense(x, f"{name}intermediate.dense"))
        x = norm(x + dense(wide, f"{name}output.dense"), f"{name}output.LayerNorm")
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
