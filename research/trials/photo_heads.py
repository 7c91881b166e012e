"""Compare what can be learned on the features of photos: losses, layers, dropout, the pull toward classes.

    python -m research.trials.photo_heads FOLDER --photos 30 --queries 4 --out photo_heads.json

FOLDER has a folder of photos for each class. Two thirds of the classes are learned from. `labelled` is the mean average
precision of other photos of these classes, searched for among those that were learned from; `unlabelled` that of the
last third, searched for among photos of that third. Settings were chosen by these figures: do not quote them as results
of a method. `research.benchmarks.photos_map` measures what was chosen.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from hamtarget.datasets import ImageSet
from hamtarget.encoders import ITQ
from hamtarget.errors import CrowdedCodesWarning
from hamtarget.evaluation.metrics import by_label, mean_average_precision
from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import ClassCodes, HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions
from hamtarget.learn.fitting.features import picture_features
from hamtarget.learn.networks.backbones import chosen_backbone
from hamtarget.learn.networks.frozen import FeatureLayers
from hamtarget.learn.networks.standardize import Standardize
from research.benchmarks.photos_map import N_BITS, RANKS, cosine_map, situations, split
from research.threads import one_thread

SEVERAL_RADII = (2, 6, 10)


class Linear(nn.Module):
    """Standardised features, some left out in training, and no hidden layer.

    Args:
        in_features: columns of the features.
        dropout: share of the features that each row of a batch is learned without.
    """

    def __init__(self, in_features: int, *, dropout: float) -> None:
        super().__init__()
        self.out_features = in_features
        self.layers = nn.Sequential(Standardize((in_features,)), nn.Dropout(dropout))

    def forward(self, features: Any) -> Any:
        """Return features of the same number."""
        return self.layers(features)


@dataclass(frozen=True)
class Setting:
    """A way to learn codes of features."""

    loss: ClassCodes | HammingTargetLoss
    network: Callable[[int], nn.Module | NetworkOptions]
    steps: int = 300


def _radius(radius: int | tuple[int, ...]) -> HammingTargetLoss:
    return HammingTargetLoss(N_BITS, radius, dissimilar_weight=30.0)


SETTINGS = {
    "classes, linear": Setting(ClassCodes(N_BITS), lambda columns: Linear(columns, dropout=0.0)),
    "classes, linear, dropout .5": Setting(ClassCodes(N_BITS), lambda columns: Linear(columns, dropout=0.5)),
    "classes, DenseNet of 3 layers": Setting(ClassCodes(N_BITS), lambda columns: NetworkOptions()),
    "classes, hidden layer, dropout .5": Setting(ClassCodes(N_BITS), FeatureLayers),
    "classes, hidden layer, dropout .5, 600 steps": Setting(ClassCodes(N_BITS), FeatureLayers, 600),
    "classes, hidden layer, dropout .5, no pull": Setting(ClassCodes(N_BITS, class_weight=0.0), FeatureLayers),
    "classes, hidden layer, dropout .5, radii 2, 6, 10": Setting(ClassCodes(N_BITS, SEVERAL_RADII), FeatureLayers),
    "radius 2, hidden layer, dropout .5": Setting(_radius(2), FeatureLayers),
    "radii 2, 6, 10, hidden layer, dropout .5": Setting(_radius(SEVERAL_RADII), FeatureLayers),
}


def measure(features: NDArray[np.float32], labels: NDArray[Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of each setting, and of methods that learn from no labels."""
    kept, asked = split(labels, photos=arguments.photos, queries=arguments.queries)
    unlabelled = situations(labels, kept, asked)["unlabelled"]
    learned = unlabelled.learned
    known = np.setdiff1d(asked, unlabelled.queries)
    figures: dict[str, Any] = {}

    def judged(name: str, encode: Callable[[NDArray[np.float32]], NDArray[np.uint8]], seconds: float) -> None:
        found = {"seconds_to_learn": seconds}
        for what, queries, database in (
            ("labelled", known, learned),
            ("unlabelled", unlabelled.queries, unlabelled.database),
        ):
            relevant = by_label(labels[queries], labels[database])
            codes = encode(features[queries]), encode(features[database])
            found[what] = mean_average_precision(*codes, relevant, n_bits=N_BITS, k=RANKS)
        figures[name] = found
        print(name, {key: round(value, 3) for key, value in found.items()}, flush=True)

    figures["cosine of float features"] = {
        what: cosine_map(features[queries], features[database], labels[queries][:, None] == labels[database])
        for what, queries, database in (
            ("labelled", known, learned),
            ("unlabelled", unlabelled.queries, unlabelled.database),
        )
    }
    print("cosine", figures["cosine of float features"], flush=True)
    begun = time.perf_counter()
    itq = ITQ(N_BITS).fit(features[learned])
    judged("ITQ", itq.encode, time.perf_counter() - begun)
    classes = np.unique(labels[learned], return_inverse=True)[1]
    for name, setting in SETTINGS.items():
        begun = time.perf_counter()
        encoder = HashEncoder(
            loss=setting.loss,
            network=setting.network(features.shape[1]),
            training=TrainingOptions(steps=setting.steps),
            seed=arguments.seed,
        ).fit(features[learned], classes)
        judged(name, encoder.encode, time.perf_counter() - begun)
    return figures


def main() -> None:
    """Compute features, or read those that are kept, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with a folder of photos for each class")
    parser.add_argument("--photos", type=int, default=30, help="photos of a class to search in")
    parser.add_argument("--queries", type=int, default=4, help="photos of a class to search for")
    parser.add_argument("--backbone", help="a name or file, as for `hamtarget train`; by default the shipped network")
    parser.add_argument("--seed", type=int, default=0, help="seed of the training")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", CrowdedCodesWarning)
    images = ImageSet.from_folder(arguments.folder)
    kept, asked = split(np.asarray(images.labels), photos=arguments.photos, queries=arguments.queries)
    used = np.union1d(kept, asked)
    found = picture_features(images.take(used), chosen_backbone(arguments.backbone))
    features = np.zeros((len(images), found.values.shape[1]), dtype=np.float32)
    features[used[found.rows]] = found.values
    with one_thread():
        figures = measure(features, np.asarray(images.labels), arguments)
    if arguments.out is not None:
        write_json(arguments.out, {"provenance": provenance(seed=arguments.seed), "map": figures})


if __name__ == "__main__":
    main()
