"""Draw the queries per second of each method on each set.

    python -m research.benchmarks.search_plot research/results/search_speed.json

The picture is written beside the file of results.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

# Our indexes have strong colours, peers pale ones; scans are grey.
_COLOURS = {
    "hamtarget MultiIndex": "#0b6e4f",
    "faiss IndexBinaryMultiHash": "#e8a33d",
    "faiss IndexBinaryHash": "#d9643a",
    "hamtarget FlatIndex": "#4f6d7a",
    "faiss IndexBinaryFlat": "#b7c4cb",
    "faiss IndexBinaryIVF": "#9a7fb8",
    "faiss IndexBinaryHNSW": "#7a5ea8",
    "usearch b1": "#c07aa5",
}
_EXACT = tuple(_COLOURS)[:5]
# The order of the sets in the picture; the keys of a file are sorted.
_SETS = ("SIFT ITQ", "SIFT LSH", "L", "S", "H", "L x 10", "128 bits", "256 bits")


def plot(results: dict[str, Any], path: Path) -> None:
    """Write the picture of `results`, as search_speed.py makes them."""
    figure = pyplot.figure(figsize=(14, 10), layout="constrained")
    grid = figure.add_gridspec(2, 2, height_ratios=[1.25, 1], width_ratios=[1.35, 1])
    sets = {name: results["sets"][name] for name in _SETS if name in results["sets"]}
    _bars(figure.add_subplot(grid[0, :]), sets, "radius_search", _EXACT)
    figure.axes[0].set_title(
        "Everything within a radius, exact: queries a second, one thread", loc="left", weight="bold"
    )
    nearest = {name: found for name, found in sets.items() if "nearest" in found}
    _bars(figure.add_subplot(grid[1, 0]), nearest, "nearest", [_EXACT[0], *_EXACT[3:]])
    figure.axes[1].set_title("The 100 nearest, exact: queries a second", loc="left", weight="bold")
    if "approximate" in results:
        _recalls(figure.add_subplot(grid[1, 1]), results["approximate"])
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _bars(axes: Axes, sets: dict[str, Any], kind: str, methods: tuple[str, ...] | list[str]) -> None:
    """Draw a group of columns for each set, one column for each method at its best setting."""
    width = 0.8 / len(methods)
    for place, method in enumerate(methods):
        for group, found in enumerate(sets.values()):
            rows = [row for row in found[kind]["rows"] if row["method"] == method and row["setting"] != "random ids"]
            if not rows:
                continue
            speed = max(row["queries_per_second"] for row in rows)
            x = group + (place - (len(methods) - 1) / 2) * width
            axes.bar(x, speed, 0.92 * width, color=_COLOURS[method], label=method if group == 0 else None)
            label = axes.annotate(_short(speed), (x, speed), (0, 3), textcoords="offset points", rotation=90, size=8)
            label.set(ha="center", va="bottom", in_layout=False)
    captions = [_caption(name, found) if kind == "radius_search" else name for name, found in sets.items()]
    axes.set_xticks(range(len(sets)), captions, size=9)
    axes.set_xlim(-0.5, len(sets) - 0.5)
    _logarithmic(axes, "y", margin=4)
    axes.legend(loc="upper right", ncols=len(methods), frameon=False, fontsize=9)


def _recalls(axes: Axes, found: dict[str, Any]) -> None:
    """Draw a column for each index that finds the k nearest, exactly or not, with its recall."""
    rows = sorted(found["rows"], key=lambda row: float(row["queries_per_second"]))
    for place, row in enumerate(rows):
        axes.barh(place, row["queries_per_second"], 0.7, color=_COLOURS[row["method"]])
        kind = "exact" if row["exact"] else f"recall {row['recall']:.3f}"
        text = f" {_short(row['queries_per_second'])}, {kind}"
        axes.annotate(text, (row["queries_per_second"], place), va="center", size=8).set_in_layout(False)
    labels = [f"{row['method']}\n{row['setting']}".strip() for row in rows]
    axes.set_yticks(range(len(rows)), labels, size=8)
    _logarithmic(axes, "x", margin=8)
    title = f"The {found['k']} nearest, exact and approximate: {found['set']}"
    axes.set_title(title, loc="left", weight="bold")


def _logarithmic(axes: Axes, direction: str, *, margin: float) -> None:
    """Set a log scale with room for labels beyond the longest column, and short numbers."""
    formatter = FuncFormatter(lambda value, _: _short(value))
    if direction == "y":
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.set_ylim(low / 1.3, high * margin)
        axes.yaxis.set_major_formatter(formatter)
        axes.grid(axis="y", color="#e5e5e5", linewidth=0.7)
    else:
        axes.set_xscale("log")
        low, high = axes.get_xlim()
        axes.set_xlim(low / 1.3, high * margin)
        axes.xaxis.set_major_formatter(formatter)
        axes.grid(axis="x", color="#e5e5e5", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _caption(name: str, found: dict[str, Any]) -> str:
    rows = f"{found['n_rows'] / 1e6:g}M" if found["n_rows"] >= 1e6 else f"{found['n_rows']:,}"
    shape = f"{rows} x {found['n_bits']} bits, r={found['radius']}"
    return f"{name}\n{shape}\n{found['candidates']['mean']:,.0f} candidates\n{found['hits']['mean']:,.0f} hits"


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.3g}"


def main() -> None:
    """Draw a file of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the file that search_speed.py wrote")
    source: Path = parser.parse_args().results
    plot(json.loads(source.read_text(encoding="utf-8")), source.with_suffix(".png"))


if __name__ == "__main__":
    main()
