"""Figure 4, measured anew and extended: recall@100 against comparisons, speed and memory.

Curves: HDT-E over lambda (the paper's loss), codes of this project by query-directed probing over the budget, ITQ and
LSH by the same probing, and faiss's indexes. Everything is measured in one run on one thread, starting with the
queries' vectors, so that encoding is part of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hamtarget.encoders import ITQ, LSH
from hamtarget.encoders.linear import LinearEncoder
from hamtarget.encoders.protocol import Encoder
from hamtarget.errors import MissingExtraError
from hamtarget.evaluation.provenance import provenance, write_json
from research.datasets.vector_sets import VectorSet
from research.paper.lookup import K
from research.paper.peers import measure_peers
from research.paper.probing import ProbedIndex, Ranking
from research.paper.table2 import measure, table2_records
from research.paper.vector_codes import NamedProgress
from research.paper.vector_models import (
    FAST,
    FINE,
    LAMBDAS,
    N_BITS,
    WIDE_LAMBDAS,
    WIDE_RADIUS,
    Training,
    fast_model,
    probing_model,
)
from research.peers.faiss_peers import faiss_version, figure4_peers

BUDGETS = (2000, 4000, 5000, 6000, 7000, 8000, 12000)
# One of this many rows read is compared.
THINNED = (12, 6)
# Rows converted at a time.
_ROWS = 65_536
Tell = Callable[[dict[str, Any]], None]


def lookup_curves(
    vectors: VectorSet,
    models: Path,
    training: Training,
    *,
    known: list[dict[str, Any]],
    progress: NamedProgress | None = None,
) -> list[dict[str, Any]]:
    """Measure HDT-E over lambda at 64 bits: with the paper's loss, and with our estimate of P at radius 2 and 4.

    `known` are records of table 2 from the same models; what they hold is not measured again.
    """
    ways = (
        ("the paper's loss", "angle", 2, LAMBDAS),
        ("soft bits", "soft_bits", 2, LAMBDAS),
        (f"soft bits, radius {WIDE_RADIUS}", "soft_bits", WIDE_RADIUS, WIDE_LAMBDAS),
    )
    curves = []
    for name, way, radius, lambdas in ways:
        wanted = {"way": way, "n_bits": N_BITS, "radius": radius, "steps": training.steps, "seed": training.seed}
        points = [record for record in known if wanted.items() <= record.items()]
        if len(points) < len(lambdas):
            points = measure(
                vectors, models, training, lengths=((N_BITS, radius),), lambdas=lambdas, ways=(way,), progress=progress
            )
        curves.append({"method": f"HDT-E, {name}", "points": points})
    return curves


def probing_curves(
    vectors: VectorSet,
    models: Path,
    training: Training,
    *,
    repeats: int,
    tell: Tell,
    progress: NamedProgress | None = None,
) -> list[dict[str, Any]]:
    """Probe codes of this project, ITQ and LSH over the budget; `tell` gets each curve as soon as it is measured."""
    fine, fast = (
        model.trained(vectors, models, progress=progress).encoder
        for model in (probing_model(FINE, training), fast_model(training))
    )
    learned: dict[str, tuple[Encoder | LinearEncoder, int, tuple[Ranking, ...]]] = {
        f"hamtarget, {FAST} substrings": (fast, FAST, ("vectors", "logits")),
        f"hamtarget, {FINE} substrings": (fine, FINE, ("vectors",)),
        "ITQ": (ITQ(N_BITS, seed=training.seed).fit(vectors.learn), FAST, ("vectors",)),
        "LSH": (LSH(N_BITS, seed=training.seed).fit(vectors.learn), FAST, ("vectors",)),
    }
    settings = [(budget, max(K, budget // thin)) for budget in BUDGETS for thin in THINNED]
    curves = []
    for method, (encoder, substrings, rankings) in learned.items():
        for ranking in rankings:
            probed = ProbedIndex.of(encoder, vectors, substrings=substrings, ranking=ranking)
            curve = {
                "method": f"{method}, ranked by {ranking}",
                "points": probed.measure(vectors, settings, repeats=repeats),
            }
            curves.append(curve)
            tell(curve)
    return curves


def peer_curves(
    vectors: VectorSet, *, repeats: int, cache: Path | None, seed: int, report: Callable[[str], None] | None = None
) -> list[dict[str, Any]]:
    """Measure the curves of faiss's indexes. Centroids that a query is compared with count as comparisons."""
    peers = figure4_peers(whole_bytes=vectors.base.dtype == np.uint8)
    rows = measure_peers(peers, vectors, k=K, repeats=repeats, seed=seed, cache=cache, report=report)
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        point = {
            "setting": row["setting"],
            "recall_at_100": row["recall"],
            "comparisons": row["rows"] + row["centroids"],
            "centroids": row["centroids"],
            "refined": row["refined"],
            "queries_per_second": row["queries_per_second"],
            "queries_per_cpu_second": row["queries_per_cpu_second"],
            "bytes_per_row": row["bytes_per_row"],
        }
        curves.setdefault(row["peer"], []).append(point)
    return [{"method": f"faiss {name}", "points": points} for name, points in curves.items()]


def write_figure4(
    vectors: VectorSet,
    out: Path,
    models: Path,
    training: Training,
    lookup_training: Training,
    *,
    repeats: int = 5,
    peers: Path | None = None,
    progress: NamedProgress | None = None,
    report: Callable[[str], None] | None = None,
) -> list[dict[str, Any]]:
    """Measure all curves, and write figure4.json (also after every curve) and three pictures to `out`.

    Args:
        vectors: the set.
        out: folder for the results.
        models: folder of trained models; a model in it is not trained again.
        training: how long models for probing are trained.
        lookup_training: the same for models for look-up within a radius.
        repeats: number of timings of each search; the median counts.
        peers: folder of built faiss indexes.
        progress: called with the name of the work, how much is done, and how much there is.
        report: called with a line of text for each curve.
    """
    vectors = as_bytes(vectors)
    curves: list[dict[str, Any]] = []

    def note(curve: dict[str, Any]) -> None:
        curves.append(curve)
        origin = provenance(seed=training.seed)
        origin["versions"]["faiss"] = faiss_version()
        told = {"data": vectors.name, "curves": curves, "provenance": origin, "repeats": repeats}
        write_json(out / "figure4.json", {**told, "at_recall_0.95": fastest(curves, 0.95)})
        if report is not None:
            report(f"{curve['method']}: {len(curve['points'])} points")

    probing_curves(vectors, models, training, repeats=repeats, tell=note, progress=progress)
    for curve in peer_curves(vectors, repeats=repeats, cache=peers, seed=training.seed, report=report):
        note(curve)
    known = table2_records(out, vectors)
    for curve in lookup_curves(vectors, models, lookup_training, known=known, progress=progress):
        note(curve)
    draw(curves, out)
    return curves


def as_bytes(vectors: VectorSet) -> VectorSet:
    """Return the set in bytes if all its numbers are whole and from 0 to 255, as in SIFT files of floats."""
    parts = (vectors.learn, vectors.base, vectors.queries)
    for part in parts:
        for start in range(0, len(part), _ROWS):
            block = np.asarray(part[start : start + _ROWS])
            if block.dtype != np.uint8 and not ((block >= 0) & (block <= 255) & (block == np.rint(block))).all():
                return vectors
    learn, base, queries = (np.asarray(part).astype(np.uint8, copy=False) for part in parts)
    return VectorSet(learn, base, queries, vectors.neighbors, vectors.name)


def fastest(curves: list[dict[str, Any]], recall: float) -> list[dict[str, Any]]:
    """Return the fastest point of each curve that has at least this recall, fastest first."""
    best = []
    for curve in curves:
        good = [point for point in curve["points"] if point["recall_at_100"] >= recall]
        if good:
            point = max(good, key=lambda point: point["queries_per_second"])
            best.append({"method": curve["method"], **point})
    return sorted(best, key=lambda point: -point["queries_per_second"])


def text(curves: list[dict[str, Any]], recall: float = 0.95) -> str:
    """Return the fastest point of each method at a recall as lines of text."""
    best = fastest(curves, recall)
    width = max((len(point["method"]) for point in best), default=0)
    lines = [f"{f'recall@100 >= {recall}':<{width}}  recall  queries/s  comparisons  bytes a row  setting"]
    for point in best:
        setting = ", ".join(f"{name} {value}" for name, value in point.get("setting", {}).items())
        lines.append(
            f"{point['method']:<{width}}  {point['recall_at_100']:.4f}  {point['queries_per_second']:>9,.0f}  "
            f"{point['comparisons']:>11,.0f}  {point.get('bytes_per_row', 0):>11.1f}  {setting}"
        )
    return "\n".join(lines) + "\n"


def draw(curves: list[dict[str, Any]], folder: Path) -> list[Path]:
    """Draw three pictures: recall against comparisons, queries per second, and bytes per row.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("the picture needs matplotlib: pip install 'hamtarget[plot]'") from error
    matplotlib.use("agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    axes_of = {
        "figure4": ("comparisons", "rows whose distance to the query is computed, a query"),
        "figure4_speed": ("queries_per_second", "queries a second, one thread, encoding included"),
        "figure4_memory": ("bytes_per_row", "bytes stored a row, vectors or embeddings included"),
    }
    paths = []
    folder.mkdir(parents=True, exist_ok=True)
    for name, (key, label) in axes_of.items():
        figure, axes = pyplot.subplots(figsize=(9, 6), layout="constrained")
        for number, curve in enumerate(curves):
            points = [point for point in curve["points"] if key in point]
            if not points:
                continue
            points = sorted(points, key=lambda point: point[key])
            if "dissimilar_weight" not in points[0]:
                points = _front(points, more_is_better=key == "queries_per_second")
            axes.plot(
                [point[key] for point in points],
                [point["recall_at_100"] for point in points],
                "o-" if key != "bytes_per_row" else "o",
                color=_colour(curve["method"], number),
                linewidth=2.2 if curve["method"].startswith("hamtarget") else 1.1,
                markersize=4,
                label=curve["method"],
            )
        axes.set_xscale("log")
        whole = FuncFormatter(lambda value, _: f"{value:,.0f}")
        axes.xaxis.set_major_formatter(whole)
        if key == "bytes_per_row":
            # An axis of less than two powers of ten needs labels in between.
            axes.xaxis.set_minor_formatter(whole)
        axes.set_xlabel(label)
        axes.set_ylabel("recall@100: the true neighbour is among 100 rows returned")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="lower right" if key != "queries_per_second" else "lower left")
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=130)
        pyplot.close(figure)
    return paths


def _front(points: list[dict[str, Any]], *, more_is_better: bool) -> list[dict[str, Any]]:
    """Return the points that no other one beats, given points in ascending order of cost or speed."""
    kept: list[dict[str, Any]] = []
    for point in reversed(points) if more_is_better else points:
        if not kept or point["recall_at_100"] > kept[-1]["recall_at_100"]:
            kept.append(point)
    return kept


def _colour(method: str, number: int) -> str:
    """Return a method's colour: green for this project, blue for the paper, warm colours for peers."""
    if method.startswith("hamtarget"):
        if f"{FINE} substrings" in method:
            return "#8fce9f"
        return "#0b6e4f" if "vectors" in method else "#2fa8a0"
    if method.startswith("HDT-E"):
        return "#27557a" if "paper" in method else "#7fa6c4"
    if method.startswith(("ITQ", "LSH")):
        return "#8a8a8a" if method.startswith("ITQ") else "#bdbdbd"
    warm = ("#d9643a", "#e8a33d", "#b5485d", "#9a7fb8", "#c9b458", "#7a5ea8", "#a0522d", "#c07aa5")
    return warm[number % len(warm)]
