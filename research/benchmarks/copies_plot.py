"""Draw the recall of each picture hash for each alteration, and the mean recall against false pairs.

python -m research.benchmarks.copies_plot research/results/copies_recall.json docs/images/copies.png
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
import numpy as np
from matplotlib import pyplot
from matplotlib.axes import Axes

from research.datasets.altered_photos import ALTERATIONS

# Learned hashes have strong colours, classic ones pale.
_COLOURS = {"phash": "#e8a33d", "dhash": "#d9643a", "pdq": "#9a7fb8", "copies64": "#0b6e4f", "copies256": "#14a37f"}
_RATE = "1e-06"


def plot(results: dict[str, Any], path: Path) -> None:
    """Write the picture of `results`, as copies_recall.py makes them."""
    figure, (table, curves) = pyplot.subplots(
        1, 2, figsize=(13, 7), layout="constrained", gridspec_kw={"width_ratios": [1.15, 1]}
    )
    _table(table, results["hashes"])
    _curves(curves, results)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def _table(axes: Axes, hashes: dict[str, Any]) -> None:
    """Draw a cell for each hash and alteration, as dark as the recall is high."""
    names = [name for name in _COLOURS if name in hashes]
    cells = np.array([[hashes[name]["at_rates"][_RATE]["recall"][kind] for name in names] for kind in ALTERATIONS])
    axes.imshow(cells, cmap="BuGn", vmin=0, vmax=1.15, aspect="auto")
    for (row, column), value in np.ndenumerate(cells):
        colour = "white" if value > 0.75 else "#333333"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", size=9, color=colour)
    radii = [hashes[name]["at_rates"][_RATE] for name in names]
    captions = [f"{name}\nwithin {at['radius']}\nmean {at['mean']:.3f}" for name, at in zip(names, radii, strict=True)]
    axes.set_xticks(range(len(names)), captions, size=9)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(ALTERATIONS)), list(ALTERATIONS), size=9)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_xlabel("Share of altered copies that are found; one false pair in a million")


def _curves(axes: Axes, results: dict[str, Any]) -> None:
    """Draw the mean recall against the share of false pairs, radius by radius."""
    for name, colour in _COLOURS.items():
        facts = results["hashes"].get(name)
        if facts is None:
            continue
        share, recall = np.array(facts["share_within"]), np.array(facts["recall_within"])
        seen = (share > 0) & (share < 1e-2)
        axes.plot(share[seen], recall[seen], color=colour, marker=".", label=f"{name}, {facts['n_bits']} bits")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel(f"Share of {results['pairs']:,} pairs of different photos within the radius")
    axes.set_ylabel("Mean recall of all alterations")
    axes.grid(color="#e5e5e5", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(loc="lower right", frameon=False)


def main() -> None:
    """Draw a file of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="the file that copies_recall.py wrote")
    parser.add_argument("picture", type=Path, help="file to write (.png)")
    asked = parser.parse_args()
    plot(json.loads(asked.results.read_text(encoding="utf-8")), asked.picture)


if __name__ == "__main__":
    main()
