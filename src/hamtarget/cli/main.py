"""The verbs of the command, and what holds for all of them."""

from __future__ import annotations

from typing import Annotated

import typer

import hamtarget
from hamtarget.cli import paper
from hamtarget.cli.errors import CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    name="hamtarget",
    add_completion=False,
    no_args_is_help=True,
    # A traceback is for mistakes of this program, and then a plain one, which can be reported.
    pretty_exceptions_enable=False,
)

# One line for each file of verbs.
app.add_typer(paper.app, name="paper")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hamtarget {hamtarget.__version__}")
        raise typer.Exit


@app.callback(epilog="Example: hamtarget paper figure2 --out results/figure2")
def hamtarget_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn binary hash codes by Hamming distance targets, and search them exactly and fast."""
