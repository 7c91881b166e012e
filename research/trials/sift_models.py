"""Train the models that table 2 and figure 4 are measured with, where a GPU is: from the learning set alone.

    python -m research.trials.sift_models --learn ../shared/data/sift1m/learn.npz --set sift1m --models models

The native core need not be built. `python -m research table2` and `figure4` with the same `--models` then take them
from there, on any machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from hamtarget.datasets import VectorSet, open_vectors
from research.paper.vector_models import (
    FINE,
    LAMBDAS,
    LENGTHS,
    N_BITS,
    WAYS,
    WIDE_LAMBDAS,
    WIDE_RADIUS,
    Training,
    VectorModel,
    fast_model,
    lookup_model,
    probing_model,
)


def models_of(seeds: int, steps: int) -> list[VectorModel]:
    """Every model: look-up with the first seed, probing with all."""
    training = Training(steps=steps)
    look_up = [
        *((n_bits, radius, weight, way) for way in WAYS for n_bits, radius in LENGTHS for weight in LAMBDAS),
        *((N_BITS, WIDE_RADIUS, weight, "soft_bits") for weight in WIDE_LAMBDAS),
    ]
    return [
        *(lookup_model(*which, training) for which in look_up),
        fast_model(training),
        *(probing_model(FINE, Training(steps=steps, seed=seed)) for seed in range(seeds)),
    ]


def main() -> None:
    """Train what is missing and say how long each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learn", type=Path, required=True, metavar="FILE")
    parser.add_argument("--set", required=True, metavar="NAME", help="what `open_vector_set` calls the whole set")
    parser.add_argument("--models", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4000)
    arguments = parser.parse_args()
    learn = np.asarray(open_vectors(arguments.learn))
    vectors = VectorSet(learn, learn[:0], learn[:0], np.empty((0, 1), dtype=np.int64), arguments.set)
    for model in models_of(arguments.seeds, arguments.steps):
        trained = model.trained(vectors, arguments.models)
        print(f"{model.name}: {trained.seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
