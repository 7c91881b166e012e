"""Draw recall against speed, as the benchmark of nearest neighbours measured them: a panel for each set.

python -m research.benchmarks.neighbors_plot research/results/neighbors/*.json --out neighbors.png
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from research.benchmarks.neighbors_results import CURVE, Clock, frontier, points_of, read_result
from research.peers.libraries import LIBRARIES, OURS

_COLUMNS = 3
_LEAST_RECALL = 0.7
_COLORS = ("#c1121f", "#1f77b4", "#2ca02c", "#9467bd", "#8c564b", "#bcbd22", "#e377c2", "#17becf")


def draw(results: Sequence[Mapping[str, Any]], path: Path, *, clock: Clock = "seconds") -> None:
    """Draw the curves of all libraries, each library by the best of its indexes at every recall."""
    columns = min(_COLUMNS, len(results))
    lines = -(-len(results) // columns)
    figure, panels = pyplot.subplots(lines, columns, figsize=(5 * columns, 4 * lines), squeeze=False)
    for panel, result in zip(panels.flat, results, strict=False):
        _draw_set(panel, result, clock)
    for panel in list(panels.flat)[len(results) :]:
        panel.axis("off")
    handles = {
        label: handle for panel in panels.flat for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncols=len(handles), frameon=False)
    figure.tight_layout(rect=(0, 0.05, 1, 1))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _draw_set(panel: Axes, result: Mapping[str, Any], clock: Clock) -> None:
    points = points_of(result, clock=clock)
    for color, library in zip(_COLORS, LIBRARIES, strict=True):
        own = [point for point in points if point.library == library]
        curve = [point for point in frontier(own, CURVE) if point.recall >= _LEAST_RECALL]
        if not curve:
            continue
        ours = library == OURS
        panel.plot(
            [point.recall for point in curve],
            [point.queries_per_second for point in curve],
            color=color,
            label=library,
            linewidth=2.8 if ours else 1.4,
            marker="o" if ours else ".",
            markersize=5 if ours else 4,
            zorder=3 if ours else 2,
        )
    setting = result["setting"]
    panel.set_title(f"{setting['set']}: {setting['n_rows']:,} x {setting['n_dims']}, {setting['metric']}", fontsize=10)
    panel.set_yscale("log")
    panel.set_xlim(_LEAST_RECALL, 1.005)
    panel.set_xlabel("recall, 10 of 10")
    panel.set_ylabel("queries a second, one thread")
    panel.grid(alpha=0.3, which="both")


def main() -> None:
    """Draw the files that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="result files")
    parser.add_argument("--out", type=Path, required=True, help="the picture")
    parser.add_argument("--cpu", action="store_true", help="speeds by CPU time, for a machine with other work")
    options = parser.parse_args()
    draw(
        [read_result(path) for path in options.results], options.out, clock="cpu_seconds" if options.cpu else "seconds"
    )


if __name__ == "__main__":
    main()
