"""Measure probing on SIFT 1M over several seeds: how soon the true neighbour is read.

    python -m research.trials.sift_seeds --data ../shared/data/sift1m --models models \
        --out research/results/sift1m/seeds.json

Codes have 64 bits and 3 substrings; all queries and the whole base are used. Models that are not in the folder are
trained (4,000 steps).
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from hamtarget.datasets import open_vector_set
from hamtarget.evaluation.provenance import provenance, write_json
from research.paper.probing import nearest_read
from research.paper.vector_models import FINE, Training, probing_model

READS = (1000, 2000, 4000, 8000)


def main() -> None:
    """Train the missing models, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the data")
    parser.add_argument("--models", type=Path, required=True, metavar="DIR", help="folder of trained models")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON file for the results")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: %(default)s)")
    arguments = parser.parse_args()
    vectors = open_vector_set(arguments.data)
    rows: list[dict[str, Any]] = []
    for seed in range(arguments.seeds):
        encoder = probing_model(FINE, Training(seed=seed)).trained(vectors, arguments.models).encoder
        found = nearest_read(encoder, vectors, substrings=FINE, reads=READS)
        rows.append({"seed": seed, "nearest_read": {str(read): share for read, share in found.items()}})
        print(rows[-1], flush=True)
    summary = {}
    for read in map(str, READS):
        shares = [row["nearest_read"][read] for row in rows]
        spread = statistics.stdev(shares) if len(shares) > 1 else 0.0
        summary[read] = {"mean": statistics.mean(shares), "standard_deviation": spread}
    print(summary)
    told = {"data": vectors.name, "n_queries": len(vectors.queries), "provenance": provenance(seed=0)}
    write_json(arguments.out, {**told, "rows": rows, "summary": summary})


if __name__ == "__main__":
    main()
