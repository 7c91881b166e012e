"""Choose the settings of the methods of table 1 by trials on rows kept aside from those to learn from.

    python -m research.trials.image_trials --fine-tune --data DIR --weights FILE --size 160
    python -m research.trials.image_trials --features features.npz --data DIR --weights FILE

The first form fine-tunes the whole network for a few epochs. Every method and length has the same 14 trials: two
settings of its loss times two rates of the backbone; then, each time from the best so far, higher rates of the head,
smaller groups, four more settings of the loss, and other rates of the backbone. The second form trains a linear head on
frozen features of the backbone, which are computed once and kept: two settings of the loss times two rates of the head.
No trial uses the queries of the table. Of the 10,000 rows to learn from, 8,000 are trained on and 500 are queries; the
database is the other 1,500 and as many that are trained on. MAP counts the first twentieth of it, about the same share
as 1,000 rows of the table's database.

The choice of candidates is itself a choice. For other methods they are the values of their papers and values around
them. DHN's mean per kind of pair (without it, DHN is worse by half) and HDT's radii and sharpness were found by looking
at the same rows before: about sixty times for HDT, about fifteen for the others together. HDT's guide and its pull,
which moves codes towards those of classes, were found on frozen features of the same rows. Every method is also tried
with what helped HDT there but is not its own: higher rates of the head and smaller groups.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget._files import write_atomically
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn.networks.standardize import Standardize
from research.comparators import FineTuner
from research.paper.image_bench import ImageBench, open_bench
from research.paper.image_methods import LENGTHS, METHODS, Setting
from research.paper.image_runs import Run
from research.paper.image_scores import scores
from research.paper.image_tasks import LabelledImages, Task
from research.threads import one_thread

Record = dict[str, Any]
# Settings to try next, given the best so far.
Stage = Callable[[Setting], list[Setting]]

# Two settings of the loss, for every method and length; rates of the head or of the backbone by two.
RATES = (1e-3, 3e-3)
BACKBONE_RATES = (0.02, 0.05)
# HDT has class proxies where the whole network is tuned; of weights 4 and 12, this was the better one at every length.
PROXY_WEIGHT = 12.0
GUIDES = (0, 64)
PULL = 0.5
LOSSES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "HDT": lambda n_bits: [{"dissimilar_weight": 200.0}, {"dissimilar_weight": 50.0}],
    "DBR": lambda n_bits: [{"slope": 1.0}, {"slope": 0.5}],
    "HashNet": lambda n_bits: [{"product_scale": 10.0}, {"product_scale": 20.0}],
    "DHN": lambda n_bits: [
        {"quantization_weight": 0.1, "pair_average": "per_kind"},
        {"quantization_weight": 0.01, "pair_average": "per_kind"},
    ],
    "CSQ": lambda n_bits: [{"quantization_weight": 0.05}, {"quantization_weight": 0.0005}],
    "OrthoHash": lambda n_bits: [{}, {"scale": 2 * n_bits**0.5}],
}
# Four more changes, each made to the best so far: of the loss, or of the pull.
CHANGES: dict[str, Callable[[int], list[dict[str, Any]]]] = {
    "HDT": lambda n_bits: [
        {"proxy_scale": 0.5 * n_bits**0.5},
        {"sharpness": 1.5},
        {"likeness": None},
        {"pull": 2 * PULL},
    ],
    "DBR": lambda n_bits: [{"slope": slope} for slope in (0.25, 0.7, 1.4, 2.0)],
    "HashNet": lambda n_bits: [{"product_scale": scale} for scale in (2.5, 5.0, 7.0, 14.0)],
    "DHN": lambda n_bits: [{"quantization_weight": weight} for weight in (0.0, 0.03, 0.3, 1.0)],
    "CSQ": lambda n_bits: [{"quantization_weight": weight} for weight in (0.0001, 0.2, 0.5, 1.0)],
    "OrthoHash": lambda n_bits: [
        {"scale": 0.5 * n_bits**0.5},
        {"scale": 0.7 * n_bits**0.5},
        {"margin": 0.1},
        {"margin": 0.3},
    ],
}
HEAD_EPOCHS = 15.0
TUNING_EPOCHS = 3.0
RANKED_SHARE = 0.05


def tuning_stages(method: str, n_bits: int) -> list[Stage]:
    """Return the trials of the first form. HDT has class proxies, codes pulled to theirs, and a guide or none."""
    proxies = [{"proxy_weight": PROXY_WEIGHT, "guide_bits": guide} for guide in GUIDES]
    losses = proxies if method == "HDT" else LOSSES[method](n_bits)
    pull = PULL if method == "HDT" else 0.0
    return [
        lambda _: [Setting(backbone_rate=rate, pull=pull, loss=loss) for loss in losses for rate in BACKBONE_RATES],
        lambda best: [head_faster(best, 2.0), head_faster(best, 4.0)],
        lambda best: [replace(best, group_size=size) for size in (2, 1)],
        lambda best: [_changed(best, change) for change in CHANGES[method](n_bits)],
        lambda best: [replace(best, backbone_rate=best.backbone_rate * factor) for factor in (0.5, 2.0)],
    ]


def head_faster(setting: Setting, factor: float) -> Setting:
    """Return a setting in which the head learns faster, and the backbone as fast as before."""
    return replace(
        setting,
        learning_rate=setting.learning_rate * factor,
        backbone_rate=setting.backbone_rate / factor,
    )


def _changed(setting: Setting, change: Mapping[str, Any]) -> Setting:
    own = {name: value for name, value in change.items() if name == "pull"}
    return replace(setting, loss={**setting.loss, **{k: v for k, v in change.items() if k not in own}}, **own)


def head_stages(method: str, n_bits: int) -> list[Stage]:
    """Return the trials of the second form."""
    return [lambda _: [Setting(learning_rate=rate, loss=loss) for loss in LOSSES[method](n_bits) for rate in RATES]]


def features_bench(path: Path, data: Path | None, weights: Path | None, size: int) -> ImageBench:
    """Return a bench whose images are features of the backbone, read from a file or computed and kept there."""
    if not path.exists():
        if data is None or weights is None:
            raise SystemExit(f"{path} does not exist; give --data and --weights to make it")
        bench = open_bench(data, weights, size=size)
        rows = bench.images.trained
        _, tuner = bench.prepared("whole")
        content = io.BytesIO()
        np.savez(content, features=tuner.features(rows).astype(np.float16), labels=bench.images.labels[rows])
        write_atomically(path, content.getvalue())
    with path.open("rb") as file, np.load(file, allow_pickle=False) as kept:
        features: Any = kept["features"].astype(np.float32)
        labels = kept["labels"]
    source = LabelledImages(features, labels, len(features), np.arange(len(features)))

    def tuner_of(task: Task) -> FineTuner:
        return FineTuner(task.source.images, Standardize((features.shape[1],)))

    return ImageBench(lambda: source, tuner_of)


class OutOfTimeError(Exception):
    """The given minutes are over."""


class Trials:
    """Trials kept in a file, which is written after each; a trial in it is not done again.

    Args:
        bench: the images and the tuner.
        out: the file.
        epochs, size: see `Run`.
        until: time of `time.monotonic` after which no trial is begun.
    """

    def __init__(self, bench: ImageBench, out: Path, *, epochs: float, size: int, until: float) -> None:
        self.bench = bench
        self.out = out
        self.epochs = epochs
        self.size = size
        self.until = until
        self.records = _kept_records(out)

    def search(self, method: str, n_bits: int, stages: Sequence[Stage]) -> None:
        """Try the settings of each stage in turn; a stage starts from the best of those before."""
        tried: list[Record] = []
        best = Setting()
        for stage in stages:
            tried += [self.record(method, n_bits, setting) for setting in stage(best)]
            best = Setting(**max(tried, key=_map)["setting"])

    def record(self, method: str, n_bits: int, setting: Setting) -> Record:
        """Return the result of a trial, done now unless it was done before."""
        trial = {
            "method": method,
            "n_bits": n_bits,
            "setting": json.loads(json.dumps(asdict(setting))),
            "epochs": self.epochs,
            "size": self.size,
        }
        for known in self.records:
            if trial.items() <= known.items():
                return known
        if time.monotonic() > self.until:
            raise OutOfTimeError
        start = time.perf_counter()
        facts, codes = self.bench.do(Run(method, n_bits, "held_out", setting, self.epochs, self.size))
        made = provenance(seed=0)
        found = {
            **trial,
            "commit": made["commit"],
            "training_seconds": facts["training_seconds"],
            "images_per_second": facts["images_per_second"],
            **scores(codes, ranks=round(RANKED_SHARE * len(codes.database)))["database"],
        }
        self.records.append(found)
        write_json(self.out, {"provenance": made, "trials": self.records, "winners": self.winners()})
        changes = {name: value for name, value in asdict(setting).items() if value != getattr(Setting(), name)}
        print(
            f"{method:<10} {n_bits:<3} MAP {found['map']:.3f}  P/R {found['precision']:.2f}/{found['recall']:.3f}  "
            f"{time.perf_counter() - start:.1f} s  {facts['images_per_second']:,.0f} images/s  {changes}",
            flush=True,
        )
        return found

    def winners(self) -> list[Record]:
        """Return the best trial of each method and length."""
        best: dict[tuple[str, int], Record] = {}
        for record in self.records:
            key = record["method"], record["n_bits"]
            if key not in best or _map(record) > _map(best[key]):
                best[key] = record
        return list(best.values())


def _map(record: Record) -> float:
    return float(record["map"])


def _kept_records(path: Path) -> list[Record]:
    try:
        records: list[Record] = json.loads(path.read_text(encoding="utf-8"))["trials"]
    except (OSError, ValueError, KeyError):
        return []
    return records


def main() -> None:
    """Run the trials that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the data")
    parser.add_argument("--weights", type=Path, help="file of the network's weights")
    parser.add_argument(
        "--features", type=Path, default=Path("out/features.npz"), help="file of the features, read if it exists"
    )
    parser.add_argument(
        "--fine-tune", action="store_true", help="train the whole network, not only a head on frozen features"
    )
    parser.add_argument("--methods", nargs="*", default=list(METHODS), help="only these methods")
    parser.add_argument("--bits", nargs="*", type=int, default=list(LENGTHS), help="only these code lengths")
    parser.add_argument("--epochs", type=float, help="how many times each image is seen")
    parser.add_argument(
        "--size",
        type=int,
        default=224,
        help="side in pixels of the images that the network sees (default: %(default)s)",
    )
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no trial after this many minutes")
    parser.add_argument(
        "--out", type=Path, default=Path("research/results/table1/trials.json"), help="JSON file for the results"
    )
    given = parser.parse_args()
    if given.fine_tune:
        bench = open_bench(given.data, given.weights, size=given.size)
    else:
        bench = features_bench(given.features, given.data, given.weights, given.size)
    trials = Trials(
        bench,
        given.out,
        epochs=given.epochs or (TUNING_EPOCHS if given.fine_tune else HEAD_EPOCHS),
        size=given.size,
        until=time.monotonic() + 60 * given.minutes,
    )
    stages = tuning_stages if given.fine_tune else head_stages
    with contextlib.nullcontext() if given.fine_tune else one_thread(), contextlib.suppress(OutOfTimeError):
        for n_bits in given.bits:
            for method in given.methods:
                trials.search(method, n_bits, stages(method, n_bits))
        print("all trials are done")


if __name__ == "__main__":
    main()
