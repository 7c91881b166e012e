"""Draw MAP by how long methods were trained.

    python -m research.paper.long_curve research/results/table1/long.json

`long_table` draws it, too; this draws it again from the table's file, as long_curve.png beside it.
"""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path

from hamtarget._files import write_atomically
from hamtarget.errors import MissingExtraError
from research.paper.image_table import DRAWN, color

# Figures by method, by way (with or without the pull), and by epochs.
Curve = dict[str, dict[str, dict[str, dict[str, float]]]]

_PARTS = {"map": "whole database", "map_never_trained": "rows that were not learned from"}
_WAYS = {"pulled": ("with the pull", "-"), "unpulled": ("without", "--")}


def curve_path(table: Path) -> Path:
    """Return the file of the picture that belongs to a table's file."""
    return table.with_name(f"{table.stem}_curve.png")


def draw_curve(curve: Curve, path: Path) -> None:
    """Draw a line for each method, with and without the pull; beside it, the same for rows not learned from.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        # pyplot keeps global state and may look for a display.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib is not installed; to draw: pip install 'hamtarget[plot]'") from error
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    plots = figure.subplots(1, len(_PARTS), sharey=True)
    ticks: set[int] = set()
    for axes, (figure_name, title) in zip(plots, _PARTS.items(), strict=True):
        for method in sorted(curve, key=DRAWN.index):
            for way, by_epochs in curve[method].items():
                points = sorted((float(epochs), found[figure_name]) for epochs, found in by_epochs.items())
                ticks |= {round(epochs) for epochs, _ in points}
                told, line = _WAYS[way]
                axes.plot(
                    [epochs for epochs, _ in points],
                    [value for _, value in points],
                    line,
                    color=color(method),
                    marker="o",
                    markersize=4,
                    linewidth=1.5,
                    label=f"{method}, {told}",
                )
        axes.set(xscale="log", xlabel="epochs", title=title)
        axes.set_xticks(sorted(ticks), [str(epochs) for epochs in sorted(ticks)])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    plots[0].set_ylabel("MAP@1000, 32 bits")
    handles, labels = plots[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=9, frameon=False)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    write_atomically(path, content.getvalue())


def main() -> None:
    """Draw the curve of a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, help="what long_table wrote")
    given = parser.parse_args()
    draw_curve(json.loads(given.file.read_text(encoding="utf-8"))["curve"], curve_path(given.file))


if __name__ == "__main__":
    main()
