"""`hamtarget get`: shows items of a store."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from hamtarget.cli.inputs.ids import typed_ids
from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.terminal.arguments import AsJson, StorePlace
from hamtarget.cli.terminal.failures import FOUND
from hamtarget.cli.terminal.output import note, printable, write_json

# Ids that are looked up at a time.
_AT_ONCE = 1024


def get(
    store: StorePlace,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of items; or - for one a line.")],
    as_json: AsJson = False,
) -> None:
    """Show items of a store: id, code in hexadecimal digits, and payload, between tabs.

    Digits are taken for a string first, then for an integer. An id that is not there is named; the exit code is then 1.

    With --json, a line for each item: {"id": ..., "code": ..., "payload": ...}, which `hamtarget add STORE -` takes.
    """
    import numpy as np

    missing = 0
    with open_store(store) as opened:
        for text, item in typed_ids(opened, ids, at_once=_AT_ONCE):
            if item is None:
                missing += 1
                note(f"hamtarget: no item {printable(text)}")
                continue
            code = np.asarray(item.code, dtype=np.uint8).tobytes().hex()
            if as_json:
                write_json({"id": item.id, "code": code, "payload": item.payload})
            else:
                payload = "" if item.payload is None else json.dumps(item.payload, ensure_ascii=False)
                typer.echo(f"{printable(item.id)}\t{code}\t{printable(payload)}")
    if missing:
        raise typer.Exit(FOUND)
