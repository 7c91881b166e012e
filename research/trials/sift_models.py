"""Train the models of table 2 and figure 4 on a machine with a GPU, from the learning set only.

    python -m research.trials.sift_models --learn ../shared/data/sift1m/learn.npz --set sift1m --models models

The native core need not be built. `python -m research table2` and `figure4` with the same `--models` then use these
models, on any machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from hamtarget.datasets import open_vectors
from research.datasets.vector_sets import VectorSet
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
    """Return every model: look-up with the first seed, probing and fast probing with all."""
    training = Training(steps=steps)
    look_up = [
        *((n_bits, radius, weight, way) for way in WAYS for n_bits, radius in LENGTHS for weight in LAMBDAS),
        *((N_BITS, WIDE_RADIUS, weight, "soft_bits") for weight in WIDE_LAMBDAS),
    ]
    return [
        *(lookup_model(*which, training) for which in look_up),
        *(fast_model(Training(steps=steps, seed=seed)) for seed in range(seeds)),
        *(probing_model(FINE, Training(steps=steps, seed=seed)) for seed in range(seeds)),
    ]


def main() -> None:
    """Train the missing models, and print how long each took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learn", type=Path, required=True, metavar="FILE", help="file of the vectors to learn from")
    parser.add_argument(
        "--set", required=True, metavar="NAME", help="name of the whole set, as `open_vector_set` gives it"
    )
    parser.add_argument("--models", type=Path, required=True, metavar="DIR", help="folder of trained models")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=4000, help="batches to train on")
    parser.add_argument("--only", default="", metavar="PART", help="train only models with this in their name")
    arguments = parser.parse_args()
    learn = np.asarray(open_vectors(arguments.learn))
    vectors = VectorSet(learn, learn[:0], learn[:0], np.empty((0, 1), dtype=np.int64), arguments.set)
    for model in models_of(arguments.seeds, arguments.steps):
        if arguments.only not in model.name:
            continue
        trained = model.trained(vectors, arguments.models)
        print(f"{model.name}: {trained.seconds:.1f} s", flush=True)


if __name__ == "__main__":
    main()
