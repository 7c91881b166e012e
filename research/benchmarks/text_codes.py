"""Measure codes of sentences against the float vectors that they are learned from: neighbours, topics, copies.

    python -m research.datasets.sentences data_full.json --model all-MiniLM-L6-v2 --out clinc.npz
    python -m research.benchmarks.text_codes clinc.npz --out research/results/text_codes.json
    python -m research.benchmarks.text_codes clinc.npz --model all-MiniLM-L6-v2 --sentences data_full.json --out FILE

FILE is that of `research.benchmarks.unseen_classes`. Codes are learned without labels, as `hamtarget train` learns them
from texts without labels, and by ITQ; `signs` are the signs of the vectors themselves, cut to as many numbers.

- `neighbours`: recall 10@10, the share of the 10 nearest training rows by cosine of the vectors among the first 10 by
  Hamming distance, or by the cosine of logits.
- `topics`: MAP@100, where rows of the query's intent are relevant; `float` is that of the vectors.
- `copies`, with --model and --sentences: some sentences are altered in each way of `research.benchmarks.text_copies`,
  and sought; the share of which the original comes first, by codes, by logits and by vectors. The model's folder needs
  its network as ONNX; docs/texts.md has the command that writes it.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.encoders import ITQ, open_encoder
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HashEncoder
from research.benchmarks.text_copies import ALTERATIONS
from research.benchmarks.unseen_classes import Task, by_codes, by_cosine, read
from research.datasets.sentences import read_sentences

K = 10
# Sentences of fewer words have nothing to alter.
LEAST_WORDS = 8
N_COPIED, N_QUERIES = 2000, 100

Vectors = NDArray[np.float32]


class Signs:
    """The signs of the first numbers of a vector."""

    def __init__(self, n_bits: int) -> None:
        self._n_bits = n_bits

    def logits(self, vectors: Vectors) -> Vectors:
        """Return the numbers whose signs are the code."""
        return vectors[:, : self._n_bits]


def learned(method: str, data: Task, n_bits: int, seed: int) -> Any:
    """Return an encoder of vectors."""
    if method == "signs":
        return Signs(n_bits)
    if method == "ITQ":
        return ITQ(n_bits, seed=seed).fit(data.rows)
    return HashEncoder(n_bits, seed=seed, device="cpu", metric="cosine").fit(data.rows)


def unit(rows: Vectors) -> Vectors:
    """Return rows of unit length."""
    scaled: Vectors = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.float32(1e-12))
    return scaled


def by_signs(rows: Vectors) -> Vectors:
    """Return codes as numbers, of which the product falls with the Hamming distance."""
    return np.where(rows > 0, np.float32(1), np.float32(-1))


def recall(queries: Vectors, rows: Vectors, true: NDArray[np.int64]) -> float:
    """Return the share of the true nearest rows among the first K by products; equal ones come in random order."""
    scores = queries @ rows.T
    scores += np.random.default_rng(0).random(scores.shape, dtype=np.float32) * np.float32(1e-4)
    first = np.argpartition(-scores, K, axis=1)[:, :K]
    return float(np.mean([len(set(a) & set(b)) / K for a, b in zip(first.tolist(), true.tolist(), strict=True)]))


def first_found(queries: Vectors, rows: Vectors, true: NDArray[np.int64]) -> float:
    """Return the share of queries whose row comes first, alone or among equals."""
    scores = queries @ rows.T
    return float(np.mean(scores[np.arange(len(true)), true] >= scores.max(axis=1) - 1e-6))


def copies(model: Path, sentences: Path, encoders: dict[str, Any], seed: int) -> dict[str, Any]:
    """Return, by alteration and method, the share of altered sentences whose original comes first."""
    random = np.random.default_rng(seed)
    texts = sorted({text for text in read_sentences(sentences).texts if len(text.split()) >= LEAST_WORDS})
    texts = [texts[place] for place in random.permutation(len(texts))[:N_COPIED]]
    vocabulary = sorted({word for text in texts for word in text.split()})
    text_encoder = open_encoder(model)
    rows = text_encoder.features(texts)  # type: ignore[attr-defined]
    true = np.arange(N_QUERIES)
    found: dict[str, Any] = {}
    for name, alter in ALTERATIONS.items():
        altered = [" ".join(alter(text.split(), random, vocabulary)) for text in texts[:N_QUERIES]]
        queries = text_encoder.features(altered)  # type: ignore[attr-defined]
        shares = {"float": first_found(unit(queries), unit(rows), true)}
        for method, encoder in encoders.items():
            asked, kept = encoder.logits(queries), encoder.logits(rows)
            shares[f"{method}, codes"] = first_found(by_signs(asked), by_signs(kept), true)
            shares[f"{method}, logits"] = first_found(unit(asked), unit(kept), true)
        found[name] = shares
    return {
        "by_alteration": found,
        "mean": {name: float(np.mean([f[name] for f in found.values()])) for name in shares},
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE", help="NumPy file with vectors, labels and split")
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 256], help="bits of a code")
    parser.add_argument("--methods", nargs="+", default=["signs", "ITQ", "HashEncoder"])
    parser.add_argument("--model", type=Path, help="folder of the sentence model, for copies")
    parser.add_argument("--sentences", type=Path, help="the file that the sentences come from, for copies")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the results")
    asked = parser.parse_args()
    data = read(asked.file, asked.seed, share_labelled=1.0)
    rows, queries = unit(data.rows), unit(data.queries)
    true = np.argpartition(-(queries @ rows.T), K, axis=1)[:, :K]
    result: dict[str, Any] = {"provenance": provenance(seed=asked.seed), "codes": [], "copies": {}}
    result["float"] = {"topics": by_cosine(rows, queries, data)[0]}
    for n_bits in asked.bits:
        encoders: dict[str, Any] = {}
        for method in asked.methods:
            encoder = encoders[method] = learned(method, data, n_bits, asked.seed)
            sought, kept = encoder.logits(data.queries), encoder.logits(data.rows)
            figures = {
                "neighbours by codes": recall(by_signs(sought), by_signs(kept), true),
                "neighbours by logits": recall(unit(sought), unit(kept), true),
                "topics by codes": by_codes(kept, sought, data)[0],
                "topics by logits": by_cosine(kept, sought, data)[0],
            }
            print(n_bits, method, figures, flush=True)
            result["codes"].append({"bits": n_bits, "method": method, **figures})
        if asked.model is not None and asked.sentences is not None:
            result["copies"][str(n_bits)] = copies(asked.model, asked.sentences, encoders, asked.seed)
            print(n_bits, result["copies"][str(n_bits)]["mean"], flush=True)
        if asked.out is not None:
            asked.out.parent.mkdir(parents=True, exist_ok=True)
            write_json(asked.out, result)


if __name__ == "__main__":
    main()
