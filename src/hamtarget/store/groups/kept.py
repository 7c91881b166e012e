"""Groups that are kept beside a store: brought to its change, then read, within one transaction of their tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeVar

from hamtarget.codes import Codes
from hamtarget.query import Work
from hamtarget.store.groups.following import can_follow, follow, make_anew
from hamtarget.store.groups.pages import IdsOf
from hamtarget.store.groups.source import Rows, Source
from hamtarget.store.groups.tables import GroupTables, Kept, Kind

T = TypeVar("T")
ReadGroups = Callable[[GroupTables, Kept, IdsOf], T]
"""Reads something of groups that are at the change of the store."""

# If many rows change while groups are made anew, this is done again, so many times; then they follow.
_TRIES = 3


class KeptTables(Protocol):
    """Tables of one kind of groups, and the transaction that changes them."""

    @property
    def tables(self) -> GroupTables:
        """The tables."""
        ...

    def begin(self) -> None:
        """Begin the transaction, or begin it anew."""
        ...

    def commit(self) -> None:
        """Commit the transaction."""
        ...


class ReadStore(Protocol):
    """Reads a store at one change."""

    def __call__(self, do: Callable[[Source, IdsOf], T]) -> T:
        """Return what `do` returns; it may be called several times, and the last call counts."""
        ...


class _Rows(NamedTuple):
    """All rows of a store at a change."""

    rows: Rows
    codes: Codes
    sequence: int
    kept: Kept


def ask_kept(
    kept_tables: KeptTables,
    read_store: ReadStore,
    kind: Kind,
    answer: ReadGroups[T],
    work: Work,
) -> T:
    """Bring groups to the last change of their store, and return what `answer` reads of them.

    Nothing is held of the store while all groups are made anew, which takes long: they are made of a copy of the codes.

    Args:
        kept_tables: of the groups.
        read_store: reads the store.
        kind: of the groups.
        answer: reads the groups.
        work: threads that make groups anew, progress in codes if they do, and bounds; where one is reached, the tables
            stay as they were.
    """
    tables = kept_tables.tables
    tries = 0

    def read(source: Source, ids_of: IdsOf) -> T | _Rows:
        kept_tables.begin()
        kept = tables.read_state()
        if kept.sequence != source.sequence:
            if tries < _TRIES and not can_follow(kept, source):
                return _Rows(*source.everything(), source.sequence, kept)
            follow(tables, source, kind, kept, work)
            kept = tables.read_state()
        return answer(tables, kept, ids_of)

    while isinstance(found := read_store(read), _Rows):
        rows, codes, sequence, kept = found
        make_anew(tables, rows, codes, sequence, kind, kept, work)
        kept_tables.commit()
        tries += 1
    kept_tables.commit()
    return found
