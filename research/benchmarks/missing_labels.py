"""Measure what is learned from rows without a label: of other classes, of the labelled ones, or of both.

    python -m research.datasets.sentences data_full.json --model all-MiniLM-L6-v2 --out clinc.npz
    python -m research.benchmarks.missing_labels clinc.npz --out clinc.json

FILE is as `research.benchmarks.unseen_classes` takes it, and so is the measure, MAP@100 by codes. In each of three
cases, what is learned from the rows with a label and from all is compared:

- `other classes`: two thirds of the classes are labelled.
- `unknown`: all classes are labelled, a share of their rows (`--share`).
- `both`: two thirds of the classes, half of their rows.

The ways to learn:

- `labelled rows`: `HashEncoder().fit` with the rows that have a label.
- `several radii`: the same rows, with the loss that `PartlyLabelled` learns by.
- `all different`: all rows, those without a label as different from all others, with the loss of the first way.
- `default`: `HashEncoder().fit` with all rows and None for those without a label.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from hamtarget.errors import CrowdedCodesWarning
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HammingTargetLoss, HashEncoder, Labels
from hamtarget.learn.fitting.objectives import PartlyLabelled
from hamtarget.learn.fitting.part_labels import LeftOutWarning
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.losses.keep_neighbors import KeepNeighbors
from research.benchmarks.unseen_classes import NO_LABEL, Task, by_codes, over_seeds, read

CASES = ("other classes", "unknown", "both")
WAYS = ("labelled rows", "several radii", "all different", "default")
SHARE_OF_BOTH = 0.5


def case_of(task: Task, case: str, seed: int, share: float) -> tuple[Task, NDArray[np.bool_]]:
    """Return the task of a case, and which of its rows have a label."""
    drawn = np.random.default_rng(seed).random(len(task.rows))
    if case == "other classes":
        return task, task.labelled
    if case == "both":
        return task, task.labelled & (drawn < SHARE_OF_BOTH)
    everything = replace(task, labelled=np.ones_like(task.labelled), query_labelled=np.ones_like(task.query_labelled))
    return everything, drawn < share


def figures_of(task: Task, has_label: NDArray[np.bool_], way: str, *, n_bits: int, seed: int) -> dict[str, float]:
    """Return MAP@100 by codes that are learned in a way, of queries of labelled classes and of others."""
    alone = way in ("labelled rows", "several radii")
    kept = has_label if alone else np.ones_like(has_label)
    loss: str | BatchLoss = "auto"
    if way == "several radii":
        loss = PartlyLabelled(n_bits).pair_loss()
    elif way == "all different":
        loss = KeepNeighbors(HammingTargetLoss(n_bits, 2, dissimilar_weight=30.0))
    similar = Labels(np.where(has_label, task.labels, NO_LABEL)[kept], unlabelled=NO_LABEL)
    begun = time.process_time()
    encoder = HashEncoder(n_bits, loss, seed=seed, device="cpu").fit(task.rows[kept], similar)
    seconds = time.process_time() - begun
    seen, unseen = by_codes(encoder.logits(task.rows), encoder.logits(task.queries), task)
    found = {"labelled classes": seen, "cpu seconds": seconds}
    return found if np.isnan(unseen) else {**found, "others": unseen}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE", help="NumPy file with vectors, labels and split")
    parser.add_argument("--bits", type=int, default=64, help="bits of a code (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each case (default: %(default)s)")
    parser.add_argument("--share", type=float, default=0.25, help="labelled rows of `unknown` (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the results")
    given = parser.parse_args()
    for category in (CrowdedCodesWarning, LeftOutWarning):
        warnings.simplefilter("ignore", category)
    torch.set_num_threads(1)
    runs: dict[str, dict[str, list[dict[str, float]]]] = {case: {way: [] for way in WAYS} for case in CASES}
    for seed in range(given.seeds):
        whole = read(given.file, seed)
        for case, ways in runs.items():
            task, has_label = case_of(whole, case, seed, given.share)
            for way, found in ways.items():
                found.append(figures_of(task, has_label, way, n_bits=given.bits, seed=seed))
                shown = ", ".join(f"{name} {value:.3g}" for name, value in found[-1].items())
                print(f"seed {seed}, {case}, {way}: {shown}", flush=True)
    if given.out is not None:
        written = {
            "provenance": provenance(seed=0),
            "bits": given.bits,
            "share": given.share,
            "rows": len(whole.rows),
            "queries": len(whole.queries),
            "seeds": given.seeds,
            **{case: over_seeds(ways) for case, ways in runs.items()},
            "by_seed": runs,
        }
        given.out.parent.mkdir(parents=True, exist_ok=True)
        write_json(given.out, written)


if __name__ == "__main__":
    main()
