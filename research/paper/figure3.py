"""Figure 3: precision and recall of the codes within each Hamming radius, from the runs of table 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hamtarget.errors import FileError
from hamtarget.evaluation.metrics import by_label, precision_recall_by_radius
from hamtarget.evaluation.provenance import provenance, write_json
from research.paper.image_methods import check_method
from research.paper.image_runs import RunCodes, kept_runs
from research.paper.image_table import DRAWN, color, label, save_picture

# Curves end at half of the bits; beyond, nearly everything is a hit.
_SHOWN = 0.5


def curve(codes: RunCodes) -> dict[str, Any]:
    """Return precision, recall and hits per query by radius, up to half of the bits, over all queries together."""
    relevant = by_label(codes.query_labels, codes.database_labels)
    found = precision_recall_by_radius(
        codes.queries, codes.database, relevant, n_bits=codes.n_bits, max_radius=int(_SHOWN * codes.n_bits)
    )
    return {
        "radius": list(range(len(found.precision))),
        "precision": found.precision,
        "precision_per_query": found.precision_per_query,
        "recall": found.recall,
        "hits": found.hits,
    }


def write_figure3(runs: Path, out: Path, *, methods: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Write figure3.json and figure3.png to `out`, and return a record for each run of the whole task with seed 0.

    Args:
        runs: folder in which table 1 keeps its runs.
        out: folder for the results.
        methods: only these methods, if given.

    Raises:
        FileError: there is no such run.
    """
    for method in methods:
        check_method(method)
    records = []
    for facts, codes in kept_runs(runs):
        run = facts["run"]
        if run["task"] == "whole" and run["seed"] == 0 and (not methods or run["method"] in methods):
            records.append({"method": label(facts), "n_bits": run["n_bits"], **curve(codes)})
    if not records:
        raise FileError(f"{runs} holds no run of the whole task; run python -m research table1 first")
    write_json(out / "figure3.json", {"provenance": provenance(seed=0), "records": records})
    draw(records, out / "figure3.png")
    return records


def draw(records: list[dict[str, Any]], path: Path) -> None:
    """Draw precision above and recall below, by radius, one column for each code length, if there is an ordinary run.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    drawn = [record for record in records if record["method"] in DRAWN]
    if not drawn:
        return

    def panel(figure: str, n_bits: int) -> Callable[[Any], None]:
        def plot(axes: Any) -> None:
            for record in drawn:
                if record["n_bits"] == n_bits:
                    axes.plot(record["radius"], record[figure], color=color(record["method"]), label=record["method"])
            axes.set_title(f"{n_bits} bits: {figure}")
            axes.set_xlabel("Hamming radius")
            axes.set_ylim(0, 1.02)
            axes.grid(alpha=0.3)

        return plot

    lengths = sorted({record["n_bits"] for record in drawn})
    save_picture(path, [[panel(figure, n) for n in lengths] for figure in ("precision", "recall")], width=4.2)


def text(records: list[dict[str, Any]]) -> str:
    """Return precision and recall within 0, 1, 2 and 4 bits as lines of text."""
    radii = (0, 1, 2, 4)
    lines = [
        "bits method           " + "".join(f"within {radius}".ljust(16) for radius in radii) + "(precision / recall)"
    ]
    for record in sorted(records, key=lambda record: record["n_bits"]):
        cells = [f"{record['precision'][r]:.3f} / {record['recall'][r]:.3f}" for r in radii]
        lines.append(f"{record['n_bits']:<4} {record['method']:<16} " + "".join(cell.ljust(16) for cell in cells))
    return "\n".join(line.rstrip() for line in lines) + "\n"
