"""`hamtarget groups`: groups of near duplicates in a store."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hamtarget.cli.inputs.stores import open_store
from hamtarget.cli.terminal.arguments import AsJson, StorePlace, Threads
from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import note, printable, write_json
from hamtarget.errors import InputError, LockedError, PrivilegeError, ReadOnlyError

if TYPE_CHECKING:
    from hamtarget.store.groups.results import Group, Groups
    from hamtarget.store.store import Store

# Groups that are read at a time.
_AT_ONCE = 1000


def groups(
    store: StorePlace,
    radius: Annotated[
        int | None, typer.Option(min=0, metavar="R", help="Within R bits; by default the store's radius.")
    ] = None,
    linkage: Annotated[
        Literal["single", "representative"],
        typer.Option(help="Items that a chain connects, or that are all within R bits of one of them."),
    ] = "single",
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="List at most N groups; all by default")] = None,
    members: Annotated[int, typer.Option(min=1, metavar="N", help="List at most N items of each group.")] = 100,
    threads: Threads = 1,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Write CSV instead of text, a line for each item.")] = False,
) -> None:
    """List groups of near duplicates in a store, largest first, each with its representative first.

    Groups are kept with the store: they have the same ids next time, and only what has changed is searched. While
    another process writes to the folder, or where it may not be written, new groups get ids for this time only.

    With --json, each line is an object: id, size, representative, is_capped, and members with their distances to the
    representative. A group with more items than are listed says so.
    """
    if as_json and as_csv:
        raise InputError("--json and --csv are both given; give one of them")
    n_groups = n_items = 0
    table = csv.writer(sys.stdout, lineterminator="\n") if as_csv else None
    if table is not None:
        table.writerow(["group", "size", "representative", "id", "distance"])
    for group in listed_groups(store, radius, linkage=linkage, limit=limit, members=members, threads=threads):
        n_groups += 1
        n_items += group.size
        if table is not None:
            table.writerows(
                [group.id, group.size, group.representative, member.id, member.distance] for member in group.members
            )
        elif as_json:
            write_json(_as_document(group))
        else:
            _write_text(group)
    note(f"hamtarget: {n_groups:,} groups of {n_items:,} items")


def listed_groups(
    place: str,
    radius: int | None,
    *,
    linkage: Literal["single", "representative"] = "single",
    limit: int | None = None,
    members: int | None = None,
    threads: int = 1,
) -> Iterator[Group]:
    """Yield the groups of a store, largest first; they are kept where the store can be written."""
    from hamtarget.query import Work

    left = limit
    after: int | None = None
    with ExitStack() as opened:

        def page(store: Store) -> Groups:
            at_once = _AT_ONCE if left is None else min(_AT_ONCE, left)
            with progress_on_stderr("Grouping") as tell:
                return store.groups(
                    radius,
                    linkage=linkage,
                    limit=at_once,
                    after=after,
                    members=members,
                    work=Work(threads=threads, progress=tell),
                )

        try:
            store = opened.enter_context(open_store(place, read_only=False))
            found = page(store)
        except (LockedError, ReadOnlyError, PrivilegeError):
            note("hamtarget: the store cannot be written now; groups that are new are not kept")
            store = opened.enter_context(open_store(place))
            found = page(store)
        while True:
            yield from found.groups
            left = None if left is None else left - len(found.groups)
            after = found.next
            if after is None or left == 0:
                return
            found = page(store)


def _as_document(group: Group) -> dict[str, object]:
    return {
        "id": group.id,
        "size": group.size,
        "representative": group.representative,
        "is_capped": group.is_capped,
        "members": [member._asdict() for member in group.members],
    }


def _write_text(group: Group) -> None:
    typer.echo(f"Group {group.id}: {group.size:,} items")
    for number, member in enumerate(group.members):
        relation = f"distance {member.distance}" if number else "representative"
        typer.echo(f"  {relation:<14}  {printable(member.id)}")
    if group.is_capped:
        typer.echo(f"  and {group.size - len(group.members):,} more")
