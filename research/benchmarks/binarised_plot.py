"""Draw the recall of binarised vectors against the bytes of a code.

python -m research.benchmarks.binarised_plot docs/images/binarised_vectors.png research/results/binarised_vectors/*.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

_COLOURS = {
    "signs": "#9a7fb8",
    "ITQ": "#e8a33d",
    "learned": "#14a37f",
    "learned, neighbourhoods kept": "#0b6e4f",
}
_WAYS = {"recall by codes": "by Hamming distance", "recall rescored": "best 40 rescored by int8 vectors"}


def plot(sets: dict[str, Any], path: Path) -> None:
    """Write the picture of sets as binarised_vectors.py makes them, with a column for each."""
    figure, grid = pyplot.subplots(
        len(_WAYS), len(sets), figsize=(5.5 * len(sets), 8), layout="constrained", squeeze=False, sharey=True
    )
    for column, (name, facts) in enumerate(sets.items()):
        for row, (way, caption) in enumerate(_WAYS.items()):
            axes = grid[row][column]
            for method, colour in _COLOURS.items():
                points = sorted((at["bytes"], at[way]) for at in facts["figures"] if at["method"] == method)
                if points:
                    axes.plot(*zip(*points, strict=True), color=colour, marker="o", label=method)
            axes.set_xscale("log", base=2)
            axes.set_ylim(0, 1.02)
            axes.set_title(f"{name}: {facts['rows']:,} x {facts['columns']}, {caption}", size=10)
            axes.set_xlabel("Bytes of a code")
            axes.set_ylabel("Recall 10@10")
            axes.grid(color="#e5e5e5", linewidth=0.7)
            axes.spines[["top", "right"]].set_visible(False)
    grid[0][0].legend(frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def main() -> None:
    """Draw a file of results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path, help="PNG file to write")
    parser.add_argument("results", type=Path, nargs="+", help="JSON files that binarised_vectors.py wrote")
    arguments = parser.parse_args()
    sets: dict[str, Any] = {}
    for file in arguments.results:
        sets |= json.loads(file.read_text(encoding="utf-8"))["sets"]
    plot(sets, arguments.picture)


if __name__ == "__main__":
    main()
