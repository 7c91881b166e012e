"""Table 1, trained to the end: 24 epochs, three seeds, and HDT's additions offered to every method that can take them.

    python -m research.paper.long_table --data DIR --weights FILE --settings FILE... --settled FILE... --parts settled
    python -m research.paper.long_table --settled FILE...

The first form trains what is missing, the second only scores what is there. `chosen` in the results is each method with
the setting that trials of as many epochs settled (`--settled`). Parts, in order of importance:

- `settled`: HDT, DBR, CSQ and OrthoHash, each with its best setting of `research.trials.long_settings`. The last seed's
  codes of 32 and 64 bits are kept with every weight of the pull: how much recall is it worth, at which precision.
- `sizes`: 224 pixels in place of 160, 32 bits: does the order of methods stay.
- `curve`: HDT, DBR and OrthoHash with 6, 12 and 60 epochs, 32 bits: who learns faster, and is 24 enough.
- `pairs`: HDT with pairs alone, with several radii, and with all but pairs: what is the pair loss worth.
- `own`: every method by itself, without likeness, guide and pull.
- `paper`: the paper's own loss, each length with the best setting of `research.trials.paper_loss` (`--paper`).
- `additions`: the four of `settled` with the best settings of the shorter trials, `research.trials.image_additions`.

`sizes`, `curve` and `pairs` have the settings of `settled` and one seed, its last.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np

from hamtarget.errors import HamtargetError, InputError
from hamtarget.evaluation.provenance import provenance, write_json
from research.paper.image_bench import ImageBench, open_bench
from research.paper.image_methods import LENGTHS, METHODS, NAMES, PULLS, Setting, chosen_setting, read_settings
from research.paper.image_runs import Run, is_kept, kept_runs, save_run
from research.paper.image_scores import quick_map, scores
from research.paper.image_table import label
from research.paper.long_curve import Curve, curve_path, draw_curve

EPOCHS = 24.0
SIZE = 160
SEEDS = 3
ADDED = ("HDT", "DBR", "CSQ", "OrthoHash")
CURVE = ("HDT", "DBR", "OrthoHash")
CURVE_EPOCHS = (6.0, 12.0, 60.0)
CURVE_BITS = 32
LARGE_SIZE = 224
# The seed of all that is trained once. Beside it stands the table's training of the same seed.
ONE_SEED = SEEDS - 1
# A radius of 2 bits holds few others at these lengths: a stronger pull finds more, at a precision that may still do.
PULLED_LENGTHS = (32, 64)
# The precision at which look-ups are compared.
LOOK_UP_PRECISION = 0.9
PARTS = ("settled", "sizes", "curve", "pairs", "own", "paper", "additions")
# Seconds that a training may take beyond what its images should: a graph is captured, and codes are made.
_AROUND = 5.0

Settings = Mapping[tuple[str, int], Setting]
# Figures by method and length of code.
Summary = dict[str, dict[str, dict[str, float]]]


@dataclass(frozen=True)
class Training:
    """One training, and the runs that are encoded from it; they differ in the pull alone."""

    runs: tuple[Run, ...]

    def is_done(self, folder: Path) -> bool:
        """Return True if all its runs are kept."""
        return all(is_kept(run, folder) for run in self.runs)


def trainings(
    part: str, settings: Settings, *, settled: Settings | None = None, paper: Settings | None = None
) -> list[Training]:
    """Return the trainings of a part, the first seed first.

    Args:
        part: one of `PARTS`.
        settings: winners of research.trials.image_additions.
        settled: winners of research.trials.long_settings; what they do not have is not trained.
        paper: winners of research.trials.paper_loss; without them, part `paper` has no trainings.

    Raises:
        InputError: there is no such part.
    """
    known = settled or {}
    if part == "settled":
        return [
            _settled(_added(method, n_bits, seed, settings), known[method, n_bits])
            for seed in range(SEEDS)
            for n_bits in LENGTHS
            for method in ADDED
            if (method, n_bits) in known
        ]
    if part == "sizes":
        large = [_settled_run(method, CURVE_BITS, known, f"{LARGE_SIZE}px") for method in ADDED]
        return [_single(replace(run, size=LARGE_SIZE)) for run in large if run]
    if part == "curve":
        return [
            Training(tuple(replace(one, epochs=epochs) for one in (run, _pulled(run, 0.0))))
            for epochs in CURVE_EPOCHS
            for method in CURVE
            if (run := _settled_run(method, CURVE_BITS, known, f"{epochs:g}epochs"))
        ]
    if part == "pairs":
        return [training for n_bits in LENGTHS if ("HDT", n_bits) in known for training in _ablation(n_bits, known)]
    if part == "own":
        return [
            _single(_own(method, n_bits, seed, known))
            for seed in range(SEEDS)
            for n_bits in LENGTHS
            for method in NAMES
            if method not in ADDED or (method, n_bits) in known
        ]
    if part == "paper":
        won = {n_bits: setting for (_, n_bits), setting in (paper or {}).items()}
        return [_single(_run("HDT", n_bits, 0, won[n_bits], "paper")) for n_bits in LENGTHS if n_bits in won]
    if part == "additions":
        return [
            _added(method, n_bits, seed, settings) for seed in range(SEEDS) for n_bits in LENGTHS for method in ADDED
        ]
    raise InputError(f"part is {part!r}; expected one of {', '.join(PARTS)}")


def _run(method: str, n_bits: int, seed: int, setting: Setting, variant: str = "") -> Run:
    # A method that is not trained sees images once.
    epochs = EPOCHS if method in METHODS else 0
    return Run(method, n_bits, "whole", setting, epochs, SIZE, seed, variant)


def _single(run: Run) -> Training:
    return Training((run,))


def _added(method: str, n_bits: int, seed: int, settings: Settings) -> Training:
    """Return a method with its additions, and the same without the pull."""
    setting = settings[method, n_bits]
    return Training(
        (
            _run(method, n_bits, seed, setting, "added"),
            _run(method, n_bits, seed, replace(setting, pull=0.0), "unpulled"),
        )
    )


def _settled(added: Training, setting: Setting) -> Training:
    """Return a method with a settled setting; the run of another part, where that has the same setting."""
    for run in added.runs:
        if run.setting == setting:
            return _single(run)
    run = replace(added.runs[0], setting=setting, variant="settled")
    if run.seed != ONE_SEED or run.n_bits not in PULLED_LENGTHS:
        return _single(run)
    return Training((run, *(_pulled(run, pull) for pull in PULLS if pull != setting.pull)))


def _settled_run(method: str, n_bits: int, settled: Settings, change: str) -> Run | None:
    """Return the run that a change of the settled one is made of, if there is such a setting."""
    setting = settled.get((method, n_bits))
    return None if setting is None else _run(method, n_bits, ONE_SEED, setting, f"settled-{change}")


def _pulled(run: Run, pull: float) -> Run:
    return replace(run, setting=replace(run.setting, pull=pull), variant=f"{run.variant}-pull{pull:g}")


def _own(method: str, n_bits: int, seed: int, settled: Settings) -> Run:
    """Return a method without additions: with its settled rates, or those of the six-epoch table where none are."""
    setting = settled.get((method, n_bits))
    if setting is None:
        return _run(method, n_bits, seed, chosen_setting(method, n_bits))
    # HDT keeps its proxies, spread as far as can be.
    loss = {**setting.loss, "guide_bits": 0, "likeness": None}
    return _run(method, n_bits, seed, replace(setting, pull=0.0, loss=loss), "own")


def _ablation(n_bits: int, settled: Settings) -> list[Training]:
    """Return HDT by pairs within 2 bits, by pairs within several radii, and by all but pairs."""
    setting = settled["HDT", n_bits]
    # Pairs need rows of one class in a batch; proxies do not.
    pairs = replace(setting, group_size=4, pull=0.0, loss={})
    without = replace(setting, loss={**setting.loss, "pairs": False})
    one_radius = replace(pairs, loss={"radius": 2})
    run = _run("HDT", n_bits, ONE_SEED, without, "settled-without-pairs")
    return [
        Training((run, *(_pulled(run, pull) for pull in (0.0,) if pull != setting.pull))),
        _single(_run("HDT", n_bits, ONE_SEED, pairs, "settled-pairs")),
        _single(_run("HDT", n_bits, ONE_SEED, one_radius, "settled-pairs-one-radius")),
    ]


def do_missing(wanted: Iterable[Training], bench_of: Callable[[int], ImageBench], folder: Path, *, until: float) -> int:
    """Do the trainings that `folder` does not hold, as long as there is time, and return how many are left.

    Args:
        wanted: in the order in which to do them.
        bench_of: returns the bench for images of a size.
        folder: folder of the runs.
        until: time of `time.monotonic` after which no training may end, judging by those before.
    """
    missing = [training for training in wanted if not training.is_done(folder)]
    pace = 0.0
    for number, training in enumerate(missing):
        started = time.monotonic()
        run = training.runs[0]
        pixels = run.epochs * run.size**2
        if started + pace * pixels + _AROUND > until:
            return len(missing) - number
        bench = bench_of(run.size)
        done = bench.do_pulled(run, training.runs) if run.method in METHODS else [bench.do(run)]
        for one, (facts, codes) in zip(training.runs, done, strict=True):
            save_run(one, folder, facts, codes)
        if pixels:
            pace = max(pace, done[0][0]["training_seconds"] / pixels)
        told = ", ".join(f"{quick_map(codes):.3f}" for _, codes in done)
        _say(f"{run.name}: MAP {told} (first queries), {time.monotonic() - started:.1f} s")
    return 0


def write_table(folder: Path, out: Path, settled: Settings | None = None) -> dict[str, Any]:
    """Score every run in `folder`, and write and return the records and a summary over seeds.

    Args:
        folder: folder of the runs.
        out: JSON file for the results.
        settled: winners of research.trials.long_settings, of which `chosen` in the results is made.
    """
    records = []
    for facts, codes in kept_runs(folder):
        records.append({**facts, "scores": scores(codes)})
        _say(f"scored {label(facts)} {codes.n_bits} bits, seed {facts['run']['seed']}")
    by_epochs = curve(records, settled or {})
    written = {
        "provenance": provenance(seed=0),
        "chosen": chosen(records, settled or {}),
        "curve": by_epochs,
        "pulls": by_pull(records, settled or {}),
        "summary": summary(records),
        "records": records,
    }
    write_json(out, written)
    if by_epochs:
        draw_curve(by_epochs, curve_path(out))
    return written


def curve(records: Iterable[Mapping[str, Any]], settled: Settings) -> Curve:
    """Return by method, with or without the pull, and by epochs: MAP of settled settings, where `curve` has trained."""
    found: Curve = {}
    for record in records:
        run, figures = record["run"], record["scores"]
        chosen_one = settled.get((run["method"], run["n_bits"]))
        place = (run["task"], run["n_bits"], run["seed"], run["size"])
        if run["method"] not in CURVE or chosen_one is None or place != ("whole", CURVE_BITS, ONE_SEED, SIZE):
            continue
        setting = Setting(**run["setting"])
        for way, pull in (("pulled", chosen_one.pull), ("unpulled", 0.0)):
            if setting == replace(chosen_one, pull=pull):
                found.setdefault(run["method"], {}).setdefault(way, {})[f"{run['epochs']:g}"] = {
                    "map": figures["database"]["map"],
                    "map_never_trained": figures["never_trained"]["map"],
                }
    # One length of training is no curve.
    return {method: ways for method, ways in found.items() if all(len(points) > 1 for points in ways.values())}


def by_pull(records: Iterable[Mapping[str, Any]], settled: Settings) -> dict[str, Any]:
    """Return by method, length and weight of the pull: MAP, and precision and recall within 2 bits; one seed.

    `recall_at_precision` is the recall where a precision of .9 is met, on the line between the two weights around it.
    """
    found: dict[str, Any] = {}
    for record in records:
        run, figures = record["run"], record["scores"]["database"]
        cell = run["method"], run["n_bits"]
        place = (run["task"], run["epochs"], run["seed"], run["size"])
        if cell not in settled or run["n_bits"] not in PULLED_LENGTHS or place != ("whole", EPOCHS, ONE_SEED, SIZE):
            continue
        setting = Setting(**run["setting"])
        if replace(setting, pull=settled[cell].pull) == settled[cell]:
            weights = found.setdefault(cell[0], {}).setdefault(str(cell[1]), {})
            weights[f"{setting.pull:g}"] = {name: figures[name] for name in ("map", "precision", "recall")}
    for lengths in found.values():
        for weights in lengths.values():
            points = sorted((one["precision"], one["recall"]) for one in weights.values())
            precisions, recalls = zip(*points, strict=True)
            if precisions[0] <= LOOK_UP_PRECISION <= precisions[-1]:
                weights["recall_at_precision"] = float(np.interp(LOOK_UP_PRECISION, precisions, recalls))
    return found


def chosen(records: Iterable[Mapping[str, Any]], settled: Settings) -> Summary:
    """Return the cells of each method with its settled setting, whichever part has trained it."""
    by_seed: dict[tuple[str, int], dict[int, Mapping[str, Any]]] = {}
    for record in records:
        run = record["run"]
        cell = run["method"], run["n_bits"]
        ordinary = (run["task"], run["epochs"], run["size"]) == ("whole", EPOCHS, SIZE)
        if ordinary and cell in settled and Setting(**run["setting"]) == settled[cell]:
            by_seed.setdefault(cell, {})[run["seed"]] = record["scores"]
    found: Summary = {}
    for (method, n_bits), scored in sorted(by_seed.items()):
        pull = settled[method, n_bits].pull
        found.setdefault(method, {})[str(n_bits)] = {**_over_seeds(list(scored.values())), "pull": pull}
    return found


def summary(records: Iterable[Mapping[str, Any]]) -> Summary:
    """Return by method and length: seeds, mean and standard deviation of MAP, and means of other figures."""
    by_cell: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for record in records:
        by_cell.setdefault((label(dict(record)), record["run"]["n_bits"]), []).append(record["scores"])
    found: Summary = {}
    for (name, n_bits), cells in sorted(by_cell.items()):
        found.setdefault(name, {})[str(n_bits)] = _over_seeds(cells)
    return found


def _over_seeds(cells: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    maps = [cell["database"]["map"] for cell in cells]
    return {
        "seeds": len(cells),
        "map": mean(maps),
        "deviation": stdev(maps) if len(maps) > 1 else 0.0,
        "map_never_trained": mean(cell["never_trained"]["map"] for cell in cells),
        "precision": mean(cell["database"]["precision"] for cell in cells),
        "recall": mean(cell["database"]["recall"] for cell in cells),
        "independent_bits": mean(cell["database"]["independent_bits"] for cell in cells),
    }


def text(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Return the summary as a table: MAP +- deviation, precision / recall within 2 bits, seeds."""
    lines = []
    for name, by_length in found.items():
        cells = [
            f"{length}: {cell['map']:.3f}+-{cell['deviation']:.3f} {cell['precision']:.2f}/{cell['recall']:.2f} "
            f"[{cell['seeds']:.0f}]"
            for length, cell in sorted(by_length.items(), key=lambda item: int(item[0]))
        ]
        lines.append(f"{name:<28} " + "   ".join(cells))
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m research.paper.long_table",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", type=Path, help="folder of images; without it, only what is there is scored")
    parser.add_argument("--weights", type=Path, help="resnet50_caffe_int8.npz")
    parser.add_argument("--settings", type=Path, nargs="*", default=[], help="files of research.trials.image_additions")
    parser.add_argument("--settled", type=Path, nargs="*", default=[], help="files of research.trials.long_settings")
    parser.add_argument("--paper", type=Path, nargs="*", default=[], help="files of research.trials.paper_loss")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=PARTS, help="only these")
    parser.add_argument("--methods", nargs="*", default=list(NAMES), choices=NAMES, help="only these")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="only so many")
    parser.add_argument("--share", default="0/1", help="I/N: only every Nth training, from number I on")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no training that would end later")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode images")
    parser.add_argument("--runs", type=Path, default=Path("out/long_runs"), help="folder of the runs")
    parser.add_argument("--out", type=Path, default=Path("research/results/table1/long.json"), help="results")
    given = parser.parse_args(arguments)
    try:
        settled = read_settings(given.settled)
        if given.data is None:
            sys.stdout.write(text(write_table(given.runs, given.out, settled)["summary"]))
            return 0
        until = time.monotonic() + 60 * given.minutes
        first, _, of = given.share.partition("/")
        settings, paper = read_settings(given.settings), read_settings(given.paper)
        wanted = [
            training
            for part in given.parts
            for training in trainings(part, settings, settled=settled, paper=paper)
            if training.runs[0].method in given.methods and training.runs[0].seed < given.seeds
        ]
        benches = cache(lambda size: open_bench(given.data, given.weights, size=size, workers=given.workers))
        left = do_missing(wanted[int(first) :: int(of)], benches, given.runs, until=until)
        _say(f"{left} trainings left")
    except HamtargetError as error:
        _say(f"error: {error}")
        return 2
    return 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
