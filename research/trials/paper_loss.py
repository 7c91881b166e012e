"""Give the paper's own loss trials of its own on images, on rows kept aside from those to learn from.

    python -m research.trials.paper_loss --data DIR --weights FILE --out research/results/table1/paper_loss

The loss is the paper's: the angle between logits, pairs alone, one radius of 2. What the paper leaves open, or chose
for other images, is tried: lambda and what `Avg` means (six trials); then, each time from the best so far, higher rates
of the head, other batches and groups, and other rates of the backbone. These are 14 trials of three epochs for each
length, as many as every method of table 1 has, with the same rows (`research.trials.image_trials`).

Short trials do not tell how long ones end. So the two best of each length, and the paper's setting as printed, are then
trained for 12 epochs. `short.json` and `long.json` hold the trials; `winners` in the second are what
`research.paper.long_table --paper` trains to the end.
"""

from __future__ import annotations

import argparse
import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from research.paper.image_bench import open_bench
from research.paper.image_methods import LENGTHS, PAPER_SETTING, Setting
from research.trials.image_trials import TUNING_EPOCHS, OutOfTimeError, Stage, Trials, head_faster

METHOD = "HDT"
WEIGHTS = (2000.0, 300.0, 100.0)
AVERAGES = ("per_kind", "all_pairs")
# Sizes of batch and group.
BATCHES = ((128, 4), (256, 2), (256, 4), (512, 8))
LONG_EPOCHS = 12.0
FINALISTS = 2


def stages() -> list[Stage]:
    """Return the short trials."""
    return [
        lambda _: [_with_loss(weight, average) for average in AVERAGES for weight in WEIGHTS],
        lambda best: [head_faster(best, 2.0), head_faster(best, 4.0)],
        lambda best: [replace(best, batch_size=batch, group_size=group) for batch, group in BATCHES],
        lambda best: [replace(best, backbone_rate=best.backbone_rate * factor) for factor in (0.5, 2.0)],
    ]


def _with_loss(weight: float, average: str) -> Setting:
    return replace(PAPER_SETTING, loss={**PAPER_SETTING.loss, "dissimilar_weight": weight, "pair_average": average})


def finalists(records: list[dict[str, Any]], n_bits: int) -> list[Setting]:
    """Return the settings of a length to train for longer: the best of the short trials, and the paper's."""
    tried = sorted((record for record in records if record["n_bits"] == n_bits), key=lambda record: -record["map"])
    best = [Setting(**record["setting"]) for record in tried[:FINALISTS]]
    printed = _with_loss(WEIGHTS[0], AVERAGES[0])
    return best if printed in best else [*best, printed]


def main() -> None:
    """Run the trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the data")
    parser.add_argument("--weights", type=Path, required=True, help="file of the network's weights")
    parser.add_argument("--bits", nargs="*", type=int, default=list(LENGTHS), help="only these code lengths")
    parser.add_argument("--size", type=int, default=160, help="pixels of a side that the network sees")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no trial after this many minutes")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode images")
    parser.add_argument("--out", type=Path, required=True, help="folder for short.json and long.json")
    given = parser.parse_args()
    bench = open_bench(given.data, given.weights, size=given.size, workers=given.workers)
    until = time.monotonic() + 60 * given.minutes
    short = Trials(bench, given.out / "short.json", epochs=TUNING_EPOCHS, size=given.size, until=until)
    longer = Trials(bench, given.out / "long.json", epochs=LONG_EPOCHS, size=given.size, until=until)
    with contextlib.suppress(OutOfTimeError):
        for n_bits in given.bits:
            short.search(METHOD, n_bits, stages())
            for setting in finalists(short.records, n_bits):
                longer.record(METHOD, n_bits, setting)
        print("all trials are done")


if __name__ == "__main__":
    main()
