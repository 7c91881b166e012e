"""Measure how well codes find photos of one class, learned as `hamtarget train photos` learns them.

    python -m research.benchmarks.photos_map FOLDER --name NAME --photos 30 --queries 4 --out photos_map.json

FOLDER has a folder of photos for each class. So many photos of a class are searched in, and so many others are
searched for. Mean average precision is measured in three situations:

- `known`: the photos that are searched in were learned from, as with a user's own collection.
- `added`: half of the photos of each class were learned from, and the other half is searched in.
- `unlabelled`: a third of the classes has no labels; nothing is learned from their photos, and only they are searched.

Beside `HashEncoder().fit(photos)` with its defaults there are its objectives by name; the cosine of the float features
that the codes are made of; and ITQ, which learns codes of the same length from them without labels. Features are
computed once and kept in the folder of HAMTARGET_CACHE.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hamtarget.datasets import ImageSet
from hamtarget.encoders import ITQ
from hamtarget.errors import CrowdedCodesWarning
from hamtarget.evaluation.metrics import by_label, mean_average_precision
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import HashEncoder
from hamtarget.learn.fitting.features import picture_features
from hamtarget.learn.networks.backbones import chosen_backbone

N_BITS = 32
RANKS = 1000
OBJECTIVES = ("auto", "radius", "classes")

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Situation:
    """Rows of a set of photos that are learned from, searched in, and searched for."""

    learned: Rows
    database: Rows
    queries: Rows


def split(labels: NDArray[Any], *, photos: int, queries: int, seed: int = 0) -> tuple[Rows, Rows]:
    """Return (rows to search in, rows to search for), drawn at random in each class.

    A class with fewer photos gives all that its queries leave.
    """
    random = np.random.default_rng(seed)
    kept: list[Rows] = []
    asked: list[Rows] = []
    for label in np.unique(labels):
        rows = random.permutation(np.flatnonzero(labels == label))
        if len(rows) < queries + 2:
            raise SystemExit(f"class {label} has {len(rows)} photos; expected {queries} queries and 2 more at least")
        asked.append(rows[:queries])
        kept.append(rows[queries : queries + photos])
    return np.sort(np.concatenate(kept)), np.sort(np.concatenate(asked))


def situations(labels: NDArray[Any], kept: Rows, asked: Rows, *, seed: int = 0) -> dict[str, Situation]:
    """Return the three situations of this module's description."""
    classes = np.unique(labels)
    apart = np.random.default_rng(seed).permutation(classes)[: max(2, round(len(classes) / 3))]
    # Every second photo of each class.
    order = np.argsort(labels[kept], kind="stable")
    half = np.zeros(len(kept), dtype=bool)
    half[order[::2]] = True
    unknown, unknown_asked = np.isin(labels[kept], apart), np.isin(labels[asked], apart)
    return {
        "known": Situation(kept, kept, asked),
        "added": Situation(kept[half], kept[~half], asked),
        "unlabelled": Situation(kept[~unknown], kept[unknown], asked[unknown_asked]),
    }


def cosine_map(queries: NDArray[np.float32], database: NDArray[np.float32], relevant: NDArray[np.bool_]) -> float:
    """Return MAP@1000 of the database ranked by the cosine to each query."""
    queries, database = (rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (queries, database))
    order = np.argsort(-(queries @ database.T), axis=1, kind="stable")[:, :RANKS]
    good = np.take_along_axis(relevant, order, axis=1)
    precision = np.cumsum(good, axis=1) / np.arange(1, good.shape[1] + 1)
    return float(np.mean((precision * good).sum(axis=1) / np.maximum(good.sum(axis=1), 1)))


def learned_map(images: ImageSet, at: Situation, network: Any, *, loss: str, seed: int) -> tuple[float, float]:
    """Return MAP@1000 of learned codes, and the seconds that learning took with its features kept."""
    labels = np.asarray(images.labels)
    learned = images.take(at.learned)
    classes = np.unique(labels[at.learned], return_inverse=True)[1]
    begun = time.perf_counter()
    encoder = HashEncoder(N_BITS, loss, network=network, seed=seed).fit(learned, classes)
    seconds = time.perf_counter() - begun
    codes, query_codes = (encoder.encode_images(images.take(rows)).codes for rows in (at.database, at.queries))
    relevant = by_label(labels[at.queries], labels[at.database])
    return mean_average_precision(query_codes, codes, relevant, n_bits=N_BITS, k=RANKS), seconds


def measure(images: ImageSet, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return MAP@1000 by situation and method: the median of the seeds, and the value of each."""
    labels = np.asarray(images.labels)
    network = chosen_backbone(arguments.backbone)
    kept, asked = split(labels, photos=arguments.photos, queries=arguments.queries)
    begun = time.perf_counter()
    used = np.union1d(kept, asked)
    features = picture_features(images.take(used), network)
    seconds = time.perf_counter() - begun
    if features.broken:
        raise SystemExit(f"{len(features.broken)} photos cannot be read: {next(iter(features.broken.values()))}")
    by_row = dict(zip(used.tolist(), features.values, strict=True))
    figures: dict[str, Any] = {}
    for name, at in situations(labels, kept, asked).items():
        learned, database, queries = (
            np.stack([by_row[row] for row in rows.tolist()]) for rows in (at.learned, at.database, at.queries)
        )
        relevant = by_label(labels[at.queries], labels[at.database])
        matrix = labels[at.queries][:, None] == labels[at.database][None]
        itq = ITQ(N_BITS).fit(learned)
        found: dict[str, Any] = {
            "learned_from": len(at.learned),
            "searched_in": len(at.database),
            "queries": len(at.queries),
            "cosine of float features": cosine_map(queries, database, matrix),
            "ITQ": mean_average_precision(itq.encode(queries), itq.encode(database), relevant, n_bits=N_BITS, k=RANKS),
        }
        for objective in arguments.objectives:
            runs = [learned_map(images, at, network, loss=objective, seed=seed) for seed in range(arguments.seeds)]
            values = [value for value, _ in runs]
            found[objective] = {
                "median": float(np.median(values)),
                "by_seed": values,
                "seconds_to_learn": float(np.median([taken for _, taken in runs])),
            }
            print(f"{arguments.name}, {name}, {objective}: {found[objective]}", flush=True)
        figures[name] = found
        print(f"{arguments.name}, {name}: {found}", flush=True)
    return {"classes": len(np.unique(labels)), "seconds_for_features_or_to_read_them": seconds, **figures}


def main() -> None:
    """Measure one set and write it beside those that the file has already."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with a folder of photos for each class")
    parser.add_argument("--name", help="name of the set in the results; by default that of the folder")
    parser.add_argument("--photos", type=int, default=30, help="photos of a class to search in")
    parser.add_argument("--queries", type=int, default=4, help="photos of a class to search for")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each, by the median of which they are judged")
    parser.add_argument("--backbone", help="a name or file, as for `hamtarget train`; by default the shipped network")
    parser.add_argument(
        "--objectives", nargs="+", default=OBJECTIVES[:2], choices=OBJECTIVES, help="losses to learn by"
    )
    parser.add_argument("--out", type=Path, help="JSON file for the results; other sets in it stay")
    arguments = parser.parse_args()
    arguments.name = arguments.name or arguments.folder.name
    # With few bits and many classes this is usual; the figures say how much it matters.
    warnings.simplefilter("ignore", CrowdedCodesWarning)
    figures = {"provenance": provenance(seed=0)} | measure(ImageSet.from_folder(arguments.folder), arguments)
    if arguments.out is not None:
        earlier = json.loads(arguments.out.read_text(encoding="utf-8")) if arguments.out.exists() else {}
        write_json(arguments.out, earlier | {arguments.name: figures})
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
