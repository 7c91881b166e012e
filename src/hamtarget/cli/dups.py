"""`hamtarget dups`: near duplicates in a store."""

from __future__ import annotations

from typing import Annotated

import typer

from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.terminal.arguments import AsJson, StorePlace, Threads
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import note, printable, write_json


def dups(
    store: StorePlace,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="R", help="Pairs within R bits; by default the store's radius.")
    ] = None,
    groups: Annotated[bool, typer.Option("--groups", help="List groups of connected items instead of pairs.")] = False,
    threads: Threads = 1,
    as_json: AsJson = False,
) -> None:
    """List all pairs of items within a radius, each once, as they are found: id, id and distance between tabs.

    No pair within the radius is missed. With --groups, each line is a group: items that a chain of such pairs
    connects. With --json, each line is an object (a pair) or a list of ids (a group).
    """
    found = 0
    with open_store(store) as opened, progress_on_stderr("Comparing") as tell:
        if groups:
            for group in opened.duplicate_groups(radius, threads=threads, progress=tell):
                found += 1
                write_json(group) if as_json else typer.echo("\t".join(map(printable, group)))
        else:
            for a, b, distance in opened.near_duplicates(radius, threads=threads, progress=tell):
                found += 1
                if as_json:
                    write_json({"a": a, "b": b, "distance": distance})
                else:
                    typer.echo(f"{printable(a)}\t{printable(b)}\t{distance}")
    note(f"{found:,} {'groups' if groups else 'pairs'}")
