"""Print the results of the benchmark of nearest neighbours as Markdown tables.

python -m research.benchmarks.neighbors_table research/results/neighbors/*.json
python -m research.benchmarks.neighbors_table --ratios research/results/neighbors/*.json
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hamtarget._files import write_atomically
from hamtarget.errors import InputError
from research.benchmarks.neighbors_results import (
    TARGETS,
    Clock,
    Point,
    default_against_best,
    fastest,
    points_of,
    read_result,
)
from research.peers.libraries import OURS

_BEGIN, _END = "<!-- neighbors: begin -->", "<!-- neighbors: end -->"


def table(result: Mapping[str, Any], *, clock: Clock = "seconds") -> str:
    """Return a set's table: for each library, queries a second at each target, bytes a row and CPU seconds to build.

    The last lines are our speed by that of the best other library, and the speed of our default by that of our best
    setting by hand.
    """
    points = points_of(result, clock=clock)
    setting = result["setting"]
    head = (
        f"**{setting['set']}**: {setting['n_rows']:,} x {setting['n_dims']} {setting['dtype']}, {setting['metric']}; "
        f"{setting['n_queries']:,} queries in a batch"
    )
    if setting.get("first_query"):
        head += f", none of the first {setting['first_query']:,}"
    columns = ["library", *(target.name for target in TARGETS), "bytes a row", "build CPU s", "at 10 of 10, .95"]
    lines = [head, "", _line(columns), _line(["---", *["---:"] * (len(columns) - 2), "---"])]
    libraries = sorted({point.library for point in points}, key=lambda name: (name != OURS, name.lower()))
    for library in libraries:
        own = [point for point in points if point.library == library]
        best = [fastest(own, target) for target in TARGETS]
        shown = next((point for point in (best[2], best[1], best[0]) if point is not None), None)
        cells = [library, *(_speed(point) for point in best)]
        cells += ["", "", ""] if shown is None else [f"{shown.bytes_per_row:.0f}", f"{shown.build_cpu_seconds:.0f}"]
        if shown is not None:
            cells.append(f"{shown.index}: {_setting(shown)}")
        lines.append(_line(cells))
    others = [point for point in points if point.library != OURS]
    ours = [point for point in points if point.library == OURS]
    if ours and others:
        against = [_ratio(fastest(ours, target), fastest(others, target)) for target in TARGETS]
        lines.append(_line([f"{OURS} / best other", *against, "", "", ""]))
    if ours:
        defaults = [default_against_best(ours, target) if target.k == 10 else None for target in TARGETS]
        cells = ["" if value is None else f"{value:.2f}" for value in defaults]
        lines.append(_line([f"{OURS}, default / by hand", *cells, "", "", ""]))
    for kind in ("missing", "failed"):
        if result.get(kind):
            lines += ["", f"{kind.capitalize()}: {', '.join(result[kind])}."]
    return "\n".join(lines) + "\n"


def ratios(results: Sequence[Mapping[str, Any]], *, clock: Clock = "seconds") -> str:
    """Return one table of all sets: our speed by that of the best other library, which is named."""
    lines = [_line(["set", *(target.name for target in TARGETS)]), _line(["---", *["---"] * len(TARGETS)])]
    for result in results:
        points = points_of(result, clock=clock)
        cells = [str(result["setting"]["set"])]
        for target in TARGETS:
            ours = fastest((point for point in points if point.library == OURS), target)
            other = fastest((point for point in points if point.library != OURS), target)
            name = "" if other is None else f" ({other.library})"
            cells.append(_ratio(ours, other) + name)
        lines.append(_line(cells))
    return "\n".join(lines) + "\n"


def put_into(page: str, results: Sequence[Mapping[str, Any]], *, clock: Clock = "seconds") -> str:
    """Return a page with the tables of results between its two marks, in place of what stood there.

    Raises:
        InputError: the page lacks a mark.
    """
    before, begin, rest = page.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise InputError(f"the page has no lines {_BEGIN} and {_END}; put them where the tables should stand")
    tables = "\n".join([ratios(results, clock=clock), *(table(result, clock=clock) for result in results)])
    return f"{before}{_BEGIN}\n{tables}{_END}{after}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _speed(point: Point | None) -> str:
    return "not reached" if point is None else f"{point.queries_per_second:,.0f}"


def _ratio(ours: Point | None, other: Point | None) -> str:
    if ours is None or other is None:
        return "not reached" if ours is None else "only ours"
    return f"{ours.queries_per_second / other.queries_per_second:.2f}"


def _setting(point: Point) -> str:
    return ", ".join(f"{name} {value}" for name, value in point.setting.items())


def main() -> None:
    """Print the tables of the files that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="result files")
    parser.add_argument("--ratios", action="store_true", help="one table of all sets: our speed by the best other's")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="put both kinds of table into this page")
    parser.add_argument("--cpu", action="store_true", help="speeds by CPU time, for a machine with other work")
    options = parser.parse_args()
    clock: Clock = "cpu_seconds" if options.cpu else "seconds"
    results = [read_result(path) for path in options.results]
    if options.into is not None:
        write_atomically(options.into, put_into(options.into.read_text(), results, clock=clock).encode())
    elif options.ratios:
        print(ratios(results, clock=clock), end="")
    else:
        print("\n".join(table(result, clock=clock) for result in results), end="")


if __name__ == "__main__":
    main()
