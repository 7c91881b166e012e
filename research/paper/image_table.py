"""Show table 1 as text beside the paper's figures, and as a picture."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from hamtarget._files import write_atomically
from hamtarget.errors import MissingExtraError

# MAP@1000 as printed, on ImageNet-100. Its photos have full size, so only the order of methods can be compared.
PAPER = {
    "HDT": (0.838, 0.822, 0.812),
    "DBR": (0.733, 0.761, 0.769),
    "HashNet": (0.506, 0.631, 0.684),
    "DHN": (0.311, 0.472, 0.573),
    "ITQ": (0.323, 0.462, 0.552),
    "LSH": (0.101, 0.235, 0.360),
}
_LENGTHS = (16, 32, 64)
# The methods in pictures; more would crowd them.
DRAWN = ("HDT", "HDT-paper", "CSQ", "OrthoHash", "DBR", "HashNet", "DHN", "ITQ", "LSH")
_ORDER = (*DRAWN, "HDT-plain", "CSQ-pulled", "OrthoHash-pulled", "DBR-pulled")
_CELL = 39
_PARTS = ("database", "never_trained")
_TITLES = {
    "whole": "all classes",
    "unseen": "classes without labels",
    "mosaic": "pictures of four images, several labels each",
}


def label(record: dict[str, Any]) -> str:
    """Return the name of a run's method in tables."""
    run = record["run"]
    return f"{run['method']}-{run['variant']}" if run["variant"] else str(run["method"])


def summary(records: Iterable[dict[str, Any]]) -> dict[tuple[str, str, int, str, str], list[float]]:
    """Return values over seeds by (task, method, n_bits, part of the database, figure)."""
    found: dict[tuple[str, str, int, str, str], list[float]] = {}
    for record in records:
        run = record["run"]
        for part, figures in record["scores"].items():
            for figure, value in figures.items():
                found.setdefault((run["task"], label(record), run["n_bits"], part, figure), []).append(value)
    return found


def text(records: list[dict[str, Any]]) -> str:
    """Return every figure by method and length, averaged over seeds, with the paper's MAP beside it."""
    values = summary(records)
    lines = []
    for task in _TITLES:
        methods = _methods(values, task)
        if not methods:
            continue
        lengths = sorted({key[2] for key in values if key[0] == task})
        for part in _PARTS:
            if not any(key[0] == task and key[3] == part for key in values):
                continue
            where = "" if part == "database" else ", only rows that were not learned from"
            lines += ["", f"{_TITLES[task]}{where}: MAP@1000 (legacy); precision / recall within 2 bits; [seeds]"]
            wide = max(map(len, methods)) + 2
            heads = [f"{n_bits} bits".ljust(_CELL) for n_bits in lengths]
            lines.append("method".ljust(wide) + "".join(heads) + "paper's MAP")
            for method in methods:
                cells = [_cell(values, task, method, n_bits, part) for n_bits in lengths]
                printed = PAPER.get(method) if task == "whole" else None
                beside = " ".join(f"{value:.3f}" for value in printed) if printed else ""
                lines.append(method.ljust(wide) + "".join(cell.ljust(_CELL) for cell in cells) + beside)
    return "\n".join(line.rstrip() for line in lines).lstrip("\n") + "\n" if lines else "no run is there yet\n"


def _methods(values: dict[tuple[str, str, int, str, str], list[float]], task: str) -> list[str]:
    found = {key[1] for key in values if key[0] == task}
    return sorted(found, key=lambda name: (_ORDER.index(name) if name in _ORDER else len(_ORDER), name))


def _cell(
    values: dict[tuple[str, str, int, str, str], list[float]], task: str, method: str, n_bits: int, part: str
) -> str:
    def of(figure: str) -> list[float]:
        return values.get((task, method, n_bits, part, figure), [])

    if not of("map"):
        return ""
    spread = f"+-{stdev(of('map')):.3f}" if len(of("map")) > 1 else ""
    seeds = f" [{len(of('map'))}]" if len(of("map")) > 1 else ""
    return (
        f"{mean(of('map')):.3f}{spread} ({mean(of('map_legacy')):.3f}); "
        f"{mean(of('precision')):.2f} / {mean(of('recall')):.3f}{seeds}"
    )


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Draw MAP by length of code, one line for each method, if the table has a run.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    values = summary(records)
    methods = [method for method in _methods(values, "whole") if method in DRAWN]
    if not methods:
        return

    def plot(axes: Any) -> None:
        for method in methods:
            points = [
                (n_bits, mean(found))
                for n_bits in _LENGTHS
                if (found := values.get(("whole", method, n_bits, "database", "map")))
            ]
            style = {"color": color(method), "marker": "o", "linewidth": 1.5}
            axes.plot([n for n, _ in points], [value for _, value in points], label=method, **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(_LENGTHS, [str(n) for n in _LENGTHS])
        axes.set_xlabel("bits")
        axes.set_ylabel("MAP@1000")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)

    save_picture(path, [[plot]], width=6.0)


def color(method: str) -> str:
    """Return the colour of a method, the same in every picture."""
    return f"C{DRAWN.index(method)}"


def save_picture(path: Path, plots: Sequence[Sequence[Callable[[Any], None]]], *, width: float) -> None:
    """Draw rows of plots, each by a function of its axes, with one legend for all of them.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        # pyplot keeps global state and may look for a display.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib is not installed; to draw: pip install 'hamtarget[plot]'") from error
    figure = Figure(figsize=(width * len(plots[0]) + 1.3, 3.8 * len(plots)), layout="constrained")
    handles: dict[str, Any] = {}
    for axes_of_row, row in zip(figure.subplots(len(plots), len(plots[0]), squeeze=False), plots, strict=True):
        for axes, plot in zip(axes_of_row, row, strict=True):
            plot(axes)
            lines, labels = axes.get_legend_handles_labels()
            handles.update(zip(labels, lines, strict=True))
    ordered = sorted(handles, key=DRAWN.index)
    figure.legend([handles[name] for name in ordered], ordered, loc="outside right center", fontsize=9, frameon=False)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    write_atomically(path, content.getvalue())
