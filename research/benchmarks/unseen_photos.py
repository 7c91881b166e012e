"""Measure what labels do to classes of photos that have none: features of photos, 60 of 100 classes labelled.

    python -m research.benchmarks.unseen_photos --cache photos.npz --out research/results/unseen_classes/photos.json

Photos of tiny-imagenet100 (in the folder of HAMTARGET_DATA) are seen once by the network that comes with the package,
as `hamtarget train photos` does; their features are kept in the file `--cache`. Codes are then learned from them by the
layers that photos have, with the methods and the measure of `research.benchmarks.unseen_classes`:

- `float cosine`: the features themselves.
- `ITQ` and `no labels`: learned from all rows, without labels.
- `labels alone` and `classes`: learned from the labelled rows by Hamming distance targets, and with `ClassCodes`, which
  is what photos with labels are learned by if no loss is named.
- `default, labelled rows` and `default, all rows`: with `KeepNeighbors`, as vectors are learned by default; from the
  labelled rows, and from all rows, with None for the labels of the other classes.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import numpy as np
import torch

from hamtarget.datasets import ImageSet
from hamtarget.errors import CrowdedCodesWarning
from hamtarget.evaluation.provenance import write_json
from hamtarget.learn.features import picture_features
from hamtarget.learn.networks.choosing import chosen_backbone
from hamtarget.learn.pictures import feature_layers
from research.benchmarks.photos_map import split
from research.benchmarks.search_sets import data_folder
from research.benchmarks.unseen_classes import METHODS, figures_of, read, report

SHARE_LABELLED = 0.6


def write_features(file: Path, *, photos: int, queries: int) -> None:
    """Write the features of some photos of each class, and their labels, to a file."""
    images = ImageSet.from_packed(data_folder() / "tiny-imagenet100" / "query.npz")
    labels = np.asarray(images.labels)
    kept, asked = split(labels, photos=photos, queries=queries)
    rows = np.concatenate([kept, asked])
    seen = picture_features(images.take(rows), chosen_backbone(None))
    if seen.broken:
        raise SystemExit(f"{len(seen.broken)} photos cannot be read: {next(iter(seen.broken.values()))}")
    parts = np.repeat(["train", "test"], [len(kept), len(asked)])
    np.savez(file, vectors=np.asarray(seen.values, dtype=np.float32), labels=labels[rows], split=parts)


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cache", type=Path, required=True, metavar="FILE", help="NumPy file of features")
    parser.add_argument("--photos", type=int, default=20, help="photos of a class to learn from and to search in")
    parser.add_argument("--queries", type=int, default=5, help="other photos of a class to search for")
    parser.add_argument("--bits", type=int, default=64, help="bits of a code (default: %(default)s)")
    parser.add_argument("--seeds", type=int, default=3, help="runs of each method (default: %(default)s)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="methods to measure")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON file for the results")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", CrowdedCodesWarning)
    torch.set_num_threads(1)
    if not arguments.cache.exists():
        write_features(arguments.cache, photos=arguments.photos, queries=arguments.queries)
    runs: dict[str, list[dict[str, float]]] = {method: [] for method in arguments.methods}
    for seed in range(arguments.seeds):
        data = read(arguments.cache, seed, share_labelled=SHARE_LABELLED)
        for method in arguments.methods:
            layers = feature_layers(data.rows.shape[1], seed)
            found = figures_of(method, data, arguments.bits, seed, network=layers)
            runs[method].append(found)
            shown = ", ".join(f"{name} {value:.3f}" for name, value in found.items())
            print(f"seed {seed}, {method}: {shown}", flush=True)
            if arguments.out is not None:
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                write_json(arguments.out, report(runs, arguments.bits))


if __name__ == "__main__":
    main()
