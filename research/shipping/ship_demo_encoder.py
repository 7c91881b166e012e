"""Train the small encoder of `hamtarget serve --demo` on the bundled images, and write it into the package.

python -m research.shipping.ship_demo_encoder
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import hamtarget
from hamtarget.datasets import fashion_sample
from hamtarget.evaluation.metrics import by_label, mean_average_precision, precision_recall_by_radius
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions
from hamtarget.serve.demo_store import N_QUERIES

RADII = (2, 6, 12, 18)


def main() -> None:
    """Train, measure on images that were not trained on, and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--out",
        type=Path,
        default=Path(hamtarget.__file__).parent / "serve" / "demo_encoder",
        help="JSON file for the results",
    )
    parser.add_argument("--steps", type=int, default=300, help="batches to train on")
    arguments = parser.parse_args()
    sample = fashion_sample(N_QUERIES)
    # Dark on white, like pictures of goods.
    images, queries = 255 - sample.images, 255 - sample.query_images
    encoder = HashEncoder(
        loss=HammingTargetLoss(64, RADII, dissimilar_weight=200.0),
        network=NetworkOptions(width=12),
        training=TrainingOptions(steps=arguments.steps),
        seed=0,
    )
    encoder.fit(images, sample.labels)
    codes, query_codes = encoder.encode(images), encoder.encode(queries)
    relevant = by_label(sample.query_labels, sample.labels)
    curve = precision_recall_by_radius(query_codes, codes, relevant, n_bits=64, max_radius=RADII[-1])
    encoder.export_onnx(arguments.out)
    recorded = {
        "provenance": provenance(seed=0),
        "queries": len(queries),
        "database": len(images),
        "distinct_codes": len(np.unique(codes, axis=0)),
        "mean_average_precision_at_1000": mean_average_precision(query_codes, codes, relevant, n_bits=64, k=1000),
        "by_radius": [
            {
                "radius": radius,
                "hits": float(curve.hits[radius]),
                "precision": float(curve.precision[radius]),
                "recall": float(curve.recall[radius]),
            }
            for radius in RADII
        ],
    }
    write_json(arguments.out / "recorded.json", recorded)
    print(recorded)


if __name__ == "__main__":
    main()
