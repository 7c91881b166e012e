"""SQLite as the tables of groups need it: a file, or memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hamtarget.store.groups.tables import DamagedGroupsError, GroupTables

# Values looked up by one statement.
_AT_ONCE = 256
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def is_damage(error: sqlite3.Error) -> bool:
    """Return True if SQLite says that a file is damaged; tables that are missing are an error of SQL to it."""
    return error.sqlite_errorcode & 0xFF in (*_DAMAGE, sqlite3.SQLITE_ERROR)


@contextmanager
def damage_told() -> Iterator[None]:
    """Tell damage of a file of groups from damage of the store.

    Raises:
        DamagedGroupsError: SQLite found some.
    """
    try:
        yield
    except sqlite3.DatabaseError as error:
        if is_damage(error):
            raise DamagedGroupsError(f"groups: {error}") from error
        raise


class SqliteGroups:
    """Tables of one kind of groups in SQLite, and the transaction that changes them.

    Attributes:
        connection: to the database.
        tables: the tables in it.
    """

    blob = "BLOB"
    integer = "INTEGER"

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.tables = GroupTables(self)

    @classmethod
    def in_memory(cls) -> SqliteGroups:
        """Return tables in memory, without any groups."""
        made = cls(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False))
        made.tables.create()
        return made

    def copied_to_memory(self) -> SqliteGroups:
        """Return a copy in memory."""
        copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self.connection.backup(copy)
        return SqliteGroups(copy)

    def begin(self) -> None:
        """Begin the transaction, or begin it anew."""
        self.undo()
        self.connection.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Commit the transaction."""
        self.connection.execute("COMMIT")

    def undo(self) -> None:
        """End the transaction without its changes, if there is one."""
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")

    def table(self, name: str) -> str:
        """Return the full name of a table of groups."""
        return name

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement, and return its rows."""
        with damage_told():
            return self.connection.execute(sql, values).fetchall()

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of the rows."""
        with damage_told():
            self.connection.executemany(sql, rows)

    def look_up(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of `sql`, in which {} stands for a list of any number of values."""
        statement = sql.format(", ".join("?" * _AT_ONCE))
        found: list[Any] = []
        for start in range(0, len(values), _AT_ONCE):
            block = list(values[start : start + _AT_ONCE])
            # A full list keeps the statement one and the same, which SQLite then compiles once.
            with damage_told():
                found += self.connection.execute(statement, block + [block[-1]] * (_AT_ONCE - len(block)))
        return found

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert any number of new rows into a table."""
        places = ", ".join("?" for _ in columns.split(","))
        self.execute_many(f"INSERT INTO {table} ({columns}) VALUES ({places})", rows)
