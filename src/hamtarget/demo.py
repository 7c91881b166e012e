"""The steps of `hamtarget demo` on the bundled images: learn, store, search, compare, find duplicates, draw."""

from __future__ import annotations

import importlib.util
import io
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hamtarget._files import write_atomically
from hamtarget.datasets.sample import Sample
from hamtarget.encoders import ITQ, LSH
from hamtarget.encoders.linear import LinearEncoder
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import FileError, MissingExtraError
from hamtarget.evaluation import metrics
from hamtarget.evaluation.metrics import RadiusCurve
from hamtarget.search import planning
from hamtarget.store import Store

if TYPE_CHECKING:
    from hamtarget.learn import HashEncoder
    from hamtarget.learn.training.checkpoint import TrainingProgress

SHOWN_HITS = 9
# Classes that look different to the eye.
_SHOWN_CLASSES = (0, 1, 3, 8, 9)
_COPY_BITS, _COPY_RADIUS = 64, 4
_PLANTED = 100
_SAME, _OTHER, _INK = "#2a7f3f", "#c0392b", "black"


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


def check_installed() -> None:
    """Check that everything the demo needs is there, before it learns for a minute.

    Raises:
        MissingExtraError: a package is not installed.
    """
    missing = [name for name in ("torch", "safetensors", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"the demo needs {' and '.join(missing)}: pip install 'hamtarget[demo]'")


def learn(
    sample: Sample, settings: DemoSettings, progress: Callable[[TrainingProgress], None] | None = None
) -> HashEncoder:
    """Train an encoder on the sample's images and labels."""
    from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions

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


@dataclass(frozen=True)
class DuplicateCount:
    """The result of a search for copies that were planted among the images.

    Attributes:
        planted: number of altered copies among the images.
        found: number of them that were found within the radius of their original.
        other_pairs: number of pairs within the radius that are not an image and its copy.
        all_pairs: number of all pairs of images.
        shown: a few of the pairs that were found, as numbers (original, copy) of `images`.
        images: all images that were searched, the copies last.
    """

    planted: int
    found: int
    other_pairs: int
    all_pairs: int
    shown: tuple[tuple[int, int], ...]
    images: NDArray[np.uint8]


def altered(images: NDArray[np.uint8], rng: np.random.Generator) -> NDArray[np.uint8]:
    """Return copies that are brighter or darker, with noise."""
    light = rng.uniform(0.8, 1.1, (len(images), 1, 1))
    return np.clip(images * light + rng.normal(0, 8, images.shape), 0, 255).astype(np.uint8)


def find_duplicates(
    folder: Path,
    sample: Sample,
    *,
    steps: int,
    seed: int,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> DuplicateCount:
    """Plant altered copies among the images, and find them by codes that learned from other copies of the images.

    Args:
        folder: where a store of the images and the copies is created.
        sample: the images.
        steps: batches to train on.
        seed: of all random choices.
        progress: called during training.
    """
    from hamtarget.learn import HammingTargetLoss, HashEncoder, NetworkOptions, TrainingOptions

    rng = np.random.default_rng(seed)
    n_images = len(sample.images)
    encoder = HashEncoder(
        loss=HammingTargetLoss(_COPY_BITS, _COPY_RADIUS, dissimilar_weight=3000.0),
        network=NetworkOptions(width=128),
        training=TrainingOptions(steps=steps, group_size=2),
        seed=seed,
    )
    rows = np.concatenate([sample.images, altered(sample.images, rng)])
    encoder.fit(_flat(rows), np.tile(np.arange(n_images), 2), progress=progress)

    originals = np.sort(rng.permutation(n_images)[:_PLANTED])
    images = np.concatenate([sample.images, altered(sample.images[originals], rng)])
    copies = np.arange(n_images, len(images))
    with new_store(folder, encoder) as store:
        store.put_rows(np.arange(len(images)), inputs=_flat(images))
        pairs = {(int(pair.a), int(pair.b)) for pair in store.near_duplicates(_COPY_RADIUS)}
    planted = list(zip(originals.tolist(), copies.tolist(), strict=True))
    found = [pair for pair in planted if pair in pairs]
    return DuplicateCount(
        planted=len(planted),
        found=len(found),
        other_pairs=len(pairs) - len(found),
        all_pairs=len(images) * (len(images) - 1) // 2,
        shown=tuple(found[:: max(1, len(found) // 5)][:5]),
        images=images,
    )


def _flat(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return images.reshape(len(images), -1)


def draw_demo(
    path: Path,
    sample: Sample,
    queries: list[int],
    nearest: list[list[tuple[int, int]]],
    scores: list[Score],
    *,
    radius: int,
    duplicates: DuplicateCount,
) -> None:
    """Draw the picture to `path`.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        # A Figure of its own needs no display, whatever backend the user's settings name.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib is not installed; to draw: pip install 'hamtarget[demo]'") from error
    figure = Figure(figsize=(14.5, 6.6), layout="constrained")
    parts: Any = figure.subfigures(1, 2, width_ratios=(2.2, 1))
    left, right = parts
    _draw_nearest(left, sample, queries, nearest)
    above, below = right.subfigures(2, 1, height_ratios=(2, 1))
    _draw_curves(above, scores, radius)
    _draw_copies(below, duplicates)
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=110)
    write_atomically(path, picture.getvalue())


def _draw_nearest(figure: Any, sample: Sample, queries: list[int], nearest: list[list[tuple[int, int]]]) -> None:
    """Draw a row for each query: the query, then its nearest images, framed in green if the class is the same."""
    axes = figure.subplots(len(queries), 1 + SHOWN_HITS)
    for row, (query, hits) in enumerate(zip(queries, nearest, strict=True)):
        label = sample.query_labels[query]
        _draw_image(axes[row][0], sample.query_images[query], f"query: {sample.class_names[label]}", _INK)
        for axis, (item, distance) in zip(axes[row][1:], hits, strict=True):
            same = sample.labels[item] == label
            _draw_image(axis, sample.images[item], _in_bits(distance), _SAME if same else _OTHER)
    figure.suptitle("Nearest by Hamming distance; green: same class as the query, red: another", fontsize=10)


def _draw_curves(figure: Any, scores: list[Score], radius: int) -> None:
    axis = figure.subplots()
    for score in scores:
        shown = score.curve.hits > 0
        axis.plot(score.curve.recall[shown], score.curve.precision[shown], label=score.name)
        axis.plot(score.recall, score.precision, "o", color=axis.lines[-1].get_color())
    axis.set(xlabel="recall", ylabel="precision", xlim=(0, 1.02), ylim=(0, 1.02))
    axis.set_title(f"All radii; dots: within {_in_bits(radius)}", fontsize=10)
    axis.legend(fontsize=9)


def _draw_copies(figure: Any, duplicates: DuplicateCount) -> None:
    columns = max(1, len(duplicates.shown))
    axes = figure.subplots(2, columns, squeeze=False)
    for axis in axes.flat:
        axis.set_axis_off()
    for column, (original, copy) in enumerate(duplicates.shown):
        _draw_image(axes[0][column], duplicates.images[original], "", _INK)
        _draw_image(axes[1][column], duplicates.images[copy], "", _INK)
    figure.suptitle(f"Altered copies: {duplicates.found} of {duplicates.planted} found", fontsize=10)


def _draw_image(axis: Any, image: NDArray[Any], title: str, colour: str) -> None:
    from matplotlib.patches import Rectangle

    height, width = image.shape
    axis.imshow(255 - image, cmap="gray", vmin=0, vmax=255)
    axis.set_title(title, fontsize=7.5, color=colour)
    axis.set_axis_off()
    axis.add_patch(Rectangle((-0.5, -0.5), width, height, fill=False, edgecolor=colour, linewidth=2.0))


def _in_bits(distance: int) -> str:
    return f"{distance} bit{'' if distance == 1 else 's'}"
