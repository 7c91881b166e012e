"""Settle the settings of each method by trainings as long as the table's, on rows kept aside.

    results=research/results/table1
    python -m research.trials.long_settings --data DIR --weights FILE --methods DBR --out $results/settled/DBR.json \
        --settings $results/additions/{CSQ,DBR,HDT,OrthoHash}.json --known $results/additions/long.json

Short trials choose rates that are too high for a long training, and pulls that are too strong. So the winner of
`research.trials.image_additions` is trained for 24 epochs here, then with half the rate of the backbone, and once more
with half of that as long as it helps. Each training is encoded with every weight of the pull. The rule is the same for
every method and length. Rows, and the share of them that MAP counts, are those of `image_additions`; no trial uses the
queries of the table. `winners` in the file are settings as `long_table --settled` reads them.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hamtarget.evaluation.provenance import provenance, write_json
from research.paper.image_bench import open_bench
from research.paper.image_methods import LENGTHS, PULLS, Setting, read_settings
from research.paper.image_runs import Run
from research.trials.image_additions import METHODS, try_setting, winners

Record = dict[str, Any]

EPOCHS = 24.0
SIZE = 160
HALVINGS = 2


class OutOfTimeError(Exception):
    """The given minutes are over."""


def settle(start: Setting, attempt: Callable[[Setting], list[Record]]) -> list[Record]:
    """Train with ever lower rates of the backbone as long as that helps, and return all records.

    Args:
        start: the setting to begin with, without a pull.
        attempt: returns the records of a training, one for each weight of the pull.
    """
    tried: list[Record] = []
    best = float("-inf")
    for halving in range(1 + HALVINGS):
        records = attempt(replace(start, backbone_rate=start.backbone_rate / 2**halving))
        tried += records
        found = max(record["map"] for record in records)
        if found <= best:
            break
        best = found
    return tried


def known_records(records: Sequence[Record], run: Run) -> list[Record]:
    """Return the records of a training among some: one for each weight of the pull, or none at all."""
    found = [
        record
        for record in records
        if (record["method"], record["n_bits"], record["epochs"], record["size"])
        == (run.method, run.n_bits, run.epochs, run.size)
        and replace(Setting(**record["setting"]), pull=0.0) == run.setting
    ]
    return found if len(found) == len(PULLS) else []


def main() -> None:
    """Run the trials that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data")
    parser.add_argument("--weights", type=Path, required=True, help="file of the network's weights")
    parser.add_argument("--settings", type=Path, nargs="+", required=True, help="files of image_additions")
    parser.add_argument("--known", type=Path, nargs="*", default=[], help="files of the same trials, not done again")
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=METHODS, help="only these methods")
    parser.add_argument("--bits", nargs="*", type=int, default=list(LENGTHS), help="only these code lengths")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no training that would end later")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode images")
    parser.add_argument("--out", type=Path, required=True, help="JSON file for the results")
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    bench = open_bench(given.data, given.weights, size=SIZE, workers=given.workers)
    starts: Mapping[tuple[str, int], Setting] = read_settings(given.settings)
    known = [_trials(path) for path in (given.out, *given.known) if path.exists()]
    records: list[Record] = []
    longest = 0.0

    def attempt(method: str, n_bits: int, setting: Setting) -> list[Record]:
        nonlocal longest
        run = Run(method, n_bits, "held_out", setting, EPOCHS, SIZE)
        found = next(filter(None, (known_records(trials, run) for trials in known)), [])
        started = time.monotonic()
        if not found:
            if started + longest > until:
                raise OutOfTimeError
            found = try_setting(bench, run)
            longest = max(longest, time.monotonic() - started)
        records.extend(found)
        write_json(given.out, {"provenance": provenance(seed=0), "trials": records, "winners": winners(records)})
        by_pull = " ".join(f"{record['map']:.3f}" for record in found)
        took = time.monotonic() - started
        print(f"{method:<10} {n_bits:<3} MAP {by_pull}  {took:.1f} s  rate {setting.backbone_rate:g}", flush=True)
        return found

    try:
        for n_bits in given.bits:
            for method in given.methods:
                settle(replace(starts[method, n_bits], pull=0.0), partial(attempt, method, n_bits))
    except OutOfTimeError:
        # The next call has all trials again, in the same order: a file of a part of them is not complete.
        print("time is over; run it again to go on", flush=True)
        raise SystemExit(1) from None
    print("all trials are done")


def _trials(path: Path) -> list[Record]:
    trials: list[Record] = json.loads(path.read_text(encoding="utf-8"))["trials"]
    return trials


if __name__ == "__main__":
    main()
