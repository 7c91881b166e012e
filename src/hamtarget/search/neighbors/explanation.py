"""The explanation that `NeighborIndex.explain` returns: what was chosen, why, and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hamtarget.search.neighbors.curve import Curve, Setting

_ROWS_OF_A_TABLE = 14


@dataclass(frozen=True, repr=False)
class Explanation:
    """An explanation of an index; `print` shows it as a page.

    Attributes:
        way: "cells" or "scan".
        why: the reason for it.
        n_rows: rows now.
        n_rows_at_fit: rows when the index was fitted.
        metric: "cosine", "l2" or "dot".
        n_dims: numbers in a vector.
        row_type: how vectors are kept.
        n_cells: number of cells; 0 for a scan.
        dims_per_part: numbers in a part of a sketch; 0 for a scan.
        recall: share of the true neighbours that is wanted.
        settings: for each k, what a search with the wanted recall reads.
        curves: recall against work, by k.
        ceilings: recall of an exact scan by the type in which rows are kept.
        bytes_per_row: by part.
        seconds: of each step of `fit`.
        scan_seconds: of one core that an exact scan takes for a query.
        advice: when to fit again.
    """

    way: str
    why: str
    n_rows: int
    n_rows_at_fit: int
    metric: str
    n_dims: int
    row_type: str
    n_cells: int
    dims_per_part: int
    recall: float
    settings: dict[int, Setting]
    curves: dict[int, Curve]
    ceilings: Mapping[str, float]
    bytes_per_row: Mapping[str, float]
    seconds: dict[str, float]
    scan_seconds: float
    advice: str

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [f"{self.n_rows:,} vectors of {self.n_dims:,} numbers, metric {self.metric}", f"{self.why}"]
        if self.way == "cells":
            lines += self._cells()
        total = sum(self.bytes_per_row.values())
        parts = ", ".join(f"{name} {size:.1f}" for name, size in self.bytes_per_row.items())
        lines.append(f"bytes a row: {total:.1f} ({parts})")
        if self.seconds:
            parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in self.seconds.items())
            lines.append(f"seconds of fit: {sum(self.seconds.values()):.1f} ({parts})")
        lines.append(self.advice)
        return "\n".join(lines)

    def _cells(self) -> list[str]:
        ceilings = ", ".join(f"{name} {recall:.3f}" for name, recall in self.ceilings.items())
        lines = [
            f"cells: {self.n_cells:,}, about {self.n_rows // max(1, self.n_cells):,} rows each",
            f"sketches: {-(-self.n_dims // self.dims_per_part)} parts of {self.dims_per_part} numbers, 4 bits each",
            f"vectors: {self.row_type} (recall if all are compared: {ceilings})",
        ]
        for k, setting in self.settings.items():
            lines.append(
                f"k = {k}, recall {self.recall:g}: budget {setting.budget:,}, comparisons {setting.comparisons:,}"
            )
        for k, curve in self.curves.items():
            lines.append("")
            lines.append(f"measured at k = {k}, queries a second on one core:")
            lines.append("  recall  queries/s  candidates  comparisons")
            points = curve.frontier()
            step = -(-len(points) // _ROWS_OF_A_TABLE)
            for recall, _, _, candidates, compared, seconds in points[(len(points) - 1) % max(1, step) :: max(1, step)]:
                rate = f"{1 / seconds:,.0f}" if seconds > 0 else "-"
                lines.append(f"   {recall:.3f} {rate:>10} {candidates:>11,.0f} {compared:>12,.0f}")
        lines.append("")
        return lines
