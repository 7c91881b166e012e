"""Table 1, measured anew: MAP@1000 of codes for images, by several methods.

Every method fine-tunes the same network, for the same number of images, with the same augmentation and schedule, and
keeps its last weights. Methods differ in the loss, in the head of their papers, and in settings that were chosen with
the same number of trials each. `python -m research.paper.table1` needs neither typer nor rich.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hamtarget.errors import HamtargetError, InputError
from hamtarget.evaluation.provenance import provenance, write_json
from research.paper.image_bench import ImageBench, open_bench, usual_side
from research.paper.image_methods import (
    LENGTHS,
    METHODS,
    NAMES,
    PAPER_SETTING,
    Setting,
    check_method,
    chosen_setting,
    read_settings,
)
from research.paper.image_runs import SMALL_SIDE, Run, is_kept, kept_runs, save_run
from research.paper.image_scores import quick_map, scores
from research.paper.image_table import draw, text
from research.paper.image_tasks import TASKS

# Runs beside the table itself: classes without labels, and pictures with several labels.
_BESIDE = {
    "unseen": (32, ("HDT", "CSQ", "OrthoHash", "ITQ", "LSH")),
    "mosaic": (32, ("HDT", "CSQ", "OrthoHash", "ITQ", "LSH")),
}
# Methods that are trained with more than one seed, if several are asked for.
_SEEDED = ("HDT", "DBR", "OrthoHash")
# The setting "swapped" gives these methods what HDT has beside its loss and proxies, and takes it from HDT.
_SWAPPED = ("HDT", "DBR", "CSQ", "OrthoHash")
_PULL = 0.5
_SETTINGS = ("chosen", "paper", "swapped", "all")
_DEFAULT_EPOCHS = 6.0
_DEFAULT_SIZE = 224


@dataclass(frozen=True)
class Plan:
    """The runs to do; fields that are left open stand for everything.

    Attributes:
        methods, lengths, tasks: only these.
        seeds: number of seeds of the methods that are compared most closely.
        setting: "chosen", "paper" (HDT exactly as in the paper), "swapped" (HDT without guide and pull, others with
            the pull), or "all" of them. The pull moves codes towards those of classes after training, see `ProxyPull`.
        epochs, size: see `Run`.
        settings: settings of methods and lengths, in place of those in the code.
        stored_side: see `Run`.
    """

    methods: tuple[str, ...] = ()
    lengths: tuple[int, ...] = ()
    tasks: tuple[str, ...] = ()
    seeds: int = 1
    setting: str = "chosen"
    epochs: float = _DEFAULT_EPOCHS
    size: int = _DEFAULT_SIZE
    settings: Mapping[tuple[str, int], Setting] | None = None
    stored_side: int = SMALL_SIDE

    def __post_init__(self) -> None:
        for method in self.methods:
            check_method(method)
        for task in self.tasks:
            if task not in TASKS:
                raise InputError(f"task is {task!r}; expected one of {', '.join(TASKS)}")
        if self.setting not in _SETTINGS:
            raise InputError(f"setting is {self.setting!r}; expected one of {', '.join(_SETTINGS)}")
        if self.seeds < 1 or self.epochs <= 0:
            raise InputError(f"seeds is {self.seeds} and epochs {self.epochs}; expected 1 or more, and above 0")

    def runs(self) -> list[Run]:
        """Return the runs in the order of their importance: the table, other tasks, variants, more seeds."""
        if self.setting == "paper":
            return self._paper()
        if self.setting == "swapped":
            return self._swapped()
        first, more = self._chosen()
        return [*first, *(self._paper() + self._swapped() if self.setting == "all" else ()), *more]

    def _paper(self) -> list[Run]:
        return [
            replace(self._run("HDT", n_bits, "whole", seed), setting=PAPER_SETTING, variant="paper")
            for seed in range(self.seeds if self.setting == "paper" else 1)
            for n_bits in self.lengths or LENGTHS
        ]

    def _swapped(self) -> list[Run]:
        methods = [method for method in _SWAPPED if not self.methods or method in self.methods]
        return [
            _swap(self._run(method, n_bits, "whole", 0)) for n_bits in self.lengths or LENGTHS for method in methods
        ]

    def _chosen(self) -> tuple[list[Run], list[Run]]:
        """Return runs with the first seed, and with more."""
        cells = [("whole", n_bits, method) for n_bits in self.lengths or LENGTHS for method in NAMES]
        for task, (n_bits, methods) in _BESIDE.items():
            cells += [(task, n_bits, method) for method in methods if not self.lengths or n_bits in self.lengths]
        wanted = [
            (task, n_bits, method)
            for task, n_bits, method in cells
            if (not self.tasks or task in self.tasks) and (not self.methods or method in self.methods)
        ]
        first = [self._run(method, n_bits, task, 0) for task, n_bits, method in wanted]
        more = [
            self._run(method, n_bits, task, seed)
            for seed in range(1, self.seeds)
            for task, n_bits, method in wanted
            if task == "whole" and method in _SEEDED
        ]
        return first, more

    def _run(self, method: str, n_bits: int, task: str, seed: int) -> Run:
        chosen = () if self.settings is None else (self.settings,)
        setting = chosen_setting(method, n_bits, *chosen)
        # A method that is not trained sees images once, and has no settings.
        epochs = self.epochs if method in METHODS else 0
        return Run(method, n_bits, task, setting, epochs, self.size, seed, stored_side=self.stored_side)


def _swap(run: Run) -> Run:
    setting = run.setting
    if run.method != "HDT":
        return replace(run, setting=replace(setting, pull=_PULL), variant="pulled")
    plain = {name: value for name, value in setting.loss.items() if name != "guide_bits"}
    return replace(run, setting=replace(setting, pull=0.0, loss=plain), variant="plain")


def do_missing(
    runs: Iterable[Run],
    bench: ImageBench,
    folder: Path,
    *,
    minutes: float | None = None,
    tell: Callable[[str], None] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> list[Run]:
    """Do the runs that `folder` does not hold, write each as soon as it is done, and return those still missing.

    Args:
        runs: in the order in which to do them.
        bench: the images and the tuner.
        folder: folder of the runs.
        minutes: no run is begun that would probably end later than this, judging by the longest so far.
        tell: called with a line about each run.
        progress: called with a run's name, the steps done and all steps.
    """
    started = time.perf_counter()
    longest = 0.0
    missing = [run for run in runs if not is_kept(run, folder)]
    for number, run in enumerate(missing):
        begun = time.perf_counter()
        if minutes is not None and begun + longest - started > 60 * minutes:
            return missing[number:]
        steps = None if progress is None else _named(progress, run.name)
        facts, codes = bench.do(run, progress=steps)
        save_run(run, folder, facts, codes)
        seconds = time.perf_counter() - begun
        # The first run pays for decoding and warming up.
        longest = max(longest, facts["training_seconds"] + facts.get("encoding_seconds", 0))
        if tell is not None:
            speed = facts.get("images_per_second", 0.0)
            tell(f"{run.name}: MAP {quick_map(codes):.3f} (first queries), {seconds:.1f} s, {speed:,.0f} images/s")
    return []


def _named(progress: Callable[[str, int, int], None], name: str) -> Callable[[int, int], None]:
    return lambda done, total: progress(name, done, total)


def write_table1(folder: Path, out: Path, *, tell: Callable[[str], None] | None = None) -> list[dict[str, Any]]:
    """Score every run in `folder`, write table1.json and a picture to `out`, and return a record for each run.

    Runs that were scored before, and have not changed since, are taken from the older table1.json.

    Args:
        folder: where runs are kept.
        out: for the results.
        tell: called with a line about each scored run.
    """
    known = _known_records(out / "table1.json")
    records = []
    for facts, codes in kept_runs(folder):
        run = facts["run"]
        older = known.get(json.dumps([run, facts["provenance"]["date"]], sort_keys=True))
        record = older if older is not None else {**facts, "scores": scores(codes)}
        records.append(record)
        if tell is not None and older is None:
            tell(f"scored {run['method']} {run['n_bits']} bits, {run['task']}, seed {run['seed']}")
    if records:
        write_json(out / "table1.json", {"provenance": provenance(seed=0), "records": records})
        draw(records, out / "table1.png")
    return records


def _known_records(path: Path) -> dict[str, dict[str, Any]]:
    try:
        records = json.loads(path.read_text(encoding="utf-8"))["records"]
    except (OSError, ValueError, KeyError):
        return {}
    return {json.dumps([record["run"], record["provenance"]["date"]], sort_keys=True): record for record in records}


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m research.paper.table1", description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of images; without it, only what is there is scored")
    parser.add_argument("--weights", type=Path, help="resnet50_caffe_int8.npz")
    parser.add_argument("--out", type=Path, default=Path("research/results/table1"), help="folder for the results")
    parser.add_argument("--methods", nargs="*", default=[], help=f"only these: {', '.join(NAMES)}")
    parser.add_argument("--bits", nargs="*", type=int, default=[], help="only codes of these lengths")
    parser.add_argument("--tasks", nargs="*", default=[], help=f"only these: {', '.join(TASKS)}")
    parser.add_argument("--seeds", type=int, default=1, help="seeds of the methods that are compared most closely")
    parser.add_argument("--setting", default="chosen", help=", ".join(_SETTINGS))
    parser.add_argument(
        "--settings", type=Path, nargs="*", metavar="FILE", help="settings from files of image_trials.py"
    )
    parser.add_argument("--epochs", type=float, default=_DEFAULT_EPOCHS, help="how often each image is seen")
    parser.add_argument("--size", type=int, default=_DEFAULT_SIZE, help="pixels of a side that the network sees")
    parser.add_argument("--stored-side", type=int, help="pixels of a side that images are kept with")
    parser.add_argument("--workers", type=int, default=0, help="processes that decode images")
    parser.add_argument("--minutes", type=float, help="begin no run that would end later")
    parser.add_argument("--train-only", action="store_true", help="leave scoring to a later call")
    given = parser.parse_args(arguments)
    try:
        stored_side = given.stored_side or (SMALL_SIDE if given.data is None else usual_side(given.data))
        plan = Plan(
            tuple(given.methods),
            tuple(given.bits),
            tuple(given.tasks),
            given.seeds,
            given.setting,
            given.epochs,
            given.size,
            read_settings(given.settings) if given.settings else None,
            stored_side,
        )
        if given.data is not None:
            if given.weights is None:
                raise InputError("--data without --weights; expected resnet50_caffe_int8.npz, too")
            bench = open_bench(
                given.data, given.weights, size=given.size, stored_side=stored_side, workers=given.workers
            )
            left = do_missing(plan.runs(), bench, given.out / "runs", minutes=given.minutes, tell=_say)
            _say(f"{len(left)} runs left" if left else "all runs are done")
        if not given.train_only:
            sys.stdout.write(text(write_table1(given.out / "runs", given.out, tell=_say)))
    except HamtargetError as error:
        _say(f"error: {error}")
        return 2
    return 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    raise SystemExit(main())
