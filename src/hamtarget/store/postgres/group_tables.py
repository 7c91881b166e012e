"""Groups that a store in PostgreSQL keeps: tables of their own for each kind, beside those of the store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hamtarget.codes import Codes
from hamtarget.items import Id
from hamtarget.query import Asked, Query, Work
from hamtarget.search.requests import CodeKind
from hamtarget.store.groups.kept import ReadGroups, ask_kept
from hamtarget.store.groups.pages import IdsOf
from hamtarget.store.groups.source import Near, Rows, Source, near_of
from hamtarget.store.groups.sql import SqliteGroups
from hamtarget.store.groups.tables import TABLES, GroupTables, Kind
from hamtarget.store.items.ids import FIRST_NAMED_ROW
from hamtarget.store.postgres.connections import Connections, snapshot
from hamtarget.store.postgres.finding import Finder
from hamtarget.store.postgres.rows import copy_out, find_names, integers, only_row
from hamtarget.store.settings import Settings

if TYPE_CHECKING:
    from hamtarget.store.postgres.connections import Connection

T = TypeVar("T")
U = TypeVar("U")

# Values looked up by one statement, and codes searched for at a time.
_AT_ONCE = 256
# Kinds of groups that a reader holds in memory.
_MOST_IN_MEMORY = 4


class PostgresGroups:
    """Tables of one kind of groups, within a transaction of the connection."""

    blob = "bytea"
    integer = "bigint"

    def __init__(self, connection: Connection, kind: Kind) -> None:
        self._connection = connection
        self._kind = kind
        self.tables = GroupTables(self)

    @property
    def is_there(self) -> bool:
        """True if there are such tables, and they may be read."""
        sql = "SELECT coalesce(has_table_privilege(to_regclass($1), 'SELECT'), false)"
        return bool(only_row(self._connection, sql, [self.table("state")])[0])

    def begin(self) -> None:
        """Do nothing: whoever asks has begun a transaction."""

    def commit(self) -> None:
        """Do nothing: whoever asks commits it."""

    def table(self, name: str) -> str:
        """Return the full name of a table of groups."""
        return f"groups_{self._kind.radius}_{self._kind.linkage}_{name}"

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Run a statement, and return its rows."""
        cursor = self._connection.execute(_numbered(sql), values)
        return cursor.fetchall() if cursor.description else []

    def execute_many(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of the rows."""
        self._connection.cursor().executemany(_numbered(sql), rows)

    def look_up(self, sql: str, values: Sequence[Any]) -> list[Any]:
        """Return the rows of `sql`, in which {} stands for a list of any number of values."""
        found: list[Any] = []
        for start in range(0, len(values), _AT_ONCE):
            block = list(values[start : start + _AT_ONCE])
            found += self.execute(sql.format(", ".join("?" * len(block))), block)
        return found

    def insert(self, table: str, columns: str, rows: Iterable[Sequence[Any]]) -> None:
        """Insert any number of new rows into a table."""
        with self._connection.cursor().copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)

    def copied_to_memory(self) -> SqliteGroups:
        """Return a copy in memory."""
        copy = SqliteGroups.in_memory()
        for name in TABLES:
            rows = self.execute(f"SELECT * FROM {self.table(name)}")
            copy.execute(f"DELETE FROM {name}")
            if rows:
                copy.execute_many(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
        return copy


def _numbered(sql: str) -> str:
    """Return a statement with the parameters of PostgreSQL, $1, $2 and so on, in place of question marks."""
    numbers = count(1)
    first, *others = sql.split("?")
    return first + "".join(f"${next(numbers)}{part}" for part in others)


class PostgresSource:
    """A store in PostgreSQL as a transaction sees it, as groups read it."""

    def __init__(self, connection: Connection, settings: Settings, finder: Finder) -> None:
        self._connection = connection
        self._finder = finder
        # Groups need no embeddings.
        self._settings = replace(settings, embeddings=None)
        self._kind = CodeKind(settings.n_bits, None)
        self.sequence, self._forgotten, self._n_items = only_row(
            connection, "SELECT sequence, forgotten, n_items FROM state"
        )

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._n_items)

    def everything(self) -> tuple[Rows, Codes]:
        """Return all rows, ascending, and their codes."""
        return self._read("TRUE")

    def n_changed(self, after: int, most: int) -> int:
        """Return how many rows were written after a change; `most` at most."""
        sql = "SELECT count(*) FROM (SELECT 1 FROM items WHERE changed > $1 LIMIT $2) AS c"
        return int(only_row(self._connection, sql, [after, most])[0])

    def changed(self, after: int) -> tuple[Rows, Codes]:
        """Return rows that were written after a change, and their codes."""
        return self._read(f"changed > {after:d}")

    def deleted(self, after: int) -> list[int] | None:
        """Return rows that were deleted after a change; None if that is not known any more."""
        if self._forgotten > after:
            return None
        sql = """
            SELECT row FROM deleted WHERE changed > $1
            AND NOT EXISTS (SELECT 1 FROM items WHERE items.row = deleted.row)
        """
        return [row for (row,) in self._connection.execute(sql, [after])]

    def missing(self, rows: Rows) -> list[int]:
        """Return those of the rows that are not there."""
        sql = """
            SELECT row FROM unnest($1::bigint[]) AS asked (row)
            WHERE NOT EXISTS (SELECT 1 FROM items WHERE items.row = asked.row)
        """
        return [row for (row,) in self._connection.execute(sql, [integers(rows.tolist())])]

    def are_shared(self, codes: Codes, work: Work) -> list[bool]:
        """Return True for each of the codes: asking takes as long as looking a code up."""
        return [True] * len(codes)

    def near(self, codes: Codes, radius: int, work: Work) -> Iterator[list[Near]]:
        """Yield for each of the codes what is within the radius of it, in blocks."""
        for start in range(0, len(codes), _AT_ONCE):
            block = codes[start : start + _AT_ONCE]
            request = self._kind.request(Asked(block), Query(radius), work)
            found = self._finder.find(self._connection, request, None)
            hits = found.hits(len(block), None)
            distinct = np.unique(hits.rows)
            _, their_codes = self._read(f"row = ANY('{integers(distinct.tolist())}'::bigint[])")
            yield near_of(hits, their_codes[np.searchsorted(distinct, hits.rows)])

    def ids_of(self, rows: Sequence[int]) -> list[Id]:
        """Return the ids of rows, all of which are there."""
        names = find_names(self._connection, [row for row in rows if row >= FIRST_NAMED_ROW])
        return [row if row < FIRST_NAMED_ROW else names[row] for row in rows]

    def _read(self, condition: str) -> tuple[Rows, Codes]:
        parts = list(copy_out(self._connection, self._settings, condition))
        if not parts:
            return np.empty(0, np.int64), np.empty((0, self._settings.n_bits // 8), np.uint8)
        return np.concatenate([part.rows for part in parts]), np.concatenate([part.codes for part in parts])


class GroupsInDatabase:
    """All kinds of groups of an open store.

    Whoever may write writes to the tables of groups as well, one process at a time for each kind. A store that was
    opened for reading takes them into memory, and lets them follow there.
    """

    def __init__(self, connections: Connections, settings: Settings, finder: Finder, *, read_only: bool) -> None:
        self._connections = connections
        self._settings = settings
        self._finder = finder
        self._read_only = read_only
        self._in_memory: dict[Kind, SqliteGroups] = {}
        self._lock = threading.Lock()

    def ask(self, kind: Kind, answer: ReadGroups[T], work: Work) -> T:
        """Bring groups to the last change of the store, and return what `answer` reads of them."""
        with self._connections.translated(), self._connections.own(work.limits) as connection:

            def read_store(do: Callable[[Source, IdsOf], U]) -> U:
                source = PostgresSource(connection, self._settings, self._finder)
                return do(source, source.ids_of)

            groups = PostgresGroups(connection, kind)
            if self._read_only:
                with self._lock, snapshot(connection):
                    kept = self._follower(groups, kind)
                    try:
                        return ask_kept(kept, read_store, kind, answer, work)
                    finally:
                        kept.undo()
            # Taken before the transaction begins, which then sees what the holder before has done. It goes with the
            # connection, and so does a transaction that was not committed.
            name = f"{self._connections.address.schema}.{groups.table('state')}"
            connection.execute("SELECT pg_advisory_lock(hashtextextended($1, 0))", [name])
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            if not groups.is_there:
                groups.tables.create()
            found = ask_kept(groups, read_store, kind, answer, work)
            connection.execute("COMMIT")
            return found

    def _follower(self, groups: PostgresGroups, kind: Kind) -> SqliteGroups:
        """Return groups in memory, not older than those that are kept."""
        kept = self._in_memory.get(kind)
        known = -1 if kept is None else kept.tables.read_state().sequence
        if groups.is_there and groups.tables.read_state().sequence > known:
            kept = groups.copied_to_memory()
        self._in_memory.pop(kind, None)
        while len(self._in_memory) >= _MOST_IN_MEMORY:
            self._in_memory.pop(next(iter(self._in_memory)))
        self._in_memory[kind] = kept or SqliteGroups.in_memory()
        return self._in_memory[kind]
