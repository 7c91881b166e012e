"""Measure what labels do to classes that have none: vectors of sentences, two thirds of the intents labelled.

    python -m research.datasets.sentences data_full.json --model all-MiniLM-L6-v2 --out clinc.npz
    python -m research.benchmarks.unseen_classes clinc.npz --out research/results/unseen_classes/clinc.json

FILE is a NumPy file with `vectors` (rows, columns), `labels` (rows,) and `split` (rows,) of "train" and "test"; see
`research.datasets.sentences` for the sets and where they come from. Two thirds of the classes, drawn by the seed, are
labelled. The training rows of all classes are searched in. `seen` are queries of labelled classes, `unseen` those of
the other classes. The measure is MAP@100: the sum of the precisions at the ranks of relevant rows, divided by the
number of relevant rows or by 100, whichever is less. Rows at one Hamming distance come in random order.

The methods:

- `float cosine`: the vectors themselves.
- `ITQ` and `no labels`: learned from all training rows, without labels.
- `labels alone` and `classes`: learned from the labelled rows by Hamming distance targets (`loss="radius"`), and with
  `ClassCodes` (`loss="classes"`).
- `default, labelled rows`: `HashEncoder().fit(rows, labels)` with the labelled rows.
- `default, all rows`: the same with all rows; the labels of the other classes are None.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from hamtarget.encoders import ITQ
from hamtarget.errors import CrowdedCodesWarning
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HashEncoder
from hamtarget.learn.networks.builder import Network

RANKS = 100
SHARE_LABELLED = 2 / 3
METHODS = (
    "float cosine",
    "ITQ",
    "default, all rows",
    "default, labelled rows",
    "labels alone",
    "no labels",
    "classes",
)

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Sentences:
    """Rows to learn from and to search in, and queries; `labelled` tells which of each belong to labelled classes."""

    rows: Vectors
    labels: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    queries: Vectors
    query_labels: NDArray[np.int64]
    query_labelled: NDArray[np.bool_]


def read(file: Path, seed: int, *, share_labelled: float = SHARE_LABELLED) -> Sentences:
    """Return a set; the seed draws the labelled classes."""
    with np.load(file) as arrays:
        vectors, names, split = arrays["vectors"].astype(np.float32), arrays["labels"], arrays["split"]
    classes, labels = np.unique(names, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(classes))
    labelled = np.isin(labels, order[: round(share_labelled * len(classes))])
    train, test = split == "train", split == "test"
    return Sentences(vectors[train], labels[train], labelled[train], vectors[test], labels[test], labelled[test])


def ranked_map(scores: Vectors, data: Sentences) -> tuple[float, float]:
    """Return MAP@100 over the queries of labelled classes, and over the others."""
    first = np.argpartition(-scores, RANKS, axis=1)[:, :RANKS]
    first = np.take_along_axis(first, np.argsort(-np.take_along_axis(scores, first, axis=1), axis=1), axis=1)
    good = data.labels[first] == data.query_labels[:, None]
    precision = np.cumsum(good, axis=1) / np.arange(1, RANKS + 1)
    relevant = np.bincount(data.labels)[data.query_labels]
    average = (precision * good).sum(axis=1) / np.minimum(relevant, RANKS)
    seen, unseen = average[data.query_labelled], average[~data.query_labelled]
    return float(seen.mean()), float(unseen.mean()) if len(unseen) else float("nan")


def by_cosine(rows: Vectors, queries: Vectors, data: Sentences) -> tuple[float, float]:
    """Return MAP@100 by the cosine of vectors or logits."""
    rows, queries = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (rows, queries))
    return ranked_map(queries @ rows.T, data)


def by_codes(rows: Vectors, queries: Vectors, data: Sentences) -> tuple[float, float]:
    """Return MAP@100 by the Hamming distance of the codes that logits have."""
    rows, queries = (np.where(part > 0, np.float32(1), np.float32(-1)) for part in (rows, queries))
    scores = queries @ rows.T
    scores += np.random.default_rng(0).random(scores.shape, dtype=np.float32)
    return ranked_map(scores, data)


def figures_of(method: str, data: Sentences, n_bits: int, seed: int, *, network: Network = "auto") -> dict[str, float]:
    """Return MAP@100 of one method, and the CPU seconds of learning."""
    if method == "float cosine":
        seen, unseen = by_cosine(data.rows, data.queries, data)
        return {"seen by logits": seen, "unseen by logits": unseen}
    begun = time.process_time()
    encoder: ITQ | HashEncoder
    if method == "ITQ":
        encoder = ITQ(n_bits, seed=seed).fit(data.rows)
    else:
        word = {"labels alone": "radius", "classes": "classes"}.get(method, "auto")
        similar: Any = data.labels[data.labelled]
        rows = data.rows[data.labelled]
        if method in ("no labels", "default, all rows"):
            rows = data.rows
            pairs = zip(data.labels.tolist(), data.labelled.tolist(), strict=True)
            similar = None if method == "no labels" else [label if known else None for label, known in pairs]
        encoder = HashEncoder(n_bits, word, network=network, seed=seed, device="cpu").fit(rows, similar)
    seconds = time.process_time() - begun
    logits = encoder.logits(data.rows), encoder.logits(data.queries)
    seen, unseen = by_codes(*logits, data)
    seen_by_logits, unseen_by_logits = by_cosine(*logits, data)
    return {
        "seen by codes": seen,
        "unseen by codes": unseen,
        "seen by logits": seen_by_logits,
        "unseen by logits": unseen_by_logits,
        "cpu seconds": seconds,
    }


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE", help="NumPy file with vectors, labels and split")
    parser.add_argument("--bits", type=int, default=64, help="bits of a code (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method (default: %(default)s)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="methods to measure")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the results")
    arguments = parser.parse_args()
    # The figures say how crowded codes are.
    warnings.simplefilter("ignore", CrowdedCodesWarning)
    torch.set_num_threads(1)
    runs: dict[str, list[dict[str, float]]] = {method: [] for method in arguments.methods}
    for seed in range(arguments.seeds):
        data = read(arguments.file, seed)
        for method in arguments.methods:
            found = figures_of(method, data, arguments.bits, seed)
            runs[method].append(found)
            shown = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
            print(f"seed {seed}, {method}: {shown}", flush=True)
            if arguments.out is not None:
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                write_json(arguments.out, report(runs, arguments.bits))


def report(runs: dict[str, list[dict[str, float]]], n_bits: int) -> dict[str, Any]:
    """Return what is written of all runs so far: medians, and each run."""
    medians = {
        method: {"seeds": len(found), **{name: float(np.median([run[name] for run in found])) for name in found[0]}}
        for method, found in runs.items()
        if found
    }
    by_seed = {method: found for method, found in runs.items() if found}
    return {
        "provenance": provenance(seed=0),
        "bits": n_bits,
        "measure": f"MAP@{RANKS}",
        "medians": medians,
        "by_seed": by_seed,
    }


if __name__ == "__main__":
    main()
