"""`hamtarget delete`: deletes items of a store."""

from __future__ import annotations

from typing import Annotated

import typer

from hamtarget.cli.inputs.ids import typed_ids
from hamtarget.cli.inputs.stores import open_store, shown_place
from hamtarget.cli.terminal.arguments import AsJson, StorePlace
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import note, printable, write_json

# Ids of a transaction.
_AT_ONCE = 4096


def delete(
    store: StorePlace,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of items; or - for one a line.")],
    as_json: AsJson = False,
) -> None:
    """Delete items of a store by their ids; they are gone from the disk when the command ends.

    Digits are taken for a string first, then for an integer. An id that is not there is named; the exit code is then 1.
    No file of a picture is deleted, and `sync` of its folder adds the picture again.
    """
    deleted = missing = 0
    with open_store(store, read_only=False) as opened:
        found = []
        for text, item in typed_ids(opened, ids, at_once=_AT_ONCE):
            if item is None:
                missing += 1
                note(f"hamtarget: no item {printable(text)}")
                continue
            found.append(item.id)
            if len(found) == _AT_ONCE:
                deleted += opened.delete(found)
                found.clear()
        deleted += opened.delete(found) if found else 0
        total = len(opened)
    if as_json:
        write_json({"store": shown_place(store), "deleted": deleted, "missing": missing, "items": total})
    else:
        typer.echo(f"{shown_place(store)}: {deleted:,} deleted; {total:,} in all")
    if missing:
        raise typer.Exit(FOUND)
