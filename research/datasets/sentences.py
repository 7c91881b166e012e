"""Sentences of public intent sets as vectors: one NumPy file with `vectors`, `labels` and `split`.

    python -m research.datasets.sentences SOURCE --model DIR --out FILE.npz

SOURCE is one of:

- `data_full.json` of CLINC150 (https://github.com/clinc/oos-eval, CC BY 3.0): 150 intents, 22,500 sentences.
- the folder with `train.csv` and `test.csv` of Banking77 (https://github.com/PolyAI-LDN/task-specific-datasets,
  CC BY 4.0): 77 intents, 13,083 sentences.
- any text file with a sentence a line; such sentences have the label "" and the split "train".

DIR is a folder of a BERT-like sentence model with `model.safetensors`, `config.json` and `tokenizer.json`, such as
all-MiniLM-L6-v2 (sentence-transformers, Apache-2.0). Vectors are the means over
the tokens of a sentence, scaled to unit length. On one core it takes about 3 minutes for 20,000 sentences.
"""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor

MOST_TOKENS = 128
BATCH = 128


@dataclass(frozen=True)
class Sentences:
    """Sentences with an intent and a part ("train", "val" or "test") each."""

    texts: list[str]
    labels: list[str]
    split: list[str]


def read_sentences(source: Path) -> Sentences:
    """Return the sentences of a set, see the description of this module."""
    if source.is_dir():
        rows = []
        for part in ("train", "test"):
            with (source / f"{part}.csv").open(encoding="utf-8", newline="") as file:
                rows += [(row["text"], row["category"], part) for row in csv.DictReader(file)]
    elif source.suffix == ".json":
        parts = json.loads(source.read_text(encoding="utf-8"))
        rows = [(text, label, part) for part in ("train", "val", "test") for text, label in parts[part]]
    else:
        rows = [(line, "", "train") for line in source.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not rows:
        raise SystemExit(f"{source} has no sentences; expected data_full.json, a folder with train.csv, or lines")
    texts, labels, split = (list(column) for column in zip(*rows, strict=True))
    return Sentences(texts, labels, split)


class SentenceModel:
    """A BERT-like network with mean pooling, read from a folder."""

    def __init__(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        self._weights = {name.removeprefix("bert."): weight for name, weight in weights.items()}
        self._config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MOST_TOKENS)

    def encode(self, texts: list[str]) -> NDArray[np.float32]:
        """Return vectors of unit length, (texts, columns)."""
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        # Sentences of about one length share a batch, so that little of it is padding.
        order = np.argsort([len(ids) for ids in tokens], kind="stable")
        vectors = np.empty((len(texts), self._config["hidden_size"]), np.float32)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            vectors[rows] = self._forward([tokens[row] for row in rows]).numpy()
            print(f"\r{start + len(rows):,} of {len(order):,} sentences", end="", flush=True)
        print()
        return vectors

    @torch.inference_mode()
    def _forward(self, tokens: list[list[int]]) -> Tensor:
        lengths = torch.tensor([len(ids) for ids in tokens])
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in tokens], batch_first=True)
        real = torch.arange(ids.shape[1]) < lengths[:, None]
        units = self._weights["embeddings.word_embeddings.weight"][ids]
        units = units + self._weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        units = units + self._weights["embeddings.token_type_embeddings.weight"][0]
        units = self._normalized(units, "embeddings.LayerNorm")
        for layer in range(self._config["num_hidden_layers"]):
            units = self._layer(units, real, f"encoder.layer.{layer}.")
        mean = (units * real[..., None]).sum(1) / lengths[:, None]
        return F.normalize(mean, dim=1)

    def _layer(self, units: Tensor, real: Tensor, name: str) -> Tensor:
        rows, length, _ = units.shape
        query, key, value = (
            self._linear(units, f"{name}attention.self.{part}")
            .view(rows, length, self._config["num_attention_heads"], -1)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=real[:, None, None])
        attended = self._linear(attended.transpose(1, 2).reshape(units.shape), f"{name}attention.output.dense")
        units = self._normalized(units + attended, f"{name}attention.output.LayerNorm")
        wide = F.gelu(self._linear(units, f"{name}intermediate.dense"))
        return self._normalized(units + self._linear(wide, f"{name}output.dense"), f"{name}output.LayerNorm")

    def _linear(self, units: Tensor, name: str) -> Tensor:
        return F.linear(units, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"])

    def _normalized(self, units: Tensor, name: str) -> Tensor:
        weight, bias = self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
        return F.layer_norm(units, weight.shape, weight, bias, self._config["layer_norm_eps"])


def main() -> None:
    """Embed one set and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="JSON file, folder of CSV files, or file of lines")
    parser.add_argument("--model", type=Path, required=True, metavar="DIR", help="folder of a sentence model")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="NumPy file to write")
    arguments = parser.parse_args()
    sentences = read_sentences(arguments.source)
    vectors = SentenceModel(arguments.model).encode(sentences.texts)
    np.savez(arguments.out, vectors=vectors, labels=np.array(sentences.labels), split=np.array(sentences.split))


if __name__ == "__main__":
    main()
