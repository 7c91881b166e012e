"""Measure what labels do to classes that have none: two thirds of the classes labelled, vectors or pictures.

    python -m research.datasets.sentences data_full.json --model all-MiniLM-L6-v2 --out clinc.npz
    python -m research.benchmarks.unseen_classes clinc.npz --out clinc.json

    python -m research.datasets.pictures images_background_small1.zip --out omniglot.npz
    python -m research.benchmarks.unseen_classes omniglot.npz --pictures --out omniglot.json

FILE is a NumPy file with `vectors` (rows, columns), `labels` (rows,) and `split` (rows,) of "train" and "test"; see
`research.datasets.sentences` and `research.datasets.pictures` for the sets and where they come from. Two thirds of the
classes, drawn by the seed, are labelled. The training rows of all classes are searched in. `seen` are queries of
labelled classes, `unseen` those of the other classes. The measure is MAP@100: the sum of the precisions at the ranks of
relevant rows, divided by the number of relevant rows or by 100, whichever is less. Rows at one Hamming distance come in
random order.

The methods:

- `float cosine`: the vectors themselves.
- `ITQ`: learned from all training rows, without labels.
- `classes`: learned from the labelled rows with `ClassCodes` (`loss="classes"`), which is what pictures with labels are
  learned by if no loss is named.
- `default, labelled rows`: `HashEncoder().fit(rows, labels)` with the labelled rows.
- `default, all rows`: the same with all rows; the labels of the other classes are None.
- `several radii`: learned from the labelled rows by Hamming distance targets with the radii of table 1, a
  `HammingTargetLoss` alone.
- `DBR`, `OrthoHash` and `CSQ`: other losses of `research.comparators`, learned from the labelled rows.
- `labels alone`, from the labelled rows by Hamming distance targets (`loss="radius"`), and `no labels`,
  `HashEncoder().fit(rows)`, are measured if --methods names them.

All that learn from labels have the same layers and the same steps; with --pictures, the layers that `hamtarget train`
puts on the features of pictures. The learning rate of each is the best of `--rates`, for each seed: a quarter of the
labelled classes is put aside, codes are learned with the labels of the others, and MAP@100 by codes of queries of the
classes put aside decides. These queries are training rows; classes without labels have no part in it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from hamtarget.encoders import ITQ
from hamtarget.errors import CrowdedCodesWarning
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HammingTargetLoss, HashEncoder, Labels, NetworkOptions
from hamtarget.learn.fitting.objectives import PartlyLabelled
from hamtarget.learn.fitting.part_labels import LeftOutWarning
from hamtarget.learn.fitting.pictures import feature_layers
from hamtarget.learn.losses.base import BatchLoss
from hamtarget.learn.losses.keep_neighbors import KeepNeighbors
from hamtarget.learn.networks.builder import Network
from hamtarget.learn.networks.head import HashModel
from hamtarget.learn.training.options import TrainingOptions
from research.comparators import CSQLoss, DBRLoss, OrthoHashLoss

RANKS = 100
SHARE_LABELLED = 2 / 3
# Of the labelled classes, and of their rows, in trials of the learning rate.
SHARE_ASIDE = 1 / 4
ROWS_TO_A_QUERY = 5
# The last one is the default of `TrainingOptions`.
RATES = (5e-4, 2e-3)
COMPARED = (
    "float cosine",
    "ITQ",
    "default, all rows",
    "default, labelled rows",
    "classes",
    "several radii",
    "DBR",
    "OrthoHash",
    "CSQ",
    "several radii, found classes",
    "DBR, found classes",
    "OrthoHash, found classes",
    "CSQ, found classes",
)
METHODS = (*COMPARED, "neighbourhoods, all rows", "labels alone", "no labels")
FOUND_CLASSES = ", found classes"
WITHOUT_LABELS = ("float cosine", "ITQ", "no labels")

NO_LABEL = -1

Vectors = NDArray[np.float32]


@dataclass(frozen=True)
class Task:
    """Rows to learn from and to search in, and queries; `labelled` tells which of each belong to labelled classes."""

    rows: Vectors
    labels: NDArray[np.int64]
    labelled: NDArray[np.bool_]
    queries: Vectors
    query_labels: NDArray[np.int64]
    query_labelled: NDArray[np.bool_]


@dataclass(frozen=True)
class Setting:
    """Settings that all methods share: the length of codes, the seed, and whether vectors are features of pictures."""

    n_bits: int
    seed: int
    pictures: bool = False
    training: TrainingOptions = TrainingOptions()

    def network(self, n_columns: int, *, normalize: bool) -> Network:
        """Return the network of vectors with so many columns; `normalize`: see `HashHead`."""
        if normalize:
            return feature_layers(n_columns, self.seed) if self.pictures else "auto"
        with torch.random.fork_rng([]):
            torch.manual_seed(self.seed)
            layers = feature_layers(n_columns, self.seed) if self.pictures else NetworkOptions().network((n_columns,))
            return HashModel(layers, self.n_bits, normalize=False)


def read(file: Path, seed: int, *, share_labelled: float = SHARE_LABELLED) -> Task:
    """Return a set; the seed draws the labelled classes."""
    with np.load(file) as arrays:
        vectors, names, split = arrays["vectors"].astype(np.float32), arrays["labels"], arrays["split"]
    classes, labels = np.unique(names, return_inverse=True)
    order = np.random.default_rng(seed).permutation(len(classes))
    labelled = np.isin(labels, order[: round(share_labelled * len(classes))])
    train, test = split == "train", split == "test"
    return Task(vectors[train], labels[train], labelled[train], vectors[test], labels[test], labelled[test])


def trial_task(task: Task, seed: int) -> Task:
    """Return the task by which a setting is chosen: the labelled rows alone, the labels of some classes hidden.

    Every fifth row of a class is a query.
    """
    rows, labels = task.rows[task.labelled], task.labels[task.labelled]
    classes = np.random.default_rng(seed).permutation(np.unique(labels))
    known = ~np.isin(labels, classes[: round(SHARE_ASIDE * len(classes))])
    place = np.empty(len(labels), np.int64)
    for label in classes:
        place[labels == label] = np.arange((labels == label).sum())
    asked = place % ROWS_TO_A_QUERY == 0
    return Task(rows[~asked], labels[~asked], known[~asked], rows[asked], labels[asked], known[asked])


def ranked_map(scores: Vectors, task: Task) -> tuple[float, float]:
    """Return MAP@100 over the queries of labelled classes, and over the others."""
    first = np.argpartition(-scores, RANKS, axis=1)[:, :RANKS]
    first = np.take_along_axis(first, np.argsort(-np.take_along_axis(scores, first, axis=1), axis=1), axis=1)
    good = task.labels[first] == task.query_labels[:, None]
    precision = np.cumsum(good, axis=1) / np.arange(1, RANKS + 1)
    relevant = np.bincount(task.labels)[task.query_labels]
    average = (precision * good).sum(axis=1) / np.minimum(relevant, RANKS)
    seen, unseen = average[task.query_labelled], average[~task.query_labelled]
    return float(seen.mean()), float(unseen.mean()) if len(unseen) else float("nan")


def by_cosine(rows: Vectors, queries: Vectors, task: Task) -> tuple[float, float]:
    """Return MAP@100 by the cosine of vectors or logits."""
    rows, queries = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in (rows, queries))
    return ranked_map(queries @ rows.T, task)


def by_codes(rows: Vectors, queries: Vectors, task: Task) -> tuple[float, float]:
    """Return MAP@100 by the Hamming distance of the codes that logits have."""
    rows, queries = (np.where(part > 0, np.float32(1), np.float32(-1)) for part in (rows, queries))
    scores = queries @ rows.T
    scores += np.random.default_rng(0).random(scores.shape, dtype=np.float32)
    return ranked_map(scores, task)


def figures_of(method: str, task: Task, setting: Setting) -> dict[str, float]:
    """Return MAP@100 of one method, and the CPU seconds of learning."""
    if method == "float cosine":
        seen, unseen = by_cosine(task.rows, task.queries, task)
        return {"seen by logits": seen, "unseen by logits": unseen}
    begun = time.process_time()
    encoder = learned(method, task, setting)
    seconds = time.process_time() - begun
    logits = encoder.logits(task.rows), encoder.logits(task.queries)
    seen, unseen = by_codes(*logits, task)
    seen_by_logits, unseen_by_logits = by_cosine(*logits, task)
    return {
        "seen by codes": seen,
        "unseen by codes": unseen,
        "seen by logits": seen_by_logits,
        "unseen by logits": unseen_by_logits,
        "cpu seconds": seconds,
    }


def learned(method: str, task: Task, setting: Setting) -> ITQ | HashEncoder:
    """Return what a method learns."""
    n_bits, seed, n_columns = setting.n_bits, setting.seed, task.rows.shape[1]
    if method == "ITQ":
        return ITQ(n_bits, seed=seed).fit(task.rows)
    if method == "no labels":
        network = setting.network(n_columns, normalize=True)
        return HashEncoder(n_bits, network=network, seed=seed, device="cpu").fit(task.rows)
    rows, labels = task.rows[task.labelled], task.labels[task.labelled]
    if method.endswith("all rows"):
        rows, labels = task.rows, np.where(task.labelled, task.labels, NO_LABEL)
    method, found, _ = method.partition(FOUND_CLASSES)
    if found:
        first = learned(method, task, setting)
        rows, labels = task.rows, with_found_classes(first.logits(task.rows), task, seed)
    similar = Labels(labels, unlabelled=NO_LABEL)
    loss: str | BatchLoss = {"labels alone": "radius", "classes": "classes"}.get(method, "auto")
    if method in ("several radii", "neighbourhoods, all rows", "DBR", "OrthoHash", "CSQ"):
        loss = loss_object(method, n_bits, n_labels=similar.n_labels, seed=seed)
    return HashEncoder(
        n_bits,
        loss,
        network=setting.network(n_columns, normalize=method not in ("DBR", "CSQ")),
        training=replace(setting.training, steps=setting.training.steps_for(len(task.rows))),
        seed=seed,
        device="cpu",
    ).fit(rows, similar)


def with_found_classes(logits: Vectors, task: Task, seed: int) -> NDArray[np.int64]:
    """Return labels of all rows: where there is none, the number of a cluster of rows whose logits point one way."""
    others = logits[~task.labelled]
    size = float(np.median(np.unique(task.labels[task.labelled], return_counts=True)[1]))
    directions = others / np.linalg.norm(others, axis=1, keepdims=True)
    clusters = KMeans(max(2, round(len(others) / size)), n_init=10, random_state=seed).fit_predict(directions)
    labels = task.labels.copy()
    labels[~task.labelled] = task.labels.max() + 1 + clusters
    return labels


def loss_object(method: str, n_bits: int, *, n_labels: int, seed: int) -> BatchLoss:
    """Return the loss of a method that no word of `HashEncoder` stands for."""
    if method == "several radii":
        return PartlyLabelled(n_bits).pair_loss()
    if method == "neighbourhoods, all rows":
        return KeepNeighbors(HammingTargetLoss(n_bits, 2, dissimilar_weight=30.0))
    if method == "OrthoHash":
        return OrthoHashLoss(n_bits, n_labels, seed=seed)
    return (DBRLoss if method == "DBR" else CSQLoss)(n_bits, n_labels, seed=seed)


def with_best_rate(method: str, task: Task, setting: Setting, rates: Sequence[float]) -> Setting:
    """Return the setting with the rate that finds most of classes whose labels are hidden."""
    if method in WITHOUT_LABELS or len(rates) < 2:
        return setting
    hidden = trial_task(task, setting.seed)
    tried = [replace(setting, training=replace(setting.training, learning_rate=rate)) for rate in rates]
    return max(tried, key=lambda each: figures_of(method, hidden, each)["unseen by codes"])


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, metavar="FILE", help="NumPy file with vectors, labels and split")
    parser.add_argument("--pictures", action="store_true", help="vectors are features of pictures")
    parser.add_argument("--bits", type=int, default=64, help="bits of a code (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method (default: %(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first run (default: %(default)s)")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="learning rates to try")
    parser.add_argument("--steps", type=int, help="steps of training (default: those of hamtarget)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=COMPARED, help="methods to measure")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the results")
    arguments = parser.parse_args()
    # The figures say how crowded codes are, and what it costs to leave rows out.
    for category in (CrowdedCodesWarning, LeftOutWarning):
        warnings.simplefilter("ignore", category)
    torch.set_num_threads(1)
    runs: dict[str, list[dict[str, float]]] = {method: [] for method in arguments.methods}
    training = TrainingOptions(steps=arguments.steps, learning_rate=arguments.rates[-1])
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        task = read(arguments.file, seed)
        setting = Setting(arguments.bits, seed, arguments.pictures, training)
        for method in arguments.methods:
            best = with_best_rate(method, task, setting, arguments.rates)
            found = figures_of(method, task, best)
            if method not in WITHOUT_LABELS:
                found["learning rate"] = best.training.learning_rate
            runs[method].append(found)
            shown = ", ".join(f"{name} {value:.3g}" for name, value in found.items())
            print(f"seed {seed}, {method}: {shown}", flush=True)
            if arguments.out is not None:
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                write_json(arguments.out, report(runs, task, arguments.bits, arguments.rates))


def report(runs: dict[str, list[dict[str, float]]], task: Task, n_bits: int, rates: Sequence[float]) -> dict[str, Any]:
    """Return what is written of all runs so far: means and standard deviations over seeds, and each run."""
    by_seed = {method: found for method, found in runs.items() if found}
    return {
        "provenance": provenance(seed=0),
        "bits": n_bits,
        "measure": f"MAP@{RANKS}",
        "rows": len(task.rows),
        "queries": len(task.queries),
        "classes": len(np.unique(task.labels)),
        "labelled classes": len(np.unique(task.labels[task.labelled])),
        "rates": list(rates),
        "seeds": {method: len(found) for method, found in by_seed.items()},
        **over_seeds(by_seed),
        "by_seed": by_seed,
    }


def over_seeds(by_seed: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the means and the standard deviations of each method's figures; of one run, the deviation is 0."""

    def figures(summary: Callable[[list[float]], float]) -> dict[str, dict[str, float]]:
        return {
            method: {name: summary([run[name] for run in found]) for name in found[0]}
            for method, found in by_seed.items()
        }

    return {"means": figures(mean), "deviations": figures(lambda values: stdev(values) if len(values) > 1 else 0.0)}


if __name__ == "__main__":
    main()
