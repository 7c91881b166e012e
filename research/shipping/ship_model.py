"""Put a trained model into the package, with a record of its quality.

    python -m research.shipping.ship_model models/64-bits-probing-seed0 packages/models/src/hamtarget_models/sift-64

Writes the model and `recorded.json`: its recall on generated descriptors, which tests measure again, and its
provenance.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from hamtarget.evaluation import exact_neighbors
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HashEncoder
from research.datasets.descriptors import generated_descriptors
from research.datasets.vector_sets import VectorSet
from research.paper.probing import nearest_read

READS = (50, 200, 800)


def generated_set() -> VectorSet:
    """Return 20,000 generated descriptors to search in, and 500 queries."""
    base, queries = generated_descriptors(20_000, seed=2), generated_descriptors(500, seed=3)
    return VectorSet(base[:1000], base, queries, exact_neighbors(queries, base, 1), "generated")


def main() -> None:
    """Copy, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="folder of a trained model")
    parser.add_argument("target", type=Path, help="folder in the package")
    arguments = parser.parse_args()
    encoder = HashEncoder.load(arguments.source)
    encoder.save(arguments.target)
    trained = json.loads((arguments.source / "training.json").read_text(encoding="utf-8"))
    shares = nearest_read(encoder, generated_set(), substrings=3, reads=READS)
    recorded = {
        "generated_descriptors": {str(read): share for read, share in shares.items()},
        "measured": provenance(seed=0),
        "trained": {key: trained[key] for key in ("provenance", "seconds", "setting")},
        "train_again": "python -m research figure4 --data DIR --out DIR --models DIR",
    }
    write_json(arguments.target / "recorded.json", recorded)
    print(json.dumps(recorded["generated_descriptors"]))


if __name__ == "__main__":
    main()
