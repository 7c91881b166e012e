"""Stores that a command reads."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from hamtarget.cli.terminal.bars import progress_on_stderr
from hamtarget.cli.terminal.output import note
from hamtarget.errors import LostChangesWarning

if TYPE_CHECKING:
    from hamtarget.store import Store


def open_store(place: str, *, read_only: bool = True) -> Store:
    """Open a store, and show on the standard error how far its index is, if that must be built.

    Args:
        place: folder, or address of a database.
        read_only: True if the command changes nothing.

    Raises:
        FileError: there is no store, or it cannot be used.
        ServerError: the database cannot be reached.
    """
    from hamtarget.store import Store

    with warnings.catch_warnings(record=True) as told, progress_on_stderr("Building the index") as tell:
        warnings.simplefilter("always", LostChangesWarning)
        store = Store.open(place, read_only=read_only, progress=tell)
    for warning in told:
        note(f"warning: {warning.message}")
    return store


def shown_place(place: str) -> str:
    """Return a store's folder or address for people to read: without the password."""
    from hamtarget.store.postgres.address import is_address, parse_address

    return parse_address(place).shown if is_address(place) else place
