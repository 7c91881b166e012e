"""The verbs of the command, and what holds for all of them."""

from __future__ import annotations

from typing import Annotated

import typer

import hamtarget
from hamtarget.cli import demo, dups, encode, evaluate, index, info, plan, search, serve, train, verify
from hamtarget.cli.terminal.errors import CommandGroup

app = typer.Typer(
    cls=CommandGroup,
    name="hamtarget",
    # Lines of a paragraph flow together.
    rich_markup_mode="markdown",
    no_args_is_help=True,
    # A traceback is for mistakes of this program, and then a plain one, which can be reported.
    pretty_exceptions_enable=False,
)

# One line for each verb, in the order in which one meets them.
app.command(epilog="Example: hamtarget train photos --model model --bits 32 --radius 2")(train.train)
app.command(epilog="Example: hamtarget encode model photos --out codes.npy")(encode.encode)
app.command(epilog="Example: hamtarget index store photos --model model")(index.index)
app.command(epilog="Example: hamtarget search store photo.jpg --nearest 5")(search.search)
app.command(epilog="Example: hamtarget dups store --radius 2 --groups")(dups.dups)
app.command(epilog="Example: hamtarget verify store")(verify.verify)
app.command(epilog="Example: hamtarget info store")(info.info)
app.command(epilog="Example: hamtarget evaluate model photos --plot curves.png")(evaluate.evaluate)
app.command(epilog="Example: hamtarget plan 1000000 --bits 64")(plan.plan)
app.command(epilog="Example: hamtarget serve store --images photos")(serve.serve)
app.command(epilog="Example: hamtarget demo --out out")(demo.demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hamtarget {hamtarget.__version__}")
        raise typer.Exit


@app.callback(epilog="Begin with: hamtarget demo")
def hamtarget_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn binary hash codes by Hamming distance targets, and search them exactly and fast."""
