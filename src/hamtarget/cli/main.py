"""The verbs of the command, and what holds for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

import hamtarget
from hamtarget.cli import (
    add,
    backup,
    calibrate,
    delete,
    demo,
    dups,
    encode,
    evaluate,
    get,
    groups,
    info,
    match,
    plan,
    repair,
    restore,
    search,
    serve,
    sync,
    token,
    train,
    verify,
)
from hamtarget.cli.terminal.failures import CommandGroup

# Between the columns of the help, and its width.
_GAP = "  "
_COLUMNS = 80


class GroupedCommands(CommandGroup):
    """Verbs that the help shows in groups, by their `rich_help_panel`."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without boxes, so that all verbs fit on a screen of 24 lines and 80 columns."""
        # Printed at once, as typer prints every help that rich draws.
        typer.echo("\n".join(self._help_lines(ctx)))

    def _help_lines(self, ctx: Any) -> Iterator[str]:
        options = [parameter.opts[-1] for parameter in self.get_params(ctx) if parameter.opts[0].startswith("-")]
        yield f"Usage: {ctx.command_path} [{'|'.join(options)}] VERB"
        yield self.help or ""
        panels = {name: getattr(command, "rich_help_panel", None) for name, command in self.commands.items()}
        width = max(map(len, self.commands), default=0)
        # Of a panel, the first verb stands in the line of its name.
        indent = max((len(panel) for panel in panels.values() if isinstance(panel, str)), default=0)
        before: object = None
        for name, command in self.commands.items():
            panel = panels[name]
            heading = panel if isinstance(panel, str) and panel != before else ""
            before = panel
            told = command.get_short_help_str(limit=_COLUMNS - indent - width - 2 * len(_GAP))
            yield f"{typer.style(heading.ljust(indent), bold=True)}{_GAP}{name:<{width}}{_GAP}{told}"
        if self.epilog:
            yield self.epilog


app = typer.Typer(
    cls=GroupedCommands,
    name="hamtarget",
    # Lines of a paragraph flow together.
    rich_markup_mode="markdown",
    no_args_is_help=True,
    # A traceback is for mistakes of this program, and then a plain one, which can be reported.
    pretty_exceptions_enable=False,
)

_LEARN, _STORE, _LOOK, _SERVE = "Learn", "Store", "Look", "Serve"

# In the order in which one meets them; verbs of a group stand together.
app.command(
    rich_help_panel=_LEARN,
    short_help="Learn codes from images with labels, vectors or texts.",
    epilog="Example: hamtarget train photos --model model --bits 32 --radius 2",
)(train.train)
app.command(
    rich_help_panel=_LEARN,
    short_help="Turn images, vectors or texts into codes.",
    epilog="Example: hamtarget encode copies64 photos --out codes.npy",
)(encode.encode)
app.command(
    rich_help_panel=_LEARN,
    short_help="Measure how well a model's codes find what is relevant.",
    epilog="Example: hamtarget evaluate model photos --plot curves.png",
)(evaluate.evaluate)
app.command(
    rich_help_panel=_STORE,
    short_help="Add images, vectors, texts or codes to a store.",
    epilog="Example: hamtarget add store photos --encoder copies64",
)(add.add)
app.command(
    rich_help_panel=_STORE,
    short_help="Let a store follow a folder of pictures that changes.",
    epilog="Example: hamtarget sync store photos --dry-run",
)(sync.sync)
app.command(
    rich_help_panel=_STORE,
    short_help="Find items near an image, vector, text or item of the store.",
    epilog="Example: hamtarget search store photo.jpg --nearest 5",
)(search.search)
app.command(
    rich_help_panel=_STORE,
    short_help="Find the items that match several codes, as frames of a video.",
    epilog="Example: hamtarget match store clip --at-least 3",
)(match.match)
app.command(
    rich_help_panel=_STORE,
    short_help="Find copies among pictures or texts, or duplicates in a store.",
    epilog="Example: hamtarget dups photos --out copies.html",
)(dups.dups)
app.command(
    rich_help_panel=_STORE,
    short_help="List groups of near duplicates in a store; ids of groups stay.",
    epilog="Example: hamtarget groups store --linkage representative",
)(groups.groups)
app.command(
    rich_help_panel=_STORE,
    short_help="Show items of a store.",
    epilog="Example: hamtarget get store cats/1.jpg",
)(get.get)
app.command(
    rich_help_panel=_STORE,
    short_help="Delete items of a store.",
    epilog="Example: hamtarget delete store cats/1.jpg",
)(delete.delete)
app.command(
    rich_help_panel=_STORE,
    short_help="Copy a store while it is in use.",
    epilog="Example: hamtarget backup store backups/store",
)(backup.backup)
app.command(
    rich_help_panel=_STORE,
    short_help="Make a store of a backup.",
    epilog="Example: hamtarget restore backups/store store --replace",
)(restore.restore)
app.command(
    rich_help_panel=_STORE,
    short_help="Save what can be read of a damaged store.",
    epilog="Example: hamtarget repair store repaired",
)(repair.repair)
app.command(
    rich_help_panel=_LOOK,
    short_help="Show what is in a store, model or file, or is installed.",
    epilog="Example: hamtarget info store",
)(info.info)
app.command(
    rich_help_panel=_LOOK,
    short_help="Check a store, model or file for damage.",
    epilog="Example: hamtarget verify store",
)(verify.verify)
app.command(
    rich_help_panel=_LOOK,
    short_help="Choose bits and radius for a number of rows.",
    epilog="Example: hamtarget plan 1000000 --bits 64",
)(plan.plan)
app.command(
    rich_help_panel=_LOOK,
    short_help="Recommend a radius for the codes of a store.",
    epilog="Example: hamtarget calibrate store --rows 1000000",
)(calibrate.calibrate)
app.command(
    rich_help_panel=_SERVE,
    short_help="Serve a store over HTTP, with a page to search it.",
    epilog="Example: hamtarget serve store --images photos",
)(serve.serve)
app.add_typer(
    token.token_verbs,
    name="token",
    rich_help_panel=_SERVE,
    help="Make, list and remove the tokens of a service.",
)
app.command(
    rich_help_panel=_SERVE,
    short_help="Run all of it once on bundled images.",
    epilog="Example: hamtarget demo --out out",
)(demo.demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hamtarget {hamtarget.__version__}")
        raise typer.Exit


@app.callback(epilog="Begin with `hamtarget dups FOLDER`; `hamtarget VERB --help` has all options.")
def hamtarget_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Learn binary codes, and find everything within a Hamming distance, fast."""
