"""Compare `ClassCodes` with `HammingTargetLoss` where only classes that were learned from are searched.

    python -m research.trials.image_trials --features out/features.npz --data DIR --weights FILE   (makes the features)
    python -m research.trials.class_objective --features out/features.npz

Against the ordinary loss, `HammingTargetLoss`, everything else being equal: on features that a ResNet-50 gives for
Tiny-ImageNet-100 (100 classes; 8,000 rows to learn from, 500 queries, 3,000 rows to search, half of them learned from),
and on the bundled Fashion-MNIST sample (10 classes; 5,000 rows to learn from and to search, 1,000 queries). Queries are
never learned from, and nothing is chosen by them. MAP counts a twentieth of the rows searched; precision and recall are
of a search within 2 bits.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.datasets import fashion_sample
from hamtarget.evaluation.metrics import by_label, mean_average_precision, precision_recall_by_radius
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import ClassCodes, HammingTargetLoss, HashEncoder, TrainingOptions
from research.paper.image_tasks import LabelledImages, held_out_task
from research.threads import one_thread

RADIUS = 2
RANKED_SHARE = 0.05
STEPS = {"features": 600, "fashion": 400}
WEIGHT = 300.0
OBJECTIVES = {"radius": HammingTargetLoss, "classes": ClassCodes}


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs and labels to learn from, to search in, and to search with."""

    name: str
    train: tuple[NDArray[Any], NDArray[Any]]
    database: tuple[NDArray[Any], NDArray[Any]]
    queries: tuple[NDArray[Any], NDArray[Any]]


def feature_data(path: Path) -> Data:
    """Return the features that research.trials.image_trials keeps, split as its trials split them."""
    with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
        features, labels = kept["features"].astype(np.float32), kept["labels"]
    task = held_out_task(LabelledImages(features, labels, len(features), np.arange(len(features))))
    train, database, queries = ((features[rows], labels[rows]) for rows in (task.train, task.database, task.queries))
    return Data("features", train, database, queries)


def fashion_data() -> Data:
    """Return the bundled images."""
    sample = fashion_sample()
    images = (sample.images, sample.labels)
    return Data("fashion", images, images, (sample.query_images, sample.query_labels))


def measure(data: Data, n_bits: int, objective: str, seed: int) -> dict[str, Any]:
    """Train one encoder and search with it."""
    start = time.perf_counter()
    encoder = HashEncoder(
        loss=OBJECTIVES[objective](n_bits, RADIUS, dissimilar_weight=WEIGHT),
        training=TrainingOptions(steps=STEPS[data.name]),
        seed=seed,
        device="cpu",
    )
    encoder.fit(*data.train)
    seconds = time.perf_counter() - start
    (database, database_labels), (queries, query_labels) = data.database, data.queries
    rows, asked = encoder.encode(database), encoder.encode(queries)
    relevant = by_label(query_labels, database_labels)
    ranks = round(RANKED_SHARE * len(rows))
    found = precision_recall_by_radius(asked, rows, relevant, n_bits=n_bits, max_radius=RADIUS)
    return {
        "data": data.name,
        "n_bits": n_bits,
        "objective": objective,
        "seed": seed,
        "steps": STEPS[data.name],
        "seconds": seconds,
        "map": mean_average_precision(asked, rows, relevant, n_bits=n_bits, k=ranks),
        "precision": float(found.precision[RADIUS]),
        "recall": float(found.recall[RADIUS]),
    }


def main() -> None:
    """Run the trials that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--features",
        type=Path,
        help="file that research.trials.image_trials makes; without it, only the bundled images are used",
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: %(default)s)")
    parser.add_argument(
        "--out", type=Path, default=Path("research/results/class_objective.json"), help="JSON file for the results"
    )
    given = parser.parse_args()
    plan: list[tuple[Data, tuple[int, ...]]] = [(fashion_data(), (32,))]
    if given.features is not None:
        plan.insert(0, (feature_data(given.features), (16, 32, 64)))
    records: list[dict[str, Any]] = []
    with one_thread():
        for seed in range(given.seeds):
            for data, lengths in plan:
                for n_bits in lengths:
                    for objective in OBJECTIVES:
                        record = measure(data, n_bits, objective, seed)
                        records.append(record)
                        write_json(given.out, {"provenance": provenance(seed=0), "records": records})
                        print(_line(record), flush=True)


def _line(record: dict[str, Any]) -> str:
    return (
        "{data:<9} {n_bits} bits {objective:<8} seed {seed}: MAP {map:.3f}, within 2 bits P {precision:.2f} "
        "R {recall:.3f}, {seconds:.0f} s"
    ).format(**record)


if __name__ == "__main__":
    main()
