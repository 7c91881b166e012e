"""`hamtarget dups`: what in a store is there twice, or nearly."""

from __future__ import annotations

from typing import Annotated

import typer

from hamtarget.cli.terminal.options import AsJson, StorePath
from hamtarget.cli.terminal.output import note, printable, write_json
from hamtarget.cli.terminal.progress import progress_on_stderr


def dups(
    store: StorePath,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="R", help="Pairs within R bits; by default the store's radius.")
    ] = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Groups of items that hang together, instead of pairs.")
    ] = False,
    threads: Annotated[int, typer.Option(min=1, metavar="N", help="Threads that search.")] = 1,
    as_json: AsJson = False,
) -> None:
    """All pairs of items within a radius, each once, as they are found: id, id and distance between tabs.

    Nothing within the radius is missed. With --groups, a line for each group; with --json, an object or a list a line.
    """
    from hamtarget.store import Store

    with progress_on_stderr("Building the index") as tell:
        opened = Store.open(store, read_only=True, progress=tell)
    found = 0
    with opened, progress_on_stderr("Comparing") as tell:
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
