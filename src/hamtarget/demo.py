"""The whole way in one go: learn codes from bundled images, search them, and compare with LSH and ITQ.

python -m hamtarget.demo --out out
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hamtarget import metrics, planning
from hamtarget.baselines import ITQ, LSH
from hamtarget.data import FASHION_CLASSES, Sample, fashion_sample
from hamtarget.learn import HashEncoder
from hamtarget.learn import Progress as TrainingProgress
from hamtarget.paper.provenance import provenance, write_json
from hamtarget.protocol import Encoder
from hamtarget.search import Hits, MultiIndex

SHOWN_QUERIES = 5
SHOWN_HITS = 9


@dataclass(frozen=True)
class Score:
    """How well one method's codes find images of the query's class."""

    name: str
    precision: float
    recall: float
    mean_average_precision: float
    hits: float
    candidates: float


def main() -> None:
    """Train, encode, search, print a table and write a picture."""
    parser = argparse.ArgumentParser(
        prog="python -m hamtarget.demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder for the model, the picture and the numbers"
    )
    parser.add_argument("--bits", type=int, default=32, help="length of a code (default: 32)")
    parser.add_argument("--radius", type=int, default=2, help="Hamming distance target (default: 2)")
    parser.add_argument("--steps", type=int, default=300, help="training steps (default: 300)")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    console = Console()
    began = time.perf_counter()
    sample = fashion_sample()
    console.print(
        f"[bold]hamtarget demo[/]: {len(sample.images):,} images of Fashion-MNIST to learn from and search in, "
        f"{len(sample.query_images):,} others to search with"
    )

    encoder = HashEncoder(
        arguments.bits, arguments.radius, dissimilar_weight=30.0, steps=arguments.steps, width=16, seed=arguments.seed
    )
    _fit(encoder, sample, console)
    encoder.save(arguments.out / "model")
    methods: list[tuple[str, Encoder]] = [
        ("HDT (hamtarget)", encoder),
        ("ITQ", ITQ(arguments.bits, seed=arguments.seed).fit(sample.images)),
        ("LSH", LSH(arguments.bits, seed=arguments.seed).fit(sample.images)),
    ]
    scores = [_score(name, method, sample, arguments.radius) for name, method in methods]
    console.print(_table(scores, arguments.bits, arguments.radius))

    queries = _one_of_each_class(sample.query_labels)
    index = MultiIndex(arguments.bits, arguments.radius)
    index.add(np.arange(len(sample.images)), encoder.encode(sample.images))
    # Several queries at once give Hits; one alone would give its hits themselves.
    found = cast(Hits, index.nearest(encoder.encode(sample.query_images[queries]), SHOWN_HITS))
    nearest = [[(hit.id, hit.distance) for hit in hits] for hits in found]
    picture = arguments.out / "demo.png"
    _draw(picture, sample, queries, nearest)
    write_json(
        arguments.out / "demo.json",
        {
            "provenance": provenance(seed=arguments.seed),
            "setting": {"n_bits": arguments.bits, "radius": arguments.radius, "steps": arguments.steps},
            "scores": [vars(score) for score in scores],
        },
    )
    console.print(f"Picture: {picture}   Model: {arguments.out / 'model'}   Numbers: {arguments.out / 'demo.json'}")
    console.print(f"Done in {time.perf_counter() - began:.0f} s.")


def _fit(encoder: HashEncoder, sample: Sample, console: Console) -> None:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("loss {task.fields[loss]}"), console=console) as bar:
        task = bar.add_task("Learning codes", total=encoder.steps, loss="...")

        def show(state: TrainingProgress) -> None:
            bar.update(task, completed=state.step, loss=f"{state.loss:.3f}")

        encoder.fit(sample.images, sample.labels, progress=show)


def _score(name: str, encoder: Encoder, sample: Sample, radius: int) -> Score:
    n_bits = encoder.n_bits
    database, queries = encoder.encode(sample.images), encoder.encode(sample.query_images)
    relevant = metrics.by_label(sample.query_labels, sample.labels)
    curve = metrics.precision_recall_by_radius(queries, database, relevant, n_bits=n_bits, max_radius=radius)
    cost = planning.measured_candidates(queries, database, n_bits=n_bits, radius=radius)
    return Score(
        name=name,
        precision=float(curve.precision[radius]),
        recall=float(curve.recall[radius]),
        mean_average_precision=metrics.mean_average_precision(queries, database, relevant, n_bits=n_bits, k=1000),
        hits=float(curve.hits[radius]),
        candidates=float(cost.candidates.mean()),
    )


def _table(scores: list[Score], n_bits: int, radius: int) -> Table:
    table = Table(
        title=f"{n_bits}-bit codes: images of the query's class among those within {radius} bits",
        caption="hits: images within the radius; candidates: images that exact look-up in "
        f"{radius + 1} substring tables reads. MAP: over the first 1,000, ties in random order.",
    )
    table.add_column("method")
    for heading in ("precision", "recall", "MAP@1000", "hits", "candidates"):
        table.add_column(heading, justify="right")
    for score in scores:
        figures = (score.precision, score.recall, score.mean_average_precision)
        table.add_row(score.name, *(f"{x:.3f}" for x in figures), f"{score.hits:,.0f}", f"{score.candidates:,.0f}")
    return table


def _one_of_each_class(labels: NDArray[Any]) -> list[int]:
    """The first query of each of the first classes that are not alike to the eye."""
    return [int(np.flatnonzero(labels == label)[0]) for label in (0, 1, 3, 8, 9)][:SHOWN_QUERIES]


def _draw(path: Path, sample: Sample, queries: list[int], nearest: list[list[tuple[int, int]]]) -> None:
    """A row for each query: the query, then its nearest images, framed by whether the class is the same."""
    # Drawn without a display, whatever backend the user's settings name.
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    columns = 1 + SHOWN_HITS
    figure = Figure(figsize=(columns * 1.05, len(queries) * 1.32), layout="constrained")
    axes = figure.subplots(len(queries), columns)
    for row, (query, hits) in enumerate(zip(queries, nearest, strict=True)):
        label = sample.query_labels[query]
        images = [(sample.query_images[query], f"query: {FASHION_CLASSES[label]}", "black")]
        for item, distance in hits:
            same = sample.labels[item] == label
            text = f"{distance} bit{'' if distance == 1 else 's'}"
            images.append((sample.images[item], text, "#2a7f3f" if same else "#c0392b"))
        for axis, (image, text, colour) in zip(axes[row], images, strict=True):
            axis.imshow(255 - image, cmap="gray", vmin=0, vmax=255)
            axis.set_title(text, fontsize=7.5, color=colour)
            axis.set_axis_off()
            axis.add_patch(Rectangle((-0.5, -0.5), 28, 28, fill=False, edgecolor=colour, linewidth=2.5))
    figure.suptitle("Nearest by Hamming distance; green: same class as the query, red: another", fontsize=9)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
