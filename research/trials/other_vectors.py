"""Check on other vectors the defaults that were found on SIFT: raw images of 784 numbers, with nothing tuned.

    python -m research.trials.other_vectors --out research/results/other_vectors.json

The bundled Fashion-MNIST images are taken as vectors: 2,000 to learn from, 3,000 to search in, 1,000 queries.
Neighbours are by Euclidean distance. A figure is the share of queries whose true neighbour is among the first rows in
query-directed order, with 32-bit codes and 2 substrings.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.datasets import fashion_sample
from hamtarget.encoders import ITQ, LSH
from hamtarget.encoders.linear import LinearEncoder
from hamtarget.evaluation import exact_neighbors
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HammingTargetLoss, HashEncoder, ProbingLoss, TrainingOptions
from research.datasets.vector_sets import VectorSet
from research.paper.probing import nearest_read

N_BITS, SUBSTRINGS = 32, 2
STEPS = 2000
READS = (3, 6, 12, 30, 60, 120)


def images_as_vectors() -> VectorSet:
    """Return the bundled images, flattened."""
    sample = fashion_sample()
    images = sample.images.reshape(len(sample.images), -1)
    queries = sample.query_images.reshape(len(sample.query_images), -1)
    learn, base = images[:2000], images[2000:5000]
    return VectorSet(learn, base, queries, exact_neighbors(queries, base, 1), "Fashion-MNIST")


def main() -> None:
    """Train, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON file for the results")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: %(default)s)")
    arguments = parser.parse_args()
    vectors = images_as_vectors()
    methods: dict[str, Callable[[int], HashEncoder | LinearEncoder]] = {
        "LSH": lambda seed: LSH(N_BITS, seed=seed),
        "ITQ": lambda seed: ITQ(N_BITS, seed=seed),
        "HashEncoder, defaults": lambda seed: HashEncoder(
            loss=ProbingLoss(N_BITS, substrings=3, choosing_weight=0.0),
            training=TrainingOptions(steps=STEPS),
            seed=seed,
        ),
        "HashEncoder, radius 1, substring term x 10,000": lambda seed: HashEncoder(
            loss=HammingTargetLoss(N_BITS, 1, substring_weight=10_000),
            training=TrainingOptions(steps=STEPS),
            seed=seed,
        ),
    }
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        for name, build in methods.items():
            start = time.perf_counter()
            encoder = build(seed).fit(np.asarray(vectors.learn))
            seconds = time.perf_counter() - start
            shares = nearest_read(encoder, vectors, substrings=SUBSTRINGS, reads=READS)
            rows.append(
                {
                    "method": name,
                    "seed": seed,
                    "seconds": seconds,
                    "nearest_read": {str(k): v for k, v in shares.items()},
                }
            )
            print(name, seed, f"{seconds:.1f} s", shares, flush=True)
            write_json(arguments.out, {"provenance": provenance(seed=0), "rows": rows})


if __name__ == "__main__":
    main()
