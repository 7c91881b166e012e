"""`hamtarget token`: makes, lists and removes the tokens of a service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from hamtarget.cli.terminal.failures import CommandGroup
from hamtarget.cli.terminal.output import Column, note, write_table
from hamtarget.serve.access.tokens import (
    Role,
    TokenEntry,
    editing_tokens,
    new_token,
    read_tokens,
    remove_tokens,
    time_text,
)

token_verbs = typer.Typer(cls=CommandGroup, no_args_is_help=True, rich_markup_mode="markdown")

_File = Annotated[Path, typer.Argument(metavar="FILE", help="The tokens file of hamtarget serve --tokens FILE.")]
_Name = Annotated[str, typer.Argument(metavar="NAME", help="Who holds the token; the access log has this name.")]


@token_verbs.command(epilog="Example: hamtarget token add tokens.json shop --role read --days 90")
def add(
    file: _File,
    name: _Name,
    role: Annotated[
        Role, typer.Option(help="read: search and look; write: put and delete, too; admin: everything.")
    ] = "read",
    days: Annotated[int | None, typer.Option(min=1, max=36500, metavar="N", help="Days until it expires.")] = None,
) -> None:
    """Make a token, keep its hash in FILE, and print the token: this is the only time that it is shown.

    A name can have two tokens, so that one can replace the other without a pause.
    """
    token = new_token()
    expires = None if days is None else datetime.now(UTC).replace(microsecond=0) + timedelta(days=days)
    with editing_tokens(file) as entries:
        entries.append(TokenEntry.of(name, role, token, expires=expires))
    note(f"hamtarget: {file} has the hash only; keep this token now, it is not shown again")
    typer.echo(token)


@token_verbs.command("list", epilog="Example: hamtarget token list tokens.json")
def list_tokens(file: _File) -> None:
    """List the names, roles and times of all tokens of FILE."""
    now = datetime.now(UTC).timestamp()
    rows = [
        (
            entry.name,
            entry.role,
            "" if entry.created is None else time_text(entry.created),
            "never" if entry.expires is None else time_text(entry.expires),
            "yes" if entry.is_valid(now) else "expired",
        )
        for entry in read_tokens(file)
    ]
    write_table([Column(heading) for heading in ("name", "role", "created", "expires", "valid")], rows)


@token_verbs.command(epilog="Example: hamtarget token remove tokens.json shop --keep-newest")
def remove(
    file: _File,
    name: _Name,
    keep_newest: Annotated[
        bool, typer.Option("--keep-newest", help="Keep the newest token of this name: it has replaced the others.")
    ] = False,
) -> None:
    """Remove the tokens of a name from FILE; a running service refuses them within a second."""
    with editing_tokens(file) as entries:
        removed = remove_tokens(entries, name, keep_newest=keep_newest)
    typer.echo(f"Removed {removed} token{'s' if removed > 1 else ''} of {name}; {len(entries)} left in {file}.")
