"""The headline of probing on SIFT 1M over several seeds: how soon the true neighbour is read.

    python -m research.trials.sift_seeds --data ../shared/data/sift1m --models models \
        --out research/results/sift1m/seeds.json

64 bits, 3 substrings, all queries, the whole base; models that are not in the folder are trained (4,000 steps).
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
    """Train what is missing, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR")
    parser.add_argument("--models", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    parser.add_argument("--seeds", type=int, default=3)
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
