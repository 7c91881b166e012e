"""Which settings the methods of table 1 are measured with: trials on rows kept aside from those to learn from.

    python benchmarks/image_trials.py --fine-tune --data DIR --weights FILE --size 160 --bits 32 64
    python benchmarks/image_trials.py --features features.npz --data DIR --weights FILE
    python benchmarks/image_trials.py --pilot --data DIR --weights FILE --minutes 4

The first form fine-tunes the whole network for a few epochs, with the same number of trials for every method and
length: two choices of what the loss has to set, times two rates of the backbone. The second trains a linear head on
frozen features of the backbone, which are computed once and kept: two choices times two rates of the head. The third
is for looking around: one change of HDT's setting at a time. None looks at the queries: of the 10,000 rows to learn
from, 8,000 are trained on, 1,500 are the database and 500 the queries.

What the few candidates are is itself a choice. Those of other methods are their papers' and one more value; DHN's mean
per kind of pair, without which it is worse by half, and HDT's radii and sharpness were found by looking at the same
rows before: some thirty times for HDT, some fifteen for the others together. So was its pull toward class proxies,
with the third form.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.files import write_atomically
from hamtarget.learn import FineTuner, one_thread
from hamtarget.learn.networks import Standardize
from hamtarget.paper.image_bench import ImageBench, open_bench
from hamtarget.paper.image_methods import LENGTHS, METHODS, Setting, chosen_setting
from hamtarget.paper.image_runs import Run
from hamtarget.paper.image_scores import scores
from hamtarget.paper.image_tasks import LabelledImages, Task
from hamtarget.paper.provenance import provenance, write_json

Trial = tuple[str, int, Setting]

# Two choices of what a loss has to set, for every method and length; rates of the head or of the backbone by two.
RATES = (1e-3, 3e-3)
BACKBONE_RATES = (0.02, 0.05)
PROXY_WEIGHTS = (4.0, 12.0)
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
HEAD_EPOCHS = 15.0
PILOT_EPOCHS = 3.0


def tuned_trials(methods: Sequence[str], lengths: Sequence[int]) -> Iterator[Trial]:
    """The trials of the first form; HDT has a pull toward class proxies in them, as strong as one of two weights."""
    for n_bits in lengths:
        for method in methods:
            losses = LOSSES[method](n_bits)
            if method == "HDT":
                losses = [{"proxy_weight": weight} for weight in PROXY_WEIGHTS]
            for loss in losses:
                for factor in BACKBONE_RATES:
                    yield method, n_bits, Setting(backbone_rate=factor, loss=loss)


def head_trials(methods: Sequence[str], lengths: Sequence[int]) -> Iterator[Trial]:
    """The trials of the second form."""
    for method in methods:
        for n_bits in lengths:
            for loss in LOSSES[method](n_bits):
                for rate in RATES:
                    yield method, n_bits, Setting(learning_rate=rate, loss=loss)


def pilot_trials(n_bits: int) -> Iterator[Trial]:
    """The trials of the third form: HDT as it is chosen, then each of its settings changed."""
    base = chosen_setting("HDT", n_bits)
    weight = {16: 50.0}.get(n_bits, 200.0)
    yield "HDT", n_bits, base
    for factor in (0.4, 2.0, 4.0):
        yield "HDT", n_bits, replace(base, loss={**base.loss, "dissimilar_weight": factor * weight})
    for sharpness in (1.5, 3.0):
        yield "HDT", n_bits, replace(base, loss={**base.loss, "sharpness": sharpness})
    yield "HDT", n_bits, replace(base, loss={**base.loss, "proxy_weight": 2.0 * base.loss["proxy_weight"]})
    yield "HDT", n_bits, replace(base, learning_rate=4e-3, backbone_rate=0.025)
    for group in (2, 8):
        yield "HDT", n_bits, replace(base, group_size=group)
    dense = tuple(range(0, n_bits * 5 // 16 + 1, max(1, n_bits // 16)))
    yield "HDT", n_bits, replace(base, loss={**base.loss, "radius": dense})


def features_bench(path: Path, data: Path | None, weights: Path | None, size: int) -> ImageBench:
    """A bench whose images are features of the backbone, from a file or computed and put there."""
    if not path.exists():
        if data is None or weights is None:
            raise SystemExit(f"{path} is not there; give --data and --weights to make it")
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


def done_before(path: Path) -> list[dict[str, Any]]:
    """Trials that a file holds."""
    try:
        records: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["trials"]
    except (OSError, ValueError, KeyError):
        return []
    return records


def winners(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The trial of the highest MAP for each method and length."""
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for record in records:
        key = record["method"], record["n_bits"]
        if key not in best or record["map"] > best[key]["map"]:
            best[key] = record
    return list(best.values())


def run_trials(
    trials: Iterator[Trial], bench: ImageBench, out: Path, *, epochs: float, size: int, until: float
) -> None:
    """Do the trials that `out` does not hold; it is written after each."""
    records = done_before(out)
    known = {
        json.dumps([r["method"], r["n_bits"], r["setting"], r["epochs"], r["size"]], sort_keys=True) for r in records
    }
    for method, n_bits, setting in trials:
        key = json.dumps([method, n_bits, asdict(setting), epochs, size], sort_keys=True)
        if key in known:
            continue
        if time.monotonic() > until:
            print("out of time; call again for the rest")
            break
        start = time.perf_counter()
        facts, codes = bench.do(Run(method, n_bits, "held_out", setting, epochs, size))
        found = scores(codes)["database"]
        record = {
            "method": method,
            "n_bits": n_bits,
            "setting": asdict(setting),
            "epochs": epochs,
            "size": size,
            "training_seconds": facts["training_seconds"],
            "images_per_second": facts["images_per_second"],
            **found,
        }
        records.append(record)
        told = {"provenance": provenance(seed=0), "trials": records, "winners": winners(records)}
        write_json(out, told)
        changes = {name: value for name, value in asdict(setting).items() if value != getattr(Setting(), name)}
        print(
            f"{method:<10} {n_bits:<3} MAP {found['map']:.3f}  P/R {found['precision']:.2f}/{found['recall']:.3f}  "
            f"{time.perf_counter() - start:.1f} s  {facts['images_per_second']:,.0f} images/s  {changes}",
            flush=True,
        )


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--features", type=Path, default=Path("out/features.npz"))
    parser.add_argument("--fine-tune", action="store_true")
    parser.add_argument("--pilot", action="store_true")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--bits", nargs="*", type=int, default=list(LENGTHS))
    parser.add_argument("--epochs", type=float)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--minutes", type=float, default=1e6)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/table1/trials.json"))
    given = parser.parse_args()
    until = time.monotonic() + 60 * given.minutes
    if given.fine_tune or given.pilot:
        bench = open_bench(given.data, given.weights, size=given.size)
        trials = tuned_trials(given.methods, given.bits)
        if given.pilot:
            trials = itertools.chain.from_iterable(map(pilot_trials, given.bits))
        run_trials(trials, bench, given.out, epochs=given.epochs or PILOT_EPOCHS, size=given.size, until=until)
        return
    bench = features_bench(given.features, given.data, given.weights, given.size)
    epochs = given.epochs or HEAD_EPOCHS
    with one_thread():
        trials = head_trials(given.methods, given.bits)
        run_trials(trials, bench, given.out, epochs=epochs, size=given.size, until=until)


if __name__ == "__main__":
    main()
