"""`hamtarget plan`: bits and radius that suit a number of rows, and their cost."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from hamtarget.cli.terminal.arguments import AsJson
from hamtarget.cli.terminal.output import Column, write_json, write_table

_BITS = (16, 32, 64, 96, 128, 256)
_COLUMNS = tuple(
    Column(heading, number=True)
    for heading in ("bits", "radius", "tables", "look-ups", "rows read", "share", "false hits", "false pairs", "memory")
)


def plan(
    rows: Annotated[int, typer.Argument(min=1, metavar="ROWS", help="Number of rows to search.")],
    bits: Annotated[
        list[int] | None, typer.Option(metavar="N", help="Bits of a code; repeatable. By default a few lengths.")
    ] = None,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="R", help="Search radius; by default the largest that is still cheap.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the expected cost and memory of searching a number of rows whose codes are spread evenly.

    "tables" is their number in an index of so many rows, "look-ups" the buckets of them that a query reads.
    "false hits" are rows within the radius of a query that resembles none of them; "false pairs" are pairs of such
    rows among all, half the false hits of all rows together. Real codes are spread less evenly, and have many more:
    `hamtarget calibrate` tells how many, and which radius suits them; `hamtarget evaluate` measures what they find.
    """
    from hamtarget.search import planning
    from hamtarget.search.tables import choose_substrings

    plans = [planning.plan(rows, n_bits, radius) for n_bits in bits or _BITS if radius is None or radius < n_bits]
    tables = [choose_substrings(each.n_rows, each.n_bits, each.radius) for each in plans]
    found = list(zip(plans, tables, strict=True))
    if as_json:
        write_json([{**asdict(each), "index": asdict(chosen)} for each, chosen in found])
        return
    write_table(
        _COLUMNS,
        [
            (
                str(each.n_bits),
                str(each.radius),
                str(chosen.substrings),
                f"{chosen.buckets:,}",
                _figure(chosen.candidates),
                f"{_figure(100 * chosen.candidates / rows)}%",
                _figure(each.expected_hits),
                _figure(each.expected_false_pairs),
                in_bytes(chosen.memory),
            )
            for each, chosen in found
        ],
        title=f"{rows:,} rows",
    )
    for chosen in tables if bits else ():
        typer.echo(chosen.reason)


def in_bytes(size: int) -> str:
    """Return a size as text, in the unit that suits it."""
    value = float(size)
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{value:.3g} {unit}" if value < 100 else f"{value:,.0f} {unit}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
