"""The tables in which groups are kept: rows of a place, places of a group, groups.

A place is a code that one row or more have. A row that is in no group is in no table.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from hamtarget.errors import CorruptFileError
from hamtarget.store.groups.results import Linkage


class DamagedGroupsError(CorruptFileError):
    """Kept groups are damaged; they can be made again."""


class Sql(Protocol):
    """A connection to a database; parameters are question marks."""

    blob: str
    """Name of the type of bytes."""
    integer: str
    """Name of the type of integers of 64 bits."""

    def table(self, name: str) -> str:
        """Return the full name of a table of groups."""
        ...

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement, and return its rows."""
        ...

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of the rows."""
        ...

    def look_up(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of `sql`, in which {} stands for a list of any number of values."""
        ...

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert any number of new rows into a table; `columns` are their names between commas."""
        ...


class Kind(NamedTuple):
    """Radius and linkage of groups: each kind of groups has tables of its own."""

    radius: int
    linkage: Linkage


class Kept(NamedTuple):
    """The state of kept groups."""

    sequence: int = 0
    """The change of the store up to which they are right."""
    next_id: int = 1
    next_place: int = 1
    n_groups: int = 0
    n_items: int = 0


class Place(NamedTuple):
    """A code of grouped rows."""

    number: int
    code: bytes
    group: int


class GroupPlace(NamedTuple):
    """A place of a group, with its first row."""

    number: int
    code: bytes
    first: int


class GroupRow(NamedTuple):
    """A group as its table has it."""

    id: int
    representative: int
    """Its first row."""
    size: int


TABLES = ("state", "members", "places", "groups")
# Every column is in an index too: SQLite's own check compares both, and so finds any damage.
_TABLES = """
CREATE TABLE {state} (only_row {integer} PRIMARY KEY CHECK (only_row = 1), sequence {integer} NOT NULL,
    next_id {integer} NOT NULL, next_place {integer} NOT NULL, n_groups {integer} NOT NULL, n_items {integer} NOT NULL,
    checksum {integer} NOT NULL);
CREATE TABLE {members} (row {integer} PRIMARY KEY, place {integer} NOT NULL);
CREATE INDEX {members}_by_place ON {members} (place, row);
CREATE TABLE {places} (place {integer} PRIMARY KEY, code {blob} NOT NULL UNIQUE, owner {integer} NOT NULL);
CREATE INDEX {places}_by_owner ON {places} (owner, place);
CREATE TABLE {groups} (id {integer} PRIMARY KEY, representative {integer} NOT NULL, size {integer} NOT NULL);
CREATE INDEX {groups}_by_size ON {groups} (size DESC, id, representative);
"""
_FIRST_OF_PLACE = "(SELECT min(m.row) FROM {members} m WHERE m.place = p.place)"


class GroupTables:
    """Reads and writes the tables of one kind of groups, within a transaction of the caller."""

    def __init__(self, sql: Sql) -> None:
        self._sql = sql
        self._names = {name: sql.table(name) for name in TABLES}

    def create(self) -> None:
        """Create the tables, without any groups."""
        types = {"integer": self._sql.integer, "blob": self._sql.blob}
        for statement in _TABLES.split(";"):
            if statement.strip():
                self._sql.execute(statement.format(**self._names, **types))
        self.write_state(Kept())

    def clear(self) -> None:
        """Remove all groups; the state stays."""
        for table in ("members", "places", "groups"):
            self._run(f"DELETE FROM {{{table}}}")

    def read_state(self) -> Kept:
        """Return the state.

        Raises:
            DamagedGroupsError: it is damaged.
        """
        found = self._run("SELECT sequence, next_id, next_place, n_groups, n_items, checksum FROM {state}")
        if len(found) != 1 or _checksum(Kept(*found[0][:5])) != found[0][5]:
            raise DamagedGroupsError("the state of the groups is damaged: its checksum is wrong")
        return Kept(*found[0][:5])

    def write_state(self, kept: Kept) -> None:
        """Write the state."""
        self._run("DELETE FROM {state}")
        self._run("INSERT INTO {state} VALUES (1, ?, ?, ?, ?, ?, ?)", (*kept, _checksum(kept)))

    def places_of_rows(self, rows: Sequence[int]) -> dict[int, int]:
        """Return the places of those of the rows that are in groups."""
        return dict(self._look_up("SELECT row, place FROM {members} WHERE row IN ({{}})", rows))

    def places(self, numbers: Sequence[int]) -> dict[int, Place]:
        """Return places by their numbers."""
        found = self._look_up("SELECT place, code, owner FROM {places} WHERE place IN ({{}})", numbers)
        return {number: Place(number, bytes(code), group) for number, code, group in found}

    def places_of_codes(self, codes: Sequence[bytes]) -> dict[bytes, Place]:
        """Return the places of those of the codes that have one."""
        found = self._look_up("SELECT place, code, owner FROM {places} WHERE code IN ({{}})", codes)
        return {bytes(code): Place(number, bytes(code), group) for number, code, group in found}

    def firsts(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return the first row of each of the places that has one."""
        sql = f"SELECT p.place, {_FIRST_OF_PLACE} FROM {{places}} p WHERE p.place IN ({{{{}}}})"
        return {number: first for number, first in self._look_up(sql, numbers) if first is not None}

    def counts(self, numbers: Sequence[int]) -> dict[int, int]:
        """Return the number of rows of each of the places that has one."""
        sql = "SELECT place, count(*) FROM {members} WHERE place IN ({{}}) GROUP BY place"
        return dict(self._look_up(sql, numbers))

    def places_of_group(self, group: int) -> list[GroupPlace]:
        """Return all places of a group."""
        found = self._run(f"SELECT p.place, p.code, {_FIRST_OF_PLACE} FROM {{places}} p WHERE p.owner = ?", (group,))
        return [GroupPlace(number, bytes(code), first) for number, code, first in found]

    def places_of_groups(self, groups: Sequence[int]) -> dict[int, list[tuple[GroupPlace, int]]]:
        """Return all places of some groups, each with the number of its rows; for an empty group, nothing."""
        n_rows = "(SELECT count(*) FROM {members} m WHERE m.place = p.place)"
        columns = f"p.owner, p.place, p.code, {_FIRST_OF_PLACE}, {n_rows}"
        sql = f"SELECT {columns} FROM {{places}} p WHERE p.owner IN ({{{{}}}})"
        found: dict[int, list[tuple[GroupPlace, int]]] = {}
        for group, number, code, first, count in self._look_up(sql, groups):
            found.setdefault(group, []).append((GroupPlace(number, bytes(code), first), count))
        return found

    def n_places(self, group: int) -> int:
        """Return the number of places of a group."""
        return int(self._run("SELECT count(*) FROM {places} WHERE owner = ?", (group,))[0][0])

    def rows_of_place(self, place: int, start: int, limit: int) -> list[int]:
        """Return rows of a place, ascending, from the one with the number `start` on."""
        sql = "SELECT row FROM {members} WHERE place = ? ORDER BY row LIMIT ? OFFSET ?"
        return [row for (row,) in self._run(sql, (place, limit, start))]

    def members_of_groups(self, ids: Sequence[int]) -> list[tuple[int, bytes, int]]:
        """Return group, code and row of all rows of some groups."""
        sql = """
            SELECT p.owner, p.code, m.row FROM {places} p JOIN {members} m ON m.place = p.place
            WHERE p.owner IN ({{}})
        """
        return [(id, bytes(code), row) for id, code, row in self._look_up(sql, ids)]

    def last_row(self) -> int:
        """Return the last row that is in a group; -2**63 where there is none."""
        return int(self._run("SELECT coalesce(max(row), ?) FROM {members}", (-(2**63),))[0][0])

    def all_rows(self) -> list[int]:
        """Return all rows that are in groups."""
        return [row for (row,) in self._run("SELECT row FROM {members}")]

    def all_members(self) -> list[tuple[int, bytes, int]]:
        """Return row, code and group of all rows that are in groups."""
        return self._run("SELECT m.row, p.code, p.owner FROM {members} m JOIN {places} p ON p.place = m.place")

    def groups(self, ids: Sequence[int]) -> dict[int, GroupRow]:
        """Return groups by their ids."""
        found = self._look_up("SELECT id, representative, size FROM {groups} WHERE id IN ({{}})", ids)
        return {row[0]: GroupRow(*row) for row in found}

    def all_groups(self) -> list[GroupRow]:
        """Return all groups, in no order."""
        return [GroupRow(*row) for row in self._run("SELECT id, representative, size FROM {groups}")]

    def largest_groups(self, limit: int, after: GroupRow | None) -> list[GroupRow]:
        """Return groups, largest first, then by id: those after another one."""
        condition = ""
        values: tuple[int, ...] = ()
        if after is not None:
            condition, values = "WHERE size < ? OR (size = ? AND id > ?)", (after.size, after.size, after.id)
        sql = f"SELECT id, representative, size FROM {{groups}} {condition} ORDER BY size DESC, id LIMIT ?"
        return [GroupRow(*row) for row in self._run(sql, (*values, limit))]

    def add_members(self, rows: Iterable[tuple[int, int]]) -> None:
        """Add rows with their places."""
        self._sql.insert(self._names["members"], "row, place", rows)

    def add_places(self, places: Iterable[Place]) -> None:
        """Add places."""
        self._sql.insert(self._names["places"], "place, code, owner", places)

    def add_groups(self, groups: Iterable[GroupRow]) -> None:
        """Add groups."""
        self._sql.insert(self._names["groups"], "id, representative, size", groups)

    def remove_members(self, rows: Sequence[int]) -> None:
        """Remove rows."""
        self._look_up("DELETE FROM {members} WHERE row IN ({{}})", rows)

    def remove_places(self, numbers: Sequence[int]) -> None:
        """Remove places, and the rows that they have left."""
        self._look_up("DELETE FROM {members} WHERE place IN ({{}})", numbers)
        self._look_up("DELETE FROM {places} WHERE place IN ({{}})", numbers)

    def remove_groups(self, ids: Sequence[int]) -> None:
        """Remove groups."""
        self._look_up("DELETE FROM {groups} WHERE id IN ({{}})", ids)

    def move_places(self, moves: Iterable[tuple[int, int]]) -> None:
        """Give places other groups: pairs of group and place."""
        self._many("UPDATE {places} SET owner = ? WHERE place = ?", moves)

    def move_groups(self, moves: Iterable[tuple[int, int]]) -> None:
        """Give all places of a group to another: pairs of the new group and the old."""
        self._many("UPDATE {places} SET owner = ? WHERE owner = ?", moves)

    def replace_groups(
        self, kept: Kept, old: Sequence[GroupRow], new: Sequence[GroupRow], *, n_new_places: int
    ) -> Kept:
        """Write new groups in place of old ones, and return the state after that, which is not written."""
        self.remove_groups([group.id for group in old])
        self.add_groups(new)
        return kept._replace(
            next_id=max([kept.next_id, *(group.id + 1 for group in new)]),
            next_place=kept.next_place + n_new_places,
            n_groups=kept.n_groups - len(old) + len(new),
            n_items=kept.n_items - sum(group.size for group in old) + sum(group.size for group in new),
        )

    def _run(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._sql.execute(sql.format(**self._names), values)

    def _many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        self._sql.execute_many(sql.format(**self._names), rows)

    def _look_up(self, sql: str, values: Sequence[Any]) -> list[Any]:
        # The names are filled in now, the list of values by the connection.
        return self._sql.look_up(sql.format(**self._names), values) if values else []


def _checksum(kept: Kept) -> int:
    return zlib.crc32(repr(tuple(kept)).encode())
