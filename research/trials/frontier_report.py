"""Sum up the runs of `sift_frontier` over seeds, check some by the whole base, and draw them beside the paper's."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hamtarget.errors import InputError, MissingExtraError
from hamtarget.evaluation.provenance import provenance, write_json
from research.datasets.vector_sets import open_vector_set
from research.paper.lookup import exact_lookup
from research.trials.frontier_ensemble import RADIUS
from research.trials.sift_frontier import (
    LAMBDAS,
    LONG,
    N_QUERIES,
    N_ROWS,
    RUNS,
    SHORT,
    KeptEncoder,
    model_name,
    setting_of,
)

# recall@100 and comparisons of 64 bits, r = 2: the first three as table 2 prints them, the others as comments in the
# paper's source have them. Figure 4 draws all six.
PAPER = {
    100.0: (0.901, 42851.0),
    300.0: (0.781, 12709.0),
    1000.0: (0.645, 4105.0),
    3000.0: (0.499, 1339.0),
    10000.0: (0.330, 299.0),
    30000.0: (0.243, 171.0),
}
_SCORES = (
    "recall_at_100",
    "nearest_within",
    "comparisons",
    "candidates",
    "predicted_comparisons",
    "predicted_nearest_within",
    "distance",
    "predicted_distance",
    "spread",
    "bit_correlation",
    "independent_bits",
)
# The recall of each way to rank: by the stored vectors, a neighbour within the radius is always among the first.
_RANKINGS = {"logits": "recall_at_100", "vectors": "nearest_within"}
# Models to check, by (steps, name).
_CHECKED = [
    (SHORT, "soft_bits, per_kind, lambda 100"),
    (SHORT, "angle, per_kind, lambda 3000"),
    (SHORT, "soft_bits, per_kind, lambda 10"),
    (LONG, "angle, per_kind, lambda 10000"),
    (LONG, "soft_bits, per_kind, lambda 10"),
]
# Curves of the picture: colour and line.
_LOOKS = {
    "angle, per_kind": ("#27557a", "o"),
    "angle, all_pairs": ("#7fa6c4", "s"),
    "soft_bits, per_kind": ("#0b6e4f", "o"),
    "soft_bits, all_pairs": ("#8fce9f", "s"),
    "angle, per_kind, decorrelated 10": ("#b5485d", "^"),
    "angle, per_kind, decorrelated 100": ("#e8a33d", "v"),
}


def write_report(models: Path, data: Path | None, out: Path, *, minutes: float) -> None:
    """Write `out`/frontier.json and frontier.png.

    Args:
        models: folder that `train` wrote.
        data: folder of the whole set, by which some models are checked; None: those checked before stay.
        out: folder for the results.
        minutes: begin no check later.

    Raises:
        InputError: there are no runs in `models`.
    """
    try:
        told = json.loads((models / RUNS).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"there is no {RUNS} in {models}; run the verb train first") from None
    path = out / "frontier.json"
    checks: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["checks"] if path.exists() else {}
    curves = curves_of(told["runs"])

    def write() -> None:
        result = {
            "at_paper_comparisons": {
                "the paper": {f"lambda {weight:g}": recall for weight, (recall, _) in PAPER.items()},
                "comparisons": {f"lambda {weight:g}": comparisons for weight, (_, comparisons) in PAPER.items()},
                **{
                    f"{name}, ranked by {ranking}": {
                        f"lambda {weight:g}": recall_at(points, PAPER[weight][1], score) for weight in LAMBDAS
                    }
                    for name, points in curves.items()
                    for ranking, score in _RANKINGS.items()
                },
            },
            "checks": checks,
            "n_queries": N_QUERIES,
            "n_rows_scored": N_ROWS,
            "provenance": provenance(seed=0),
            "runs": told["runs"],
            "summary": {name: {_lambda(point): point for point in points} for name, points in curves.items()},
            "trained": told["provenance"],
        }
        write_json(path, result)

    write()
    draw(curves, out / "frontier.png")
    if data is not None:
        began = time.perf_counter()
        vectors = open_vector_set(data)
        some = slice(N_QUERIES)
        vectors = replace(vectors, queries=vectors.queries[some], neighbors=vectors.neighbors[some])
        for steps, name in _CHECKED:
            file = models / f"models-{steps}-seed0.npz"
            if time.perf_counter() - began > 60 * minutes or not file.exists():
                continue
            whole = exact_lookup(KeptEncoder(file, name), vectors, RADIUS)
            # Timed beside other work, and not asked for.
            del whole["queries_per_second"]
            run = _run(told["runs"], steps, name)
            checks[f"{name}, {steps} steps"] = {"whole_base": whole, "drawn_rows": {key: run[key] for key in _SCORES}}
            print(name, steps, whole, flush=True)
            write()


def curves_of(runs: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return means and standard deviations over the seeds, as curves over lambda by name."""
    by_model: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for run in runs:
        curve = f"{model_name(setting_of(run)).rpartition(', lambda')[0]}, {run['steps']} steps"
        by_model.setdefault((curve, run["dissimilar_weight"]), []).append(run)
    curves: dict[str, list[dict[str, Any]]] = {}
    for (curve, weight), seeds in sorted(by_model.items()):
        point: dict[str, Any] = {"dissimilar_weight": weight, "seeds": len(seeds)}
        for score in _SCORES:
            values = [run[score] for run in seeds]
            point[score] = statistics.mean(values)
            point[f"{score}_deviation"] = statistics.stdev(values) if len(values) > 1 else 0.0
        curves.setdefault(curve, []).append(point)
    return curves


def recall_at(points: Sequence[dict[str, Any]], comparisons: float, score: str = "recall_at_100") -> float | None:
    """Return a curve's recall at a number of comparisons, between its points by the logarithm; None beyond its ends.

    Example:
        >>> points = [{"comparisons": 10, "recall_at_100": 0.2}, {"comparisons": 1000, "recall_at_100": 0.6}]
        >>> recall_at(points, 100), recall_at(points, 5)
        (0.4, None)
    """
    ordered = sorted((point["comparisons"], point[score]) for point in points if point["comparisons"] > 0)
    for (few, low), (many, high) in zip(ordered, ordered[1:], strict=False):
        if few <= comparisons <= many:
            share = math.log(comparisons / few) / math.log(many / few) if many > few else 0.0
            between: float = low + share * (high - low)
            return between
    return None


def draw(curves: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """Draw recall against comparisons, and what the loss foresaw against what came.

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

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(14, 6), layout="constrained")
    printed = sorted(PAPER.values(), key=lambda point: point[1])
    left.plot(
        [point[1] for point in printed],
        [point[0] for point in printed],
        "D-",
        color="black",
        label="the paper, its SIFT",
    )
    for name, points in curves.items():
        kind, _, steps = name.rpartition(", ")
        colour, marker = _LOOKS[kind]
        long = steps == f"{LONG} steps"
        look: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "linestyle": "--" if long else "-",
            "fillstyle": "none" if long else "full",
            "markersize": 5,
            "linewidth": 1.3,
        }
        label = f"{kind.replace('_', ' ')}, {int(steps.split()[0]):,} steps"
        shown = sorted((point for point in points if point["comparisons"] > 0), key=lambda point: point["comparisons"])
        left.plot(
            [point["comparisons"] for point in shown],
            [point["recall_at_100"] for point in shown],
            label=label,
            **look,
        )
        if kind.endswith("per_kind"):
            left.plot(
                [point["comparisons"] for point in shown],
                [point["nearest_within"] for point in shown],
                label=f"{label}, ranked by vectors",
                **{**look, "linestyle": ":"},
            )
        both = [point for point in shown if point["predicted_comparisons"] > 0]
        right.plot([point["predicted_comparisons"] for point in both], [point["comparisons"] for point in both], **look)
    whole = FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1 else f"{value:g}")
    left.set(
        xscale="log",
        xlabel="comparisons: rows within 2 bits, of a million",
        ylabel="recall@100: the true neighbour is among the first 100",
    )
    # Fewer rows than one are of no use.
    left.set_xlim(left=1)
    left.xaxis.set_major_formatter(whole)
    left.legend(frameon=False, fontsize=8, loc="upper left")
    right.set(
        xscale="log", yscale="log", xlabel="rows within 2 bits, by the loss's estimate", ylabel="rows within 2 bits"
    )
    right.set(xlim=(1, None), ylim=(1, None))
    low, high = right.get_xlim()
    right.plot([low, high], [low, high], color="#8a8a8a", linewidth=0.8)
    right.annotate("as foreseen", (high, high), ha="right", va="top", color="#6a6a6a", fontsize=9)
    right.xaxis.set_major_formatter(whole)
    right.yaxis.set_major_formatter(whole)
    for axes in (left, right):
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)


def _lambda(point: dict[str, Any]) -> str:
    return f"lambda {point['dissimilar_weight']:g}"


def _run(runs: Sequence[dict[str, Any]], steps: int, name: str) -> dict[str, Any]:
    return next(
        run for run in runs if (run["steps"], run["seed"]) == (steps, 0) and model_name(setting_of(run)) == name
    )
