"""Learn codes of labelled images, keep them in a store, search it, and compare with other methods."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hamtarget.datasets import FASHION_CLASSES, Sample
from hamtarget.encoders import ITQ, LSH
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import FileError
from hamtarget.evaluation import metrics
from hamtarget.evaluation.metrics import RadiusCurve
from hamtarget.learn import HashEncoder, Progress
from hamtarget.search import planning
from hamtarget.store import Store

SHOWN_HITS = 9
# Classes that are not alike to the eye.
_SHOWN_CLASSES = (0, 1, 3, 8, 9)


@dataclass(frozen=True)
class DemoSettings:
    """What the demo does.

    Attributes:
        n_bits: bits of a code.
        radius: the Hamming distance target.
        steps: batches to train on.
        seed: of everything that is random.
    """

    n_bits: int = 32
    radius: int = 2
    steps: int = 300
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Score:
    """How well one method's codes find images of the query's class."""

    name: str
    precision: float
    recall: float
    mean_average_precision: float
    hits: float
    candidates: float
    curve: RadiusCurve


@dataclass(frozen=True)
class Stored:
    """How putting images into the store went."""

    items: int
    seconds: float


@dataclass(frozen=True)
class Searched:
    """How searching the store for every query went."""

    queries: int
    seconds: float
    hits: int


def learn(sample: Sample, settings: DemoSettings, progress: Callable[[Progress], None] | None = None) -> HashEncoder:
    """An encoder that has learned from the labels of the sample's images."""
    encoder = HashEncoder(
        settings.n_bits,
        settings.radius,
        dissimilar_weight=30.0,
        steps=settings.steps,
        width=16,
        seed=settings.seed,
    )
    return encoder.fit(sample.images, sample.labels, progress=progress)


def others(sample: Sample, settings: DemoSettings) -> list[tuple[str, Encoder]]:
    """Methods to compare with, by name; they learn from the images alone."""
    return [
        ("ITQ", ITQ(settings.n_bits, seed=settings.seed).fit(sample.images)),
        ("LSH", LSH(settings.n_bits, seed=settings.seed).fit(sample.images)),
    ]


def score(name: str, encoder: Encoder, sample: Sample, radius: int) -> Score:
    """How well the encoder's codes find images of the query's class within the radius."""
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
    """An empty store at `folder`; one of an earlier demo is removed.

    Raises:
        FileError: there is something else than a store.
    """
    if folder.exists():
        if not (folder / "store.db").exists():
            raise FileError(f"{folder} is there, and is no store; expected an earlier demo's: pass another --out")
        shutil.rmtree(folder)
    return Store.create(folder, encoder=encoder)


def store_images(folder: Path, encoder: HashEncoder, sample: Sample) -> Stored:
    """How long it took to put all images into a new store at `folder`.

    Raises:
        FileError: there is something else than a store.
    """
    payloads = [{"label": FASHION_CLASSES[label]} for label in sample.labels]
    began = time.perf_counter()
    with new_store(folder, encoder) as store:
        store.put_rows(np.arange(len(sample.images)), inputs=sample.images, payloads=payloads)
        items = len(store)
    return Stored(items, time.perf_counter() - began)


def search_store(folder: Path, sample: Sample) -> Searched:
    """How long it took to find everything within the store's radius of every query, encoding included."""
    with Store.open(folder, read_only=True) as store:
        began = time.perf_counter()
        found = store.search_batch(sample.query_images)
        seconds = time.perf_counter() - began
    return Searched(len(sample.query_images), seconds, sum(len(hits) for hits in found))


def shown_queries(sample: Sample) -> list[int]:
    """The first query of each of a few classes."""
    return [int(np.flatnonzero(sample.query_labels == label)[0]) for label in _SHOWN_CLASSES]


def nearest_images(folder: Path, sample: Sample, queries: list[int]) -> list[list[tuple[int, int]]]:
    """(image, distance) of the nearest images in the store to each of some queries."""
    with Store.open(folder, read_only=True) as store:
        found = store.nearest_batch(sample.query_images[queries], SHOWN_HITS)
    return [[(int(hit.id), hit.distance) for hit in hits] for hits in found]
