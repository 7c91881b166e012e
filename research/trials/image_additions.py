"""Offer what HDT has beside its pair loss to every method with codes of classes, by trials on rows kept aside.

    python -m research.trials.image_additions --data DIR --weights FILE --methods OrthoHash CSQ --out FILE

The additions: codes of classes that are nearer where classes look alike (`codes_by_likeness`), a guide of 64 bits
(`GuidedLoss`), and the pull (`ClassPull`) with five weights. Each method and length starts from the setting that
`research.trials.image_trials` chose, and has the same 20 trials: four trainings, each encoded with every weight of the
pull. The rows, and the share of them that MAP counts, are those of `image_trials`; no trial uses the queries of the
table. `winners` in the file are settings as `table1 --settings` reads them.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from hamtarget.evaluation.provenance import provenance, write_json
from research.paper.image_bench import ImageBench, open_bench
from research.paper.image_methods import LENGTHS, PULLS, Setting, chosen_setting, read_settings
from research.paper.image_runs import Run
from research.paper.image_scores import scores
from research.trials.image_trials import RANKED_SHARE

METHODS = ("HDT", "DBR", "CSQ", "OrthoHash")
LIKENESS = (None, 1.0)
GUIDES = (0, 64)
EPOCHS = 6.0


def candidates(method: str, n_bits: int) -> list[Setting]:
    """Return the settings to train with, without a pull."""
    start = replace(chosen_setting(method, n_bits), pull=0.0)
    return [
        replace(start, loss={**start.loss, "likeness": likeness, "guide_bits": guide})
        for likeness, guide in product(LIKENESS, GUIDES)
    ]


def try_setting(bench: ImageBench, run: Run) -> list[dict[str, Any]]:
    """Train once, and return a record for each weight of the pull."""
    pulled = [replace(run, setting=replace(run.setting, pull=pull)) for pull in PULLS]
    records = []
    for one, (facts, codes) in zip(pulled, bench.do_pulled(run, pulled), strict=True):
        figures = scores(codes, ranks=round(RANKED_SHARE * len(codes.database)))["database"]
        records.append(
            {
                "method": run.method,
                "n_bits": run.n_bits,
                "setting": asdict(one.setting),
                "epochs": run.epochs,
                "size": run.size,
                "training_seconds": facts["training_seconds"],
                **figures,
            }
        )
    return records


def winners(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the best record of each method and length."""
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for record in records:
        key = record["method"], record["n_bits"]
        if key not in best or record["map"] > best[key]["map"]:
            best[key] = record
    return list(best.values())


def main() -> None:
    """Run the trials that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data")
    parser.add_argument("--weights", type=Path, required=True, help="file of the network's weights")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS, help="only these methods")
    parser.add_argument("--bits", nargs="*", type=int, default=list(LENGTHS), help="only these code lengths")
    parser.add_argument("--winners", type=Path, nargs="*", help="train only the settings that won in these files")
    parser.add_argument("--epochs", type=float, default=EPOCHS, help="how often each image is seen")
    parser.add_argument("--size", type=int, default=160, help="pixels of a side that the network sees")
    parser.add_argument("--seed", type=int, default=0, help="of batches, augmentation and the head's first weights")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode images")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the results")
    given = parser.parse_args()
    bench = open_bench(given.data, given.weights, size=given.size, workers=given.workers)
    won = read_settings(given.winners) if given.winners else None
    records: list[dict[str, Any]] = []
    for n_bits, method in product(given.bits, given.methods):
        for setting in candidates(method, n_bits) if won is None else [replace(won[method, n_bits], pull=0.0)]:
            started = time.perf_counter()
            run = Run(method, n_bits, "held_out", setting, given.epochs, given.size, given.seed)
            tried = try_setting(bench, run)
            records += tried
            made = provenance(seed=given.seed)
            write_json(given.out, {"provenance": made, "trials": records, "winners": winners(records)})
            added = {name: setting.loss[name] for name in ("likeness", "guide_bits")}
            by_pull = " ".join(f"{record['map']:.3f}" for record in tried)
            print(f"{method:<10} {n_bits:<3} MAP {by_pull}  {time.perf_counter() - started:.1f} s  {added}", flush=True)


if __name__ == "__main__":
    main()
