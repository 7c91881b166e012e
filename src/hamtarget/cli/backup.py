"""`hamtarget backup`: copies a store while it is in use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.plan import in_bytes
from hamtarget.cli.terminal.arguments import AsJson, StorePlace
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import write_json


def backup(
    store: StorePlace,
    dest: Annotated[
        Path, typer.Argument(metavar="DEST", help="Folder of the backup: new, empty, or an earlier backup.")
    ],
    as_json: AsJson = False,
) -> None:
    """Copy a store, as it is at this moment, to a folder; whoever writes to it goes on.

    Every row of the copy is checked before it is put in place as a whole. An earlier backup in DEST stays until then.
    If the command is interrupted, run it again. The copy is a store: `hamtarget search` reads it.
    """
    with open_store(store) as opened, progress_on_stderr("Copying and checking") as tell:
        report = opened.backup(dest, progress=tell)
    if as_json:
        write_json(
            {
                "path": str(dest),
                "items": report.items,
                "changes": report.sequence,
                "bytes": report.n_bytes,
                "whole": True,
            }
        )
    else:
        typer.echo(f"{dest}: {report.items:,} items at change {report.sequence:,}, {in_bytes(report.n_bytes)}, whole")
