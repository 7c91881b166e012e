"""`hamtarget restore`: makes a store of a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.plan import in_bytes
from hamtarget.cli.terminal.arguments import AsJson
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import write_json


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="Folder that `hamtarget backup` wrote.")],
    store: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the store: new or empty.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the store that is there, when the new one is in place.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Copy a backup to the folder of a store.

    Every row of the copy is checked before it is put in place as a whole. With --replace, the store that is there stays
    until then; nobody may be writing to it.
    """
    from hamtarget.store import Store

    with progress_on_stderr("Copying and checking") as tell:
        report = Store.restore(backup, store, replace=replace, progress=tell)
    if as_json:
        write_json({"path": str(store), "items": report.items, "changes": report.sequence, "bytes": report.n_bytes})
    else:
        typer.echo(f"{store}: {report.items:,} items at change {report.sequence:,}, {in_bytes(report.n_bytes)}, whole")
