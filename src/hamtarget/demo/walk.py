"""Learn codes of labelled images, keep them in a store, search the store, and compare with other methods."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hamtarget.datasets.sample import Sample
from hamtarget.encoders import ITQ, LSH
from hamtarget.encoders.protocol import Encoder
from hamtarget.encoders.vectors.linear import LinearEncoder
from hamtarget.errors import FileError
from hamtarget.evaluation import metrics
from hamtarget.evaluation.metrics import RadiusCurve
from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions
from hamtarget.learn.training.checkpoint import TrainingProgress
from hamtarget.search import planning
from hamtarget.store import Store

SHOWN_HITS = 9
# Classes that look different to the eye.
_SHOWN_CLASSES = (0, 1, 3, 8, 9)


@dataclass(frozen=True)
class DemoSettings:
    """Settings of the demo.

    Attributes:
        n_bits: bits of a code.
        radius: the Hamming distance target.
        steps: batches to train on.
        seed: of all random choices.
    """

    n_bits: int = 32
    radius: int = 2
    steps: int = 300
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Score:
    """The figures of one method: how well its codes find images of the query's class.

    Attributes:
        name: of the method.
        precision: share of the hits within the radius that are of the query's class.
        recall: share of the images of the query's class that are within the radius.
        mean_average_precision: tie-aware MAP@1000.
        hits: mean number of hits of a query.
        candidates: mean number of rows that exact search reads for a query.
        curve: precision and recall at every radius.
    """

    name: str
    precision: float
    recall: float
    mean_average_precision: float
    hits: float
    candidates: float
    curve: RadiusCurve


@dataclass(frozen=True)
class Stored:
    """The number of images put into the store, and the seconds it took."""

    items: int
    seconds: float


@dataclass(frozen=True)
class Searched:
    """The number of queries and hits of a search of the store, and the seconds it took."""

    queries: int
    seconds: float
    hits: int


def learn(
    sample: Sample, settings: DemoSettings, progress: Callable[[TrainingProgress], None] | None = None
) -> HashEncoder:
    """Train an encoder on the sample's images and labels."""
    encoder = HashEncoder(
        loss=HammingTargetLoss(settings.n_bits, settings.radius, dissimilar_weight=30.0),
        network=NetworkOptions(width=16),
        training=TrainingOptions(steps=settings.steps),
        seed=settings.seed,
    )
    return encoder.fit(sample.images, sample.labels, progress=progress)


def others(sample: Sample, settings: DemoSettings) -> list[tuple[str, Encoder | LinearEncoder]]:
    """Return methods to compare with, by name. They learn from the images without labels."""
    return [
        ("ITQ", ITQ(settings.n_bits, seed=settings.seed).fit(sample.images)),
        ("LSH", LSH(settings.n_bits, seed=settings.seed).fit(sample.images)),
    ]


def score(name: str, encoder: Encoder | LinearEncoder, sample: Sample, radius: int) -> Score:
    """Measure how well the encoder's codes find images of the query's class within the radius."""
    n_bits = encoder.n_bits
    database, queries = encoder.encode(sample.images), encoder.encode(sample.query_images)
    relevant = metrics.by_label(sample.query_labels, sample.labels)
    curve = metrics.precision_recall_by_radius(queries, database, relevant, n_bits=n_bits)
    cost = planning.measured_candidates(queries, database, n_bits=n_bits, radius=radius)
    return Score(
        name=name,
        precision=float(curve.precision[radius]),
        recall=float(curve.recall[radius]),
        mean_average_precision=metrics.mean_average_precision(queries, database, relevant, n_bits=n_bits, k=1000),
        hits=float(curve.hits[radius]),
        candidates=float(cost.candidates.mean()),
        curve=curve,
    )


def new_store(folder: Path, encoder: HashEncoder) -> Store:
    """Create an empty store at `folder`. A store of an earlier demo is removed.

    Raises:
        FileError: the folder exists and is not a store.
    """
    if folder.exists():
        if not (folder / "store.db").exists():
            raise FileError(f"{folder} exists and is not a store; expected one of an earlier demo: pass another --out")
        shutil.rmtree(folder)
    return Store.create(folder, encoder=encoder)


def store_images(folder: Path, encoder: HashEncoder, sample: Sample) -> Stored:
    """Put all images into a new store at `folder`.

    Raises:
        FileError: the folder exists and is not a store.
    """
    payloads = [{"label": sample.class_names[label]} for label in sample.labels]
    began = time.perf_counter()
    with new_store(folder, encoder) as store:
        store.put_rows(np.arange(len(sample.images)), inputs=sample.images, payloads=payloads)
        items = len(store)
    return Stored(items, time.perf_counter() - began)


def search_store(folder: Path, sample: Sample) -> Searched:
    """Encode every query, and find everything within the store's radius of it."""
    with Store.open(folder, read_only=True) as store:
        began = time.perf_counter()
        found = store.search_batch(sample.query_images)
        seconds = time.perf_counter() - began
    return Searched(len(sample.query_images), seconds, sum(len(hits) for hits in found))


def shown_queries(sample: Sample) -> list[int]:
    """Return the first query of each of a few classes."""
    return [int(np.flatnonzero(sample.query_labels == label)[0]) for label in _SHOWN_CLASSES]


def nearest_images(folder: Path, sample: Sample, queries: list[int]) -> list[list[tuple[int, int]]]:
    """Return (image, distance) of the images in the store that are nearest to each of some queries."""
    with Store.open(folder, read_only=True) as store:
        found = store.nearest_batch(sample.query_images[queries], SHOWN_HITS)
    return [[(int(hit.id), hit.distance) for hit in hits] for hits in found]
