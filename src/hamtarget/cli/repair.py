"""`hamtarget repair`: saves what can be read of a damaged store."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.terminal.arguments import AsJson
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import printable, write_json


def repair(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the damaged store; it is not touched.")],
    dest: Annotated[Path, typer.Argument(metavar="DEST", help="Folder of the new store: new or empty.")],
    as_json: AsJson = False,
) -> None:
    """Make a new store of everything that can still be read in a damaged one.

    Only rows that have their checksum come back. Where the log is damaged, the changes behind the damage are lost.
    The exit code is 0 if everything came back, 1 if something did not, 2 if nothing could be done.
    """
    from hamtarget.store import Store

    with progress_on_stderr("Reading rows") as tell:
        report = Store.repair(store, dest, progress=tell)
    if as_json:
        write_json({**asdict(report), "path": str(dest), "whole": report.ok})
    else:
        for problem in report.problems:
            typer.echo(printable(problem))
        typer.echo(f"{dest}: {report.items:,} items came back; {'not all' if report.problems else 'all of them'}")
    if not report.ok:
        raise typer.Exit(FOUND)
