"""Measure probing on SIFT 1M over several seeds: how soon the true neighbour is read.

    python -m research.trials.sift_seeds --data ../shared/data/sift1m --models models \
        --out research/results/sift1m/seeds.json
    python -m research.trials.sift_seeds --by index --data ../shared/data/sift1m --models models \
        --out research/results/sift1m/index_seeds.json

Codes have 64 bits and 3 substrings; all queries and the whole base are used. Models that are not in the folder are
trained (4,000 steps). The order is the ideal one, by whole substrings, computed for all rows; with `--by index` it is
the index's own, and codes of 4 substrings are measured, too.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from hamtarget.evaluation.provenance import provenance, write_json
from research.datasets.vector_sets import open_vector_set
from research.paper.probing import index_read, nearest_read
from research.paper.vector_models import FAST, FINE, Training, VectorModel, fast_model, probing_model

READS = (1000, 2000, 4000, 8000)


def models_of(by: str, seed: int) -> dict[int, VectorModel]:
    """Return the models of a seed by their number of substrings."""
    training = Training(seed=seed)
    fine = {FINE: probing_model(FINE, training)}
    return fine if by == "ideal" else {**fine, FAST: fast_model(training)}


def summary_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return mean and standard deviation over the seeds for each number of rows read."""
    summary = {}
    for read in map(str, READS):
        shares = [row["nearest_read"][read] for row in rows]
        spread = statistics.stdev(shares) if len(shares) > 1 else 0.0
        summary[read] = {"mean": statistics.mean(shares), "standard_deviation": spread}
    return summary


def main() -> None:
    """Train the missing models, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="folder of the data")
    parser.add_argument("--models", type=Path, required=True, metavar="DIR", help="folder of trained models")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="JSON file for the results")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: %(default)s)")
    parser.add_argument("--by", choices=("ideal", "index"), default="ideal", help="whose order (default: %(default)s)")
    arguments = parser.parse_args()
    vectors = open_vector_set(arguments.data)
    read_by = nearest_read if arguments.by == "ideal" else index_read
    rows: dict[int, list[dict[str, Any]]] = {}
    for seed in range(arguments.seeds):
        for substrings, model in models_of(arguments.by, seed).items():
            encoder = model.trained(vectors, arguments.models).encoder
            found = read_by(encoder, vectors, substrings=substrings, reads=READS)
            row = {"seed": seed, "nearest_read": {str(read): share for read, share in found.items()}}
            rows.setdefault(substrings, []).append(row)
            print(substrings, row, flush=True)
        told = {"data": vectors.name, "n_queries": len(vectors.queries), "provenance": provenance(seed=0)}
        if arguments.by == "ideal":
            write_json(arguments.out, {**told, "rows": rows[FINE], "summary": summary_of(rows[FINE])})
        else:
            by_substrings = {
                f"{substrings} substrings": {"rows": some, "summary": summary_of(some)}
                for substrings, some in rows.items()
            }
            write_json(arguments.out, {**told, **by_substrings})


if __name__ == "__main__":
    main()
