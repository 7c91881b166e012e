"""Draw how an index grows, from the file that scale_growth.py writes, and print the table of docs/scale.md.

    python -m research.benchmarks.scale_plot research/results/scale_growth.json

The picture is written beside the file of results.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("agg")
from matplotlib import pyplot

_Value = Callable[[dict[str, Any]], float]
# Title of each picture, and its lines: a name and where its number is.
_PANELS: dict[str, dict[str, _Value]] = {
    "Building, million rows a second": {"one call of add": lambda size: size["build"]["rows_a_second"] / 1e6},
    "Bytes a row": {
        "index": lambda size: size["build"]["bytes_a_row"],
        "highest while it is built": lambda size: size["build"]["peak_bytes_a_row"],
    },
    "Searches within 2 bits, million a second, one thread": {
        "compact": lambda size: size["search"]["queries_a_second"] / 1e6,
        "while rows are added": lambda size: (
            size["search"]["queries_a_second"] / 1e6 / size["add"]["search_ratio_beside_adds"]
        ),
    },
    "Adding 1,000 rows, milliseconds": {
        "median": lambda size: size["add"]["latency"]["median_ms"],
        "99% of calls": lambda size: size["add"]["latency"]["p99_ms"],
        "longest": lambda size: size["add"]["latency"]["most_ms"],
    },
    "Opening the saved file without verification, seconds": {"open": lambda size: size["file"]["open_seconds"]},
    "Self-join within 2 bits, two threads, seconds": {
        "pairs_within": lambda size: size["self_join"]["seconds"],
    },
}
_COLUMNS: dict[str, Callable[[dict[str, Any]], str]] = {
    "rows": lambda size: f"{size['n_rows']:,}",
    "build, rows/s": lambda size: f"{size['build']['rows_a_second'] / 1e6:.1f} M",
    "bytes a row": lambda size: f"{size['build']['bytes_a_row']:.1f}",
    "highest while built": lambda size: f"{size['build']['peak_bytes_a_row']:.0f}",
    "q/s, one thread": lambda size: f"{size['search']['queries_a_second'] / 1e6:.2f} M",
    "search time while rows are added": lambda size: f"{size['add']['search_ratio_beside_adds']:.2f} times",
    "add 1,000: median, p99, longest": lambda size: "{median_ms:.2f}, {p99_ms:.0f}, {most_ms:.0f} ms".format(
        **size["add"]["latency"]
    ),
    "delete 1: median": lambda size: f"{size['delete']['median_ms']:.3f} ms",
    "open": lambda size: f"{1e3 * size['file']['open_seconds']:.1f} ms",
    "self-join, 2 threads": lambda size: f"{size['self_join']['seconds']:.1f} s",
    "its memory a row": lambda size: f"{size['self_join']['peak_bytes_a_row']:.0f}",
}
_COLOURS = ("#0b6e4f", "#e8a33d", "#d9643a")
_LOGARITHMIC = ("Adding", "Opening", "Self-join")


def plot(results: dict[str, Any], path: Path) -> None:
    """Write the picture of `results`."""
    sizes = sorted(results["sizes"].values(), key=lambda size: size["n_rows"])
    rows = [size["n_rows"] for size in sizes]
    figure, grid = pyplot.subplots(2, 3, figsize=(15, 8), layout="constrained")
    for axes, (title, lines) in zip(grid.flat, _PANELS.items(), strict=True):
        for colour, (name, value) in zip(_COLOURS, lines.items(), strict=False):
            axes.plot(rows, [value(size) for size in sizes], "o-", color=colour, label=name)
        axes.set_xscale("log")
        axes.set_xlabel("rows")
        if title.startswith(_LOGARITHMIC):
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_title(title, loc="left", fontsize=10)
        axes.grid(alpha=0.3)
        if len(lines) > 1:
            axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)


def table(results: dict[str, Any]) -> str:
    """Return the sizes as a table in Markdown."""
    sizes = sorted(results["sizes"].values(), key=lambda size: size["n_rows"])
    rows = [list(_COLUMNS), ["---"] * len(_COLUMNS), *([value(size) for value in _COLUMNS.values()] for size in sizes)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    """Draw one file, and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, help="scale_growth.json")
    arguments = parser.parse_args()
    results = json.loads(arguments.results.read_text("utf-8"))
    plot(results, arguments.results.with_suffix(".png"))
    print(table(results))


if __name__ == "__main__":
    main()
